"""The driver's device files: those that a process has open, and those that stand in a container's /dev.

No device is opened. In a container's tree only folders of tmpfs and devtmpfs are looked into: another filesystem there
may be the container's own and let us wait for ever.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.driver.nodes import NVIDIA_MAJOR
from gpuhook.kernel.mounts import MountPoint, parse_mountinfo

MARK = "/dev/nvidia"
GPU = re.compile(r"/dev/nvidia(\d{1,3})")
FIRST_SPECIAL = 254  # minors of the driver's major that are no GPU: modeset and ctl
MEMORY = ("tmpfs", "devtmpfs")
# Where a file's status comes from this machine: another filesystem may let us wait for ever.
LOCAL = (*MEMORY, "ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "f2fs", "zfs", "overlay")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_files(node: Node, pid: int) -> list[str]:
    """The driver's files that a process has open: GPUs by their usual name, the rest by their path below /dev.

    Raises Unreadable.
    """
    folder = f"/proc/{pid}/fd"
    targets = {number: node.link(f"{folder}/{number}") for number in node.listdir(folder)}
    found = {number: target[target.index(MARK) :] for number, target in targets.items() if MARK in target}
    kinds = _filesystems(node, pid) if found and node.is_real else {}
    names = {_opened(node, pid, number, name.removesuffix(" (deleted)"), kinds) for number, name in found.items()}
    return sorted(names - {""}, key=in_order)


def _filesystems(node: Node, pid: int) -> dict[str, str]:
    """The filesystem of each of a process's mounts, by the mount's id."""
    table = parse_mountinfo(node.read(f"/proc/{pid}/mountinfo", "").encode())
    return {str(mount.id): mount.filesystem for mount in table}


def _opened(node: Node, pid: int, number: str, name: str, kinds: dict[str, str]) -> str:
    """What an open file is by its number where it can be asked for at no risk, else by its name; "" for another."""
    info = node.read(f"/proc/{pid}/fdinfo/{number}", "").split() if kinds else []
    kind = kinds.get(info[info.index("mnt_id:") + 1], "") if "mnt_id:" in info else ""
    if not kind:  # of a mount that the process does not see: it was given the file by another
        return name
    status = node.status(f"/proc/{pid}/fd/{number}") if kind in LOCAL else None
    if status is None or not stat.S_ISCHR(status.st_mode):
        return ""
    return gpu_of(status) or name


def gpu_of(status: os.stat_result) -> str | None:
    """The usual name of a GPU's node of this status, None for everything else."""
    if not stat.S_ISCHR(status.st_mode) or os.major(status.st_rdev) != NVIDIA_MAJOR:
        return None
    minor = os.minor(status.st_rdev)
    return f"/dev/nvidia{minor}" if minor < FIRST_SPECIAL else None


def minor_of(name: str) -> int | None:
    """The minor number in a GPU's usual name."""
    match = GPU.fullmatch(name)
    return int(match[1]) if match else None


def in_order(name: str) -> tuple[int, str]:
    """GPUs by number, then the rest by name."""
    minor = minor_of(name)
    return (1 << 16 if minor is None else minor, name)


def in_container(node: Node, pid: int, mounts: tuple[MountPoint, ...]) -> dict[str, str]:
    """The GPUs' nodes in a container's /dev: path there → usual name on the host. pid: one of its processes.

    Raises Unreadable where the container's tree may not be looked into; the mounts are then all that is known.
    """
    tops = {mount.point: mount for mount in mounts}  # the last mount of a place is the one that is seen
    found = {point: _bound(mount) for point, mount in tops.items() if GPU.fullmatch(point)}
    at_dev = tops.get("/dev")
    if at_dev is not None and at_dev.filesystem in MEMORY:
        found |= {path: name for path, name in _listed(node, pid) if path not in tops}
    return {path: name for path, name in sorted(found.items(), key=lambda pair: in_order(pair[0])) if name}


def bound(mounts: tuple[MountPoint, ...]) -> dict[str, str]:
    """Those that were mounted one by one, as this hook and nvidia-container-cli do it."""
    found = {mount.point: name for mount in mounts if GPU.fullmatch(mount.point) and (name := _bound(mount))}
    return dict(sorted(found.items(), key=lambda pair: in_order(pair[0])))


def _bound(mount: MountPoint) -> str:
    """Which node of the host a bind mount shows: `root` is the path in its filesystem, /nvidia0 of the host's /dev."""
    name = f"/dev/{mount.root.rpartition('/')[2]}"
    return name if GPU.fullmatch(name) else ""


def _listed(node: Node, pid: int) -> Iterator[tuple[str, str]]:
    """The nodes that a runtime made in a container's /dev. Raises Unreadable."""
    where = f"/proc/{pid}/root"
    try:
        root = os.open(node.place(where), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            folder = os.open("dev", FOLDER, dir_fd=root)
        finally:
            os.close(root)
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return
    except OSError as error:
        raise Unreadable(f"cannot look into {where}: {error.strerror}") from error
    try:
        for name in os.listdir(folder):
            if GPU.fullmatch(f"/dev/{name}"):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                # A fixture's tree holds no device nodes, so its names count.
                yield f"/dev/{name}", gpu_of(status) or ("" if node.is_real else f"/dev/{name}")
    finally:
        os.close(folder)
