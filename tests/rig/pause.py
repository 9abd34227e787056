"""A helper program: a container's first process without a runtime, as it stands when prestart hooks run.

    python -I -S pause.py JOB

JOB is JSON. The process has namespaces of its own, its rootfs is mounted on itself with /proc and /dev in it, and
the host's tree is still at /. It prints its pid and sleeps until stdin ends.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.rig import kernel

IDS = 65536


def main(job: dict[str, Any]) -> int:
    """Makes the process, waits for the end of stdin, ends it."""
    kernel.die_with_parent()
    unshared, mapped, ready = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready[0])
        os.close(mapped[1])
        enter(job, unshared[1], mapped[0], ready[1])
    os.close(unshared[1])
    os.close(ready[1])
    os.read(unshared[0], 1)
    if job["user_from"]:
        map_ids(child, job["user_from"])
    os.write(mapped[1], b"x")
    sys.stdout.write(os.read(ready[0], 4096).decode() or "failed\n")
    sys.stdout.flush()
    sys.stdin.read()
    with suppress(ProcessLookupError):
        os.kill(child, kernel.SIGKILL)
    os.waitpid(child, 0)
    return 0


def map_ids(pid: int, first: int) -> None:
    """Maps the ids of the process's user namespace to the host's from `first` on."""
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
            file.write(f"0 {first} {IDS}")


def enter(job: dict[str, Any], unshared: int, mapped: int, ready: int) -> None:
    """The child: namespaces, then a process that is the first of its pid namespace. Does not return."""
    if job["group"]:
        with open(f"{job['group']}/tasks", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    if job["user_from"]:
        kernel.unshare(kernel.CLONE_NEWUSER)
    os.write(unshared, b"x")
    os.read(mapped, 1)
    if job["user_from"]:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    kernel.die_with_parent()
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
    first = os.fork()
    if first == 0:
        become_first(job, ready)
    os.waitpid(first, 0)
    os._exit(0)


def become_first(job: dict[str, Any], ready: int) -> None:
    """The container's first process: mounts, then tells its pid as the host sees it. Does not return."""
    try:
        kernel.die_with_parent()
        pid = os.readlink("/proc/self")  # the host's procfs is still there
        set_up(job)
        os.chdir(job["rootfs"])
        os.write(ready, f"{pid}\n".encode())
    except OSError as error:
        os.write(ready, f"failed: {error}\n".encode())
    os.close(ready)
    while True:
        kernel.wait_for_ever()


def set_up(job: dict[str, Any]) -> None:
    """The mounts of a container before pivot_root."""
    rootfs = job["rootfs"]
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount(rootfs, rootfs, flags=kernel.MS_BIND | kernel.MS_REC)
    if job["proc"]:
        kernel.mount("proc", f"{rootfs}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    if job["dev"]:
        kernel.mount("tmpfs", f"{rootfs}/dev", "tmpfs", kernel.MS_NOSUID, "mode=755,size=64k")
    for target in job["tmpfs"]:
        kernel.mount("tmpfs", f"{rootfs}{target}", "tmpfs")
    for source, target in job["binds"]:
        kernel.mount(source, f"{rootfs}{target}", flags=kernel.MS_BIND | kernel.MS_REC)
    if job["shared"]:
        kernel.mount("", rootfs, flags=kernel.MS_REC | kernel.MS_SHARED)
    if job["readonly"]:
        kernel.mount("", rootfs, flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
