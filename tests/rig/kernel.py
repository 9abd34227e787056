"""The few system calls that the rig's own helper programs need; imports next to nothing."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x02000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 18, 1 << 19, 1 << 20
MNT_DETACH = 2
PR_SET_PDEATHSIG, SIGKILL = 1, 9

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mounts, or changes a mount, as the system call of that name."""
    texts = [os.fsencode(text) or None for text in (source, target, kind)]
    _check(_libc.mount(*texts, ctypes.c_ulong(flags), data.encode() or None), f"mount {source} on {target}")


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    """umount2(2), lazily unless told otherwise."""
    _check(_libc.umount2(target.encode(), flags), f"umount {target}")


def unshare(flags: int) -> None:
    """Gives this process namespaces of its own."""
    _check(_libc.unshare(flags), "unshare")


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends (prctl(2))."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")


def private_mounts() -> None:
    """A mount namespace of our own, from which nothing spreads."""
    unshare(CLONE_NEWNS)
    mount("", "/", flags=MS_REC | MS_PRIVATE)


def show_cgroups(version: str) -> None:
    """Makes /sys/fs/cgroup of a hybrid machine look as one version: "v1" hides unified, "v2" shows it alone.

    Call it in a mount namespace of your own. On a machine with version 2 alone it does nothing.
    """
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return
    if version == "v2":
        unmount("/sys/fs/cgroup")
        mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    elif version == "v1" and os.path.ismount("/sys/fs/cgroup/unified"):
        unmount("/sys/fs/cgroup/unified")


def wait_for_ever() -> None:
    """Sleeps until a signal ends this process (pause(2))."""
    _libc.pause()
