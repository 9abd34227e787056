"""Whether the reference can decode the state and config.json at all (hook.md §3)."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from tests.replay_rules.document import member
from tests.replay_rules.view import View

SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
VERSION = re.compile(rf"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-({IDENTIFIERS}))?(?:\+{IDENTIFIERS})?", re.ASCII)
LONGEST_VERSION = 256  # characters
Version = tuple[int, int, int, list[str]]


def semantic_version(text: str) -> Version | None:
    """Major, minor and patch number and the pre-release's identifiers; None for what is no version."""
    match = VERSION.fullmatch(text)
    if match is None or len(text) > LONGEST_VERSION:
        return None
    major, minor, patch = (int(number or 0) for number in match.group(1, 2, 3))
    identifiers = match[4].split(".") if match[4] else []
    padded = any(word.isdigit() and word.startswith("0") and word != "0" for word in identifiers)
    return None if padded or max(major, minor, patch) >= 1 << 64 else (major, minor, patch, identifiers)


def has_capability_list(version: str) -> bool:
    """Whether this ociVersion has one list of capabilities: 1.0.0-rc1 and later, before rc5."""
    parts = semantic_version(version)
    return parts is not None and parts[:3] == (1, 0, 0) and "rc1" <= (parts[3] or [""])[0] < "rc5"


def is_readable(view: View) -> bool:
    """Whether the state and config.json have the shape that the reference decodes."""
    spec = posixpath.join(view.cwd, view.bundle, "config.json")
    return (
        _is_state(view)
        and view.kind(spec) == "file"
        and _is_spec(view.spec.value)
        and all("=" in entry for entry in view.entries)
    )


def _is_state(view: View) -> bool:
    state = view.state.value
    if not isinstance(state, dict):
        return state is None and view.state.text.strip() == "null"
    pid = state.get("pid")
    return (
        (pid is None or (type(pid) is int and -(2**63) <= pid < 2**63))
        and _is_text(state.get("bundle"))
        and _is_text(state.get("bundlePath"))
    )


def _is_spec(spec: Any) -> bool:
    process, root = member(spec, "process"), member(spec, "root")
    version = member(spec, "ociVersion")
    if not (isinstance(version, str) and isinstance(process, dict) and isinstance(root, dict)):
        return False
    return (
        _all(process.get("env"), _is_text)
        and _is_text(root.get("path"))
        and _all(member(spec, "mounts"), _is_mount)
        and _are_capabilities(process.get("capabilities"), version)
    )


def _are_capabilities(value: Any, version: str) -> bool:
    if value is None:
        return True
    if has_capability_list(version):
        return _all(value, _is_text)
    return isinstance(value, dict) and all(_all(value.get(name), _is_text) for name in SETS)


def _is_mount(value: Any) -> bool:
    """A mount, or null for an empty one."""
    return value is None or (
        isinstance(value, dict)
        and all(_is_text(value.get(name)) for name in ("destination", "source", "type"))
        and _all(value.get("options"), _is_text)
        and all(_all(value.get(name), _is_mapping) for name in ("uidMappings", "gidMappings"))
    )


def _is_mapping(value: Any) -> bool:
    numbers = [value.get(name) for name in ("containerID", "hostID", "size")] if isinstance(value, dict) else [-1]
    return value is None or all(n is None or (type(n) is int and 0 <= n < 1 << 32) for n in numbers)


def _all(value: Any, fits: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(fits, value)))


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)
