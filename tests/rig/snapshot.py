"""The oracle: the host's state before and after, and what differs (threats.md §3.0, O-MNT and O-FS)."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

HASHED = 1 << 24  # bytes of a file that are hashed


def mount_table() -> bytes:
    """Our's mount table, byte for byte."""
    with open("/proc/self/mountinfo", "rb") as file:
        return file.read()


@dataclass(frozen=True)
class Entry:
    """What is compared of a file: everything but times and the inode's number."""

    mode: int
    uid: int
    gid: int
    links: int
    size: int
    content: str


@dataclass(frozen=True)
class Snapshot:
    """The state of some folders and of the mount table at one moment. mounts: b"" where it was not asked for."""

    entries: dict[str, Entry]
    mounts: bytes

    def differences(self, later: Snapshot) -> list[str]:
        """What changed until the later moment, a line each; empty where nothing did."""
        lines = []
        for path in sorted(self.entries.keys() | later.entries.keys()):
            before, after = self.entries.get(path), later.entries.get(path)
            if before != after:
                lines.append(f"{path}: {before or 'absent'} became {after or 'absent'}")
        old, new = self.mounts.splitlines(), later.mounts.splitlines()
        lines += [f"mount gone: {line.decode(errors='replace')}" for line in old if line not in new]
        lines += [f"mount new: {line.decode(errors='replace')}" for line in new if line not in old]
        if self.mounts != later.mounts and not lines:
            lines.append("the mount table's order changed")
        return lines


def snapshot(*folders: str, mounts: bool = True) -> Snapshot:
    """The state now: of these folders and everything below them, links not followed, other filesystems included."""
    entries = {path: _entry(path) for folder in folders for path in _paths(folder)}
    return Snapshot(entries, mount_table() if mounts else b"")


def _paths(folder: str) -> Iterator[str]:
    yield folder
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield f"{base}/{name}"


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    mode = status.st_mode
    if stat.S_ISREG(mode):
        content = _hash(path)
    elif stat.S_ISLNK(mode):
        content = f"-> {os.readlink(path)}"
    elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        content = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    else:
        content = ""
    size = 0 if stat.S_ISDIR(mode) else status.st_size
    return Entry(mode, status.st_uid, status.st_gid, status.st_nlink, size, content)


def _hash(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(HASHED)).hexdigest()
    except OSError as error:  # a file that not even root may read, in some filesystems
        return f"unreadable: {error.strerror}"
