"""config.toml as the reference reads it (hook.md §2): what counts as broken, and the keys that the hook uses."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any

if sys.version_info >= (3, 11):
    from tomllib import loads
else:
    from toml import loads

CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
COMPAT_MODES = ("ldconfig", "mount", "disabled", "hook")
MODES = ("auto", "legacy", "csv", "cdi", "jit-cdi")
FEATURES = (
    "allow-cuda-compat-libs-from-container",
    "allow-ldconfig-from-container",
    "allow-unknown-oci-spec-fields",
    "disable-cuda-compat-lib-hook",
    "disable-imex-channel-creation",
    "ignore-imex-channel-requests",
    "no-additional-gids-for-device-nodes",
)
Shape = dict[str, Any]
SHAPE: Shape = {
    "disable-require": bool,
    "swarm-resource": str,
    "accept-nvidia-visible-devices-envvar-when-unprivileged": bool,
    "accept-nvidia-visible-devices-as-volume-mounts": bool,
    "supported-driver-capabilities": str,
    "nvidia-container-cli": {
        **dict.fromkeys(("root", "path", "debug", "ldcache", "user", "ldconfig"), str),
        **dict.fromkeys(("load-kmods", "no-pivot", "no-cgroups"), bool),
        "environment": list,
    },
    "nvidia-container-runtime": {
        **dict.fromkeys(("debug", "log-level", "mode"), str),
        "runtimes": list,
        "modes": {
            "csv": {"mount-spec-path": str, "compat-container-root": str},
            "cdi": {"spec-dirs": list, "default-kind": str, "annotation-prefixes": list},
            "jit-cdi": {"nvcdi-feature-flags": list, "nvcdi-disable-hooks": list},
            "legacy": {"cuda-compat-mode": str},
        },
    },
    "nvidia-container-runtime-hook": {"path": str, "skip-mode-detection": bool},
    "nvidia-ctk": {"path": str},
    "features": dict.fromkeys(FEATURES, bool),
}


@dataclass(frozen=True)
class Config:
    """The tables of a file, or none and the fault that makes it broken."""

    tables: dict[str, Any]
    fault: str = ""

    def get(self, path: str, default: Any = None) -> Any:
        """The value of a dotted key; a key may also be written in upper case."""
        value: Any = self.tables
        for name in path.split("."):
            if not isinstance(value, dict):
                return default
            value = value.get(name, value.get(name.upper()))
        return default if value is None else value

    @property
    def capabilities(self) -> tuple[str, ...] | None:
        """What `supported-driver-capabilities` allows; None where it names something unknown."""
        text = self.get("supported-driver-capabilities", "all")
        words = CAPABILITIES if text == "all" else words_of(text)
        return tuple(words) if set(words) <= set(CAPABILITIES) else None


DEFAULTS = Config({})


def read(text: str) -> Config:
    """The text's tables, or why the reference refuses it: its syntax, a wrong type, an unknown capability."""
    try:
        tables: dict[str, Any] = loads(text)
    except (ValueError, IndexError) as error:
        return Config({}, f"no TOML: {error}")
    config = Config(tables)
    if _holds_endless_integer(tables):
        return Config({}, "no TOML: an integer of more than 64 bits")
    if has_wrong_type(config, SHAPE) or config.capabilities is None:
        return Config({}, "a value of the wrong kind")
    return config


def has_wrong_type(config: Config, shape: Shape, prefix: str = "") -> bool:
    """Whether a known key holds a value of another type than the shape says."""
    for name, kind in shape.items():
        value = config.get(prefix + name)
        if isinstance(kind, dict):
            if value is not None and not isinstance(value, dict):
                return True
            if has_wrong_type(config, kind, f"{prefix}{name}."):
                return True
        elif value is not None and not (isinstance(value, kind) and _members_fit(value)):
            return True
    return False


def _members_fit(value: Any) -> bool:
    return not isinstance(value, list) or all(isinstance(item, str) for item in value)


def words_of(text: str) -> list[str]:
    """The elements of a comma-separated list, trimmed; empty ones dropped."""
    return [word for word in (part.strip(GO_BLANKS) for part in text.split(",")) if word]


# What Go's strings.TrimSpace removes (unicode.IsSpace); Python's str.strip() also takes U+001C to U+001F.
GO_BLANKS = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


def holds_date(value: Any) -> bool:
    """Whether a value is a date without a time, or holds one: the reference's reader cannot read these."""
    if isinstance(value, dict):
        return any(map(holds_date, value.values()))
    if isinstance(value, list):
        return any(map(holds_date, value))
    return hasattr(value, "isoformat") and hasattr(value, "year") and not isinstance(value, datetime)


def _holds_endless_integer(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_endless_integer, value.values()))
    if isinstance(value, list):
        return any(map(_holds_endless_integer, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63
