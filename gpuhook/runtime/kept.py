"""The low-level runtime that was found last, left for the launcher of `gpuhook-runtime`, which is a shell script.

A file of lines: the runtime's path, the PATH with which it was found, and the config.toml that counted. Its
modification time is that of config.toml, so that a shell can tell without starting anything whether it still holds
(decisions.md 28). There are other files for the time when there is no config.toml, which the shell reads too, and for
another one than the usual. All are trusted as snapshots are.
"""

from __future__ import annotations

import posix
import time

from gpuhook.kernel.files import read_file
from gpuhook.note import note
from gpuhook.runtime.replace import FOLDER, write_new
from gpuhook.settings.load import find
from gpuhook.settings.snapshot import place
from gpuhook.settings.values import DEFAULT_CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import stat_result

LIMIT = 1 << 16  # bytes
SETTLED = 2_000_000_000  # ns; some shells compare whole seconds
NAME, WITHOUT_CONFIG, OF_ANOTHER = "runtime", "runtime-without-config", "runtime-of-another-file"


def keep(runtime: str, environ: Mapping[bytes, bytes], *, default: str = DEFAULT_CONFIG, folder: str = "") -> None:
    """Leave the runtime that was found in this environment. default: in place of the usual config.toml.

    Best effort: what prevents it is a note.
    """
    config = find("", environ, default)[0]
    lines = [_bytes(runtime), environ.get(b"PATH", b""), _bytes(config), b""]
    data = b"\n".join(lines)
    if data.count(b"\n") != len(lines) - 1 or len(data) > LIMIT:
        return
    try:
        status = _status(config)
        name = OF_ANOTHER if config != default else NAME if status is not None else WITHOUT_CONFIG
        _keep(name, data, status, folder or place())
    except OSError as error:
        note(f"the low-level runtime is not kept for the launcher: {error.strerror}")


def last_kept(environ: Mapping[bytes, bytes], *, default: str = DEFAULT_CONFIG, folder: str = "") -> str:
    """The runtime that was kept last for the config.toml that counts, whatever has become of it since; "" for none."""
    config = find("", environ, default)[0]
    found = [_read(folder or place(), name) for name in (NAME, WITHOUT_CONFIG, OF_ANOTHER)]
    times = {status.st_ctime_ns: data.split(b"\n") for data, status in filter(None, found)}
    for _, lines in sorted(times.items(), reverse=True):
        if lines[2:] == [_bytes(config), b""]:
            return lines[0].decode("utf-8", "surrogateescape")
    return ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _status(config: str) -> stat_result | None:
    try:
        return posix.stat(config)
    except FileNotFoundError:
        return None


def _keep(name: str, data: bytes, status: stat_result | None, folder: str) -> None:
    # A file that was just written could change once more within its clock's tick: then the times shall not agree.
    settled = status is not None and abs(time.time_ns() - status.st_ctime_ns) >= SETTLED
    stamp = status.st_mtime_ns if status is not None and settled else 0
    kept = _read(folder, name)
    if kept is not None and kept[0] == data and kept[1].st_mtime_ns == stamp:
        return
    try:
        posix.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    home = posix.open(folder, FOLDER | posix.O_NOFOLLOW)
    try:
        _require_private(posix.fstat(home))
        fresh = write_new(home, name, data)
        try:
            posix.utime(fresh, ns=(stamp, stamp), dir_fd=home, follow_symlinks=False)
            posix.rename(fresh, name, src_dir_fd=home, dst_dir_fd=home)
        except OSError:
            posix.unlink(fresh, dir_fd=home)
            raise
    finally:
        posix.close(home)


def _read(folder: str, name: str) -> tuple[bytes, stat_result] | None:
    try:
        home = posix.open(folder, FOLDER | posix.O_NOFOLLOW)
        try:
            _require_private(posix.fstat(home))
            data, status = read_file(name, LIMIT, dir_fd=home)
            _require_private(status)
        finally:
            posix.close(home)
    except OSError:
        return None
    return data, status


def _require_private(status: stat_result) -> None:
    if status.st_uid != posix.geteuid() or status.st_mode & 0o077:
        raise OSError(1, f"it is not ours alone (owner {status.st_uid}, mode {status.st_mode & 0o7777:04o})")
