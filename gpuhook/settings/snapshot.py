"""Outcomes worth keeping between container starts: small JSON files that only we can write, keyed by what made them.

A snapshot is never needed: one that is absent, old, damaged or not provably ours is ignored, and one that cannot be
written is a note. The folder is under /run, so that nothing survives a reboot.
"""

from __future__ import annotations

import posix
import time

from gpuhook import __version__
from gpuhook.jsontext import NotJson, document
from gpuhook.kernel.files import is_folder, read_file
from gpuhook.note import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

LIMIT = 1 << 20  # bytes of one snapshot
FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
NEW_FILE = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
OLD = 60  # seconds after which an unfinished file is nobody's
SECOND = 1_000_000_000
TICK = 40_000_000  # ns; a kernel stamps files with a clock that moves every 1 to 10 ms


def place() -> str:
    """The folder of our snapshots: root's, or the one of the user whose user namespace or process this is."""
    uid, real = _outer_uid()
    return "/run/gpuhook" if real and uid == 0 else f"/run/user/{uid}/gpuhook"


def load(name: str, key: tuple[str | int, ...], *, folder: str = "") -> dict[str, object] | None:
    """What was kept under this name for exactly this key by this version of gpuhook, or None.

    name: a plain file name; key: whatever changes when the outcome would; folder: in place of place().
    """
    try:
        home = posix.open(folder or place(), FOLDER)
    except OSError:  # nothing was ever kept, or a link stands there
        return None
    try:
        return _read(home, name, [__version__, *key])
    except (OSError, NotJson) as fault:
        note(f"snapshot {name} is not used: {fault}")
        return None
    finally:
        posix.close(home)


def save(name: str, key: tuple[str | int, ...], value: dict[str, object], *, folder: str = "") -> None:
    """Keep a value that JSON can hold, in place of what the name held; tuples come back as lists.

    Best effort: what prevents it is a note.
    """
    import json

    data = json.dumps({"key": [__version__, *key], "value": value}, separators=(",", ":")).encode()
    try:
        _write(folder or place(), name, data)
    except OSError as fault:
        note(f"snapshot {name} is not kept: {fault}")


def settled(status: stat_result) -> bool:
    """Whether a later change of this file is sure to change its times.

    A file that was just written can change again within one tick of the clock that stamps it, unnoticed. File systems
    without fractions of a second tick once a second.
    """
    tick = TICK if status.st_ctime_ns % SECOND else 2 * SECOND
    return abs(time.time_ns() - status.st_ctime_ns) > tick


def _outer_uid() -> tuple[int, bool]:
    """Our effective uid as the parent user namespace knows it, and whether ours is the initial one."""
    euid = posix.geteuid()
    try:
        ranges = read_file("/proc/self/uid_map", 1 << 16)[0].split(b"\n")
    except OSError:  # no procfs, or a kernel without user namespaces
        return euid, True
    for line in ranges:
        inside, outside, length = (int(field) for field in line.split() or (0, 0, 0))
        if inside <= euid < inside + length:
            return outside + euid - inside, length == 0xFFFFFFFF
    return euid, False


def _require_private(what: str, status: stat_result) -> None:
    too_open = status.st_mode & (0o077 if is_folder(status.st_mode) else 0o7177)
    if status.st_uid != posix.geteuid() or too_open:
        mode = status.st_mode & 0o7777
        raise OSError(1, f"{what} is not ours alone (owner {status.st_uid}, mode {mode:04o})")


def _read(home: int, name: str, key: list[str | int]) -> dict[str, object] | None:
    _require_private("its folder", posix.fstat(home))
    try:
        data, status = read_file(f"{name}.json", LIMIT, dir_fd=home)
    except FileNotFoundError:
        return None
    _require_private("it", status)
    kept = document(data)
    if not isinstance(kept, dict) or kept.get("key") != key:
        return None
    value = kept.get("value")
    return value if isinstance(value, dict) else None


def _write(folder: str, name: str, data: bytes) -> None:
    if len(data) > LIMIT:
        raise OSError(27, f"it is larger than {LIMIT >> 10} KiB")
    try:
        posix.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    home = posix.open(folder, FOLDER)
    try:
        _require_private("its folder", posix.fstat(home))
        _replace(home, f"{name}.json", data)
    finally:
        posix.close(home)


def _replace(home: int, name: str, data: bytes) -> None:
    fresh = f".{name}.{posix.getpid()}.{time.monotonic_ns()}"
    fd = posix.open(fresh, NEW_FILE, 0o600, dir_fd=home)
    try:
        try:
            while data:
                data = data[posix.write(fd, data) :]
        finally:
            posix.close(fd)
        posix.rename(fresh, name, src_dir_fd=home, dst_dir_fd=home)
    except OSError:
        posix.unlink(fresh, dir_fd=home)
        raise
    _clear(home)


def _clear(home: int) -> None:
    """Take away what a process that was killed here has left; one that still works has done so for a moment only."""
    try:
        for name in posix.listdir(home):
            status = posix.stat(name, dir_fd=home, follow_symlinks=False)
            if name.startswith(".") and time.time() - status.st_mtime > OLD:
                posix.unlink(name, dir_fd=home)
    except FileNotFoundError:  # somebody else does it
        return
