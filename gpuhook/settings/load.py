"""Which config.toml counts, whether it may be obeyed, and the settings that it makes.

The usual start finds the outcome in a snapshot and parses no TOML. Whether the file is safe is checked every time.
"""

from __future__ import annotations

import posix
from sys import getfilesystemencoding

from gpuhook.errors import ConfigBroken
from gpuhook.kernel.files import identity, is_regular, kind, read_file, require_trusted
from gpuhook.settings import snapshot
from gpuhook.settings.values import DEFAULT_CONFIG, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import stat_result

    Warnings = tuple[tuple[str, str], ...]

LIMIT = 1 << 20  # bytes of a config.toml
# pydantic imports hashlib, whose OpenSSL would load whatever a file of these variables names (threats.md AC-71).
STEERING = (b"OPENSSL_CONF", b"OPENSSL_CONF_INCLUDE", b"OPENSSL_MODULES", b"OPENSSL_ENGINES")


def load_settings(
    explicit: str, environ: Mapping[bytes, bytes], *, default: str = DEFAULT_CONFIG, folder: str = ""
) -> Settings:
    """The settings of this node (hook.md 2).

    explicit: a file named on the command line, "" for none; environ: our own variables, the administrator's
    (decisions.md 7); default and folder: other places than the usual ones, for tests.
    Raises ConfigBroken, also where a named file is absent, and UnsafeConfig where others can write the file.
    """
    path, required, warnings = find(explicit, environ, default)
    status = _status(path, required=required)
    if status is None:
        return Settings(warnings=warnings)
    name = "settings" if path == default else "settings-of-another-file"
    kept = snapshot.load(name, (path, *identity(status)), folder=folder)
    settings = _outcome(kept) if kept else None
    if settings is None:
        fresh, status = _decide(path)
        if snapshot.settled(status):
            snapshot.save(name, (path, *identity(status)), fresh, folder=folder)
        settings = _outcome(fresh)
    assert settings is not None  # noqa: S101  # a fresh outcome is one of ours
    return settings.with_(warnings=warnings + settings.warnings) if warnings else settings


def find(explicit: str, environ: Mapping[bytes, bytes], default: str = DEFAULT_CONFIG) -> tuple[str, bool, Warnings]:
    """The one file that counts, whether it must exist, and warnings about variables that do not."""
    if explicit:
        return _absolute(explicit), True, ()
    warnings: Warnings = ()
    for variable, below, required in (
        (b"NVIDIA_CTK_CONFIG_FILE_PATH", "", True),
        (b"XDG_CONFIG_HOME", "/nvidia-container-runtime/config.toml", False),
    ):
        value = environ.get(variable, b"").decode(getfilesystemencoding(), "surrogateescape")
        if value.startswith("/"):
            return f"{value}{below}", required, warnings
        if value:
            text = f"{variable.decode()} is ignored: {value!r} is not an absolute path"
            warnings = (*warnings, ("unsafe-config", text))
    return default, False, warnings


def _absolute(path: str) -> str:
    if path.startswith("/"):
        return path
    try:
        return f"{posix.getcwd()}/{path}"
    except OSError:
        raise _unusable(path, "it is relative, and the current folder is gone", "name an absolute path") from None


def _status(path: str, *, required: bool) -> stat_result | None:
    """The file's status after the check that it may be obeyed, or None where it may be absent and is."""
    try:
        require_trusted(path)
        status = posix.stat(path)
    except FileNotFoundError:
        if required or _is_there(path):
            raise _unusable(path, "it does not exist", "create it, or name another file") from None
        return None
    except OSError as fault:
        raise _unusable(path, fault.strerror or str(fault)) from None
    if not is_regular(status.st_mode):
        raise _unusable(path, f"it is {kind(status.st_mode)}, not a regular file")
    return status


def _is_there(path: str) -> bool:
    """Whether something has this name: a link to nothing is a fault, no file at all is none."""
    try:
        posix.lstat(path)
    except OSError:
        return False
    return True


def _unusable(path: str, why: str, hint: str = "") -> ConfigBroken:
    return ConfigBroken(f"{path} cannot be used: {why}", where=path, hint=hint)


def _decide(path: str) -> tuple[dict[str, object], stat_result]:
    """The outcome of reading the file, to be kept, and the status of what was read."""
    try:
        data, status = read_file(path, LIMIT, links=True)
    except OSError as fault:
        raise _unusable(path, fault.strerror or str(fault)) from None
    for name in STEERING:
        posix.unsetenv(name)
    try:
        from gpuhook.settings.decide import decide
    except ImportError as fault:
        raise _unusable(path, f"{fault}, which reading it needs", "install the packages toml and pydantic") from None
    try:
        settings = decide(data, path)
    except ConfigBroken as fault:
        return {"failure": [fault.text, fault.where, fault.hint]}, status
    return {"settings": _changes(settings)}, status


def _changes(settings: Settings) -> dict[str, object]:
    """What differs from the defaults; the version in the snapshot's key stands for those."""
    found = ((name, getattr(settings, name)) for name in Settings.fields())
    return {name: value for name, value in found if value != getattr(Settings, name)}


def _outcome(kept: dict[str, object]) -> Settings | None:
    """The settings of a kept outcome; None where it is not one of ours. Raises ConfigBroken where it is a failure."""
    failure, fields = kept.get("failure"), kept.get("settings")
    if isinstance(failure, list) and len(failure) == 3:
        text, where, hint = (str(part) for part in failure)
        raise ConfigBroken(text, where=where, hint=hint)
    if not isinstance(fields, dict) or not all(name in Settings.fields() for name in fields):
        return None
    values = {name: _tuples(value) for name, value in fields.items()}
    return Settings().with_(**values) if all(_fits(name, value) for name, value in values.items()) else None


def _fits(name: str, value: object) -> bool:
    """Whether a kept value is of its setting's kind."""
    default = getattr(Settings, name)
    if isinstance(default, tuple):
        return isinstance(value, tuple) and (name == "warnings" or all(isinstance(item, str) for item in value))
    if default is None:
        return isinstance(value, bool if name == "no_cgroups" else str)
    return type(value) is type(default)


def _tuples(value: object) -> object:
    return tuple([_tuples(part) for part in value]) if isinstance(value, (list, tuple)) else value
