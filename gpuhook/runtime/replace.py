"""A file is exchanged for a new one under its name: whoever looks sees the old one or the new one, whole.

A container start waits for this, and bundles are made anew after every start of the machine: nothing waits for disks.
"""

from __future__ import annotations

import posix
import time

from gpuhook.errors import BadBundle
from gpuhook.kernel.files import identity
from gpuhook.kernel.xattrs import copy_attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

NEW_FILE = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC


def write_new(folder: int, name: str, data: bytes, *, mode: int = 0o600) -> str:
    """Write a file of a fresh name beside `name` and return that name; nothing is left behind. Raises OSError."""
    fresh, new = _written(folder, name, data, mode)
    posix.close(new)
    return fresh


def _written(folder: int, name: str, data: bytes, mode: int) -> tuple[str, int]:
    """A new file of a fresh name, and a descriptor of it: the name may be somebody else's file a moment later."""
    fresh = f".{name}.gpuhook-{posix.getpid()}.{time.monotonic_ns()}"
    new = posix.open(fresh, NEW_FILE, mode, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[posix.write(new, view) :]
    except OSError:
        posix.close(new)
        posix.unlink(fresh, dir_fd=folder)
        raise
    return fresh, new


def replace(folder: int, name: str, data: bytes, old: stat_result, where: str) -> None:
    """Put the data in place of the file `name`, which had the status `old` when it was read.

    Mode, owner and extended attributes stay. Raises OSError, and BadBundle where somebody else has changed the file
    meanwhile; it is untouched then.
    """
    fresh, new = _written(folder, name, data, 0o600)
    try:
        _liken(folder, name, new, old)
        _refuse_other(folder, name, identity(old), where)
        _refuse_other(folder, fresh, identity(posix.fstat(new)), where)
        posix.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        posix.unlink(fresh, dir_fd=folder)
        raise
    finally:
        posix.close(new)


def _refuse_other(folder: int, name: str, known: tuple[int, ...], where: str) -> None:
    """Raise BadBundle where another file stands under this name by now, or this one was changed."""
    if identity(posix.stat(name, dir_fd=folder, follow_symlinks=False)) != known:
        raise BadBundle(
            f"{name} was changed by another program while it was edited",
            where=where,
            hint="start the container again; two programs must not edit one bundle",
        )


def _liken(folder: int, name: str, new: int, old: stat_result) -> None:
    """Give the new file, which is open, the old one's owner, mode and extended attributes."""
    flags = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    source = posix.open(name, flags, dir_fd=folder)
    try:
        if (old.st_uid, old.st_gid) != (posix.geteuid(), posix.getegid()):
            posix.fchown(new, old.st_uid, old.st_gid)
        posix.fchmod(new, old.st_mode & 0o7777)
        copy_attributes(source, new, name)
    finally:
        posix.close(source)
