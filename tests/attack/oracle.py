"""What must not change on the host, recorded before and after (threats.md 3.0: O-MNT, O-FS, O-DEV)."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tests.rig.rootfs import put

TRIPLET = f"{platform.machine()}-linux-gnu"
DEEP = ("/etc", "/dev", "/run")
# Where the host has what containers get driver files for, and what else an escape would reach first.
SHALLOW = (
    "/", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/lib32", f"/usr/lib/{TRIPLET}",
    "/usr/lib/i386-linux-gnu", "/usr/lib/firmware", "/usr/lib/firmware/nvidia", "/usr/lib/python3", "/root", "/var",
    "/var/cache/ldconfig", "/usr/local/bin", "/usr/local/lib", "/usr/local/cuda",
)  # fmt: skip
# What others write while we look: the hook's own state, runtimes and engines, terminals, locks.
BUSY = (
    "/run/gpuhook", "/run/runc", "/run/crun", "/run/lock", "/run/user", "/run/netns", "/run/containers",
    "/run/containerd", "/run/docker", "/run/docker.sock", "/run/docker.pid", "/run/libpod", "/run/crio", "/run/cni",
    "/run/systemd", "/run/log", "/run/udev", "/run/utmp", "/run/dbus", "/run/postgresql", "/dev/pts", "/dev/shm",
    "/dev/mqueue", "/dev/hugepages",
)  # fmt: skip
DEVICES = "/sys/fs/cgroup/devices"
# Groups of other containers, which may start and end beside us: those of tests' rigs and of engines.
OTHERS = ("gpuhook-rig", "docker", "libpod", "machine", "kubepods", "buildkit", "k8s.io", "default", "podman")

Mark = tuple[object, ...]
Record = dict[str, Mark]


def record(
    *folders: str, deep: bool = True, content: bool = False, skip: Sequence[str] = (), times: bool = True
) -> Record:
    """What stands in these folders: type, mode, owner; of files also size, links and times, and with `content` a hash.

    deep: everything below; skip: paths that are left out with what is below them; times: False leaves out times and
    link counts, for files that have names elsewhere. Folders that do not exist have no entry.
    """
    found: Record = {}
    for folder in folders:
        for path in _paths(folder, skip, deep=deep):
            with suppress(FileNotFoundError):  # gone between listing and looking: others live on this host too
                found[path] = _mark(path, content=content, times=times)
    return found


def _paths(folder: str, skip: Sequence[str], *, deep: bool) -> Iterator[str]:
    yield folder
    try:
        entries = list(os.scandir(folder))
    except (NotADirectoryError, FileNotFoundError):
        return
    for entry in entries:
        if entry.path in skip:
            continue
        if deep and entry.is_dir(follow_symlinks=False):
            yield from _paths(entry.path, skip, deep=deep)
        else:
            yield entry.path


def _mark(path: str, *, content: bool, times: bool) -> Mark:
    status = os.lstat(path)
    mark: Mark = (oct(status.st_mode), status.st_uid, status.st_gid)
    if stat.S_ISDIR(status.st_mode):
        return mark
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        return (*mark, os.major(status.st_rdev), os.minor(status.st_rdev))
    mark = (*mark, status.st_size, status.st_mtime_ns)
    if times:
        mark = (*mark, status.st_nlink, status.st_ctime_ns, status.st_ino)
    if stat.S_ISLNK(status.st_mode):
        mark = (*mark, os.readlink(path))
    elif content and stat.S_ISREG(status.st_mode):
        mark = (*mark, _hash(path))
    return mark


def _hash(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def differences(before: Record, after: Record, ignore: Callable[[str], bool] = lambda path: False) -> list[str]:
    """What came, went or changed, a line each."""
    return [
        f"{path}: {before.get(path, 'absent')} became {after.get(path, 'absent')}"
        for path in changed(before, after)
        if not ignore(path)
    ]


def changed(before: Record, after: Record) -> list[str]:
    """The paths that differ."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def host_record() -> Record:
    """The host's own folders now."""
    return {**record(*DEEP, skip=BUSY), **record(*SHALLOW, deep=False, skip=("/swapfile",))}


def device_rules() -> dict[str, str]:
    """Device rules of every group but those of OTHERS, in the hierarchy of version 1; empty where it is not there."""
    found = {}
    for base, folders, _ in os.walk(DEVICES):
        folders[:] = [name for name in folders if not name.startswith(OTHERS)]
        try:
            with open(f"{base}/devices.list", encoding="ascii") as file:
                found[base] = file.read()
        except FileNotFoundError:  # a group that has just gone
            continue
    return found


def make_canary(folder: str) -> None:
    """The tree C: files, folders, a FIFO and a socket."""
    os.makedirs(f"{folder}/dir/sub")
    put(folder, {"file": "canary\n" * 100, "dir/file": "canary", "dir/x.conf": "/canary\n", "ld.so.conf": "/canary\n"})
    os.mkfifo(f"{folder}/fifo")
    os.mknod(f"{folder}/socket", 0o140644)


def remove(folder: str) -> None:
    """Removes a tree, whatever the length of its paths."""
    shutil.rmtree(folder, ignore_errors=True)
