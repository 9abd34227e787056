"""Files and folders that not even root can change: attributes of chattr(1), read-only file systems.

They are looked for before anything is written, so that no half of the work has to be taken back from a place where
nothing can be taken back.
"""

from __future__ import annotations

import fcntl
import os
import struct

from gpuhook.install.errors import FileProtected

GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS (ioctl_iflags(2))
KINDS = {0x10: ("immutable", "i"), 0x20: ("append-only", "a")}


def require_changeable(path: str, real: str) -> None:
    """Refuse a file that can be neither replaced nor made. path: as its machine names it. Raises FileProtected."""
    folder = os.path.dirname(real)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    for place in (real, folder):
        if kind := _kind(place):
            raise FileProtected(
                f"{path} cannot be changed: {'it' if place == real else place} is {kind[0]}",
                where=path,
                hint=f"lsattr -d {place} shows it, chattr -{kind[1]} {place} ends it",
            )
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "run it as root" if os.geteuid() else "its file system is read-only: findmnt shows it"
        raise FileProtected(f"{path} cannot be changed: {folder} is read-only", where=path, hint=hint)


def _kind(place: str) -> tuple[str, str] | None:
    """The attribute that protects a file or folder, and its letter; None for none, and where there are none."""
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # absent, a link, or not ours to read
        return None
    try:
        flags = struct.unpack("i", fcntl.ioctl(fd, GET_FLAGS, bytes(8))[:4])[0]
    except OSError:  # a file system without attributes
        return None
    finally:
        os.close(fd)
    return next((kind for bit, kind in KINDS.items() if flags & bit), None)
