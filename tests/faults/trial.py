"""A container's start by the hook with a fault at one of its steps, in a mount namespace where nobody else works."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypeVar

from fixtures.driver import tables
from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from tests.attack.oracle import Record, changed, record
from tests.rig import kernel
from tests.rig.init import Init, run_hook
from tests.rig.needs import unified_host
from tests.rig.rootfs import make_rootfs, put
from tests.rig.snapshot import mount_table
from tests.runtime.node import GPUS

One = TypeVar("One")
Other = TypeVar("Other")
GROUP = not unified_host()
TOGETHER = 2  # trials at once
KEPT_BY_US = "/run/gpuhook"
# One of each kind, or two, are enough.
KEPT = ("libnvidia-ml.so", "libcuda.so", "libGLX_nvidia.so", "nvidia-smi", "gsp_ga10x.bin", tables.SOCKETS[0])
EVERYTHING = (*(library.stem for library in tables.LIBRARIES), *tables.BINARIES, *tables.FIRMWARE, *tables.SOCKETS)
WITHOUT = tuple(name for name in EVERYTHING if name not in KEPT)


@dataclass(frozen=True)
class Fault:
    """When the hook or its child (who: "hook", "child") comes to this step, from 1 on, at.c does this action."""

    who: str = "child"
    step: int = 0
    action: str = "none"


NONE = Fault()


@dataclass(frozen=True)
class World:
    """What a start may change (mounts, with source, target and options; rules; tree), and what not.

    table: the host's mount table in this namespace; host: the driver and /dev.
    """

    mounts: tuple[str, ...]
    rules: tuple[str, ...]
    tree: Record
    table: tuple[str, ...]
    host: Record


@dataclass(frozen=True)
class Trial:
    """What came of it. steps: as at.c reports them; left: how many processes outlived the hook."""

    status: int
    said: str
    steps: tuple[str, ...]
    left: int
    before: World
    after: World

    def first(self, step: str) -> int:
        """The number of the first such step ("hook open_tree") among those of its process."""
        return self.of(step.partition(" ")[0]).index(step) + 1

    def of(self, who: str) -> list[str]:
        """The steps of one."""
        return [step for step in self.steps if step.startswith(f"{who} ")]

    def lines(self) -> list[str]:
        """What it said: an error's line, where and hint."""
        return self.said.splitlines()

    def leaks(self, *own: str) -> list[str]:
        """What a fault left on the host: nothing, if all is well. own: parts of paths that the fault changed."""
        lines = [f"mounts of the host: {line}" for line in set(self.before.table) ^ set(self.after.table)]
        paths = changed(self.before.host, self.after.host)
        lines += [path for path in paths if not any(word in path for word in own)]
        return lines + ([f"{self.left} processes are left"] if self.left else [])

    def remains(self) -> list[str]:
        """What a start that failed left in the container: nothing, if it could take it back."""
        lines = changed(self.before.tree, self.after.tree)
        lines += sorted(set(self.before.mounts) ^ set(self.after.mounts))
        return lines + sorted(set(self.before.rules) ^ set(self.after.rules))


@dataclass(frozen=True)
class Place:
    """Where it happens. room: a folder that each process covers by a tmpfs of its own; at: the program of at.c."""

    room: str
    at: str
    bundle: str
    hook: tuple[str, ...]

    @property
    def rootfs(self) -> str:
        """The container's tree."""
        return f"{self.room}/rootfs"

    @property
    def report(self) -> str:
        """What at.c writes."""
        return f"{self.room}/report"

    def each(self, work: Callable[[One], Other], jobs: Sequence[One]) -> list[Other]:
        """The work's results for these jobs, done by processes that have entered the room."""
        with get_context("fork").Pool(min(TOGETHER, len(jobs)), self._enter) as pool:
            results = pool.map(work, jobs, chunksize=1)
            pool.close()
            pool.join()  # each ends by itself, and takes its container and cgroup away
        return results

    def _enter(self) -> None:
        kernel.private_mounts()
        kernel.mount("tmpfs", self.room, "tmpfs")
        os.makedirs(KEPT_BY_US, exist_ok=True)
        kernel.mount("tmpfs", KEPT_BY_US, "tmpfs", data="mode=700")
        self.start()  # whatever is kept from a first start is kept now

    def tree(self) -> None:
        """A new tree for the container, in a room that was entered."""
        shutil.rmtree(self.rootfs, ignore_errors=True)
        make_rootfs(self.rootfs)

    def driver(self, **fields: Any) -> FakeDriver:
        """A new small driver, where the configuration has it. fields: of `build`."""
        fields = {"gpus": GPUS, "without": WITHOUT, **fields}
        shutil.rmtree(f"{self.room}/driver", ignore_errors=True)
        return build(f"{self.room}/driver", **fields)

    def start(self, fault: Fault = NONE) -> Trial:
        """A start with this fault of a new container on a new driver."""
        self.driver()
        self.tree()
        with Init(self.rootfs, group=GROUP) as init:
            return self.attempt(init, fault)

    def disturbed(self, moment: tuple[str, int], script: str) -> Trial:
        """A start at whose step (who, number) a shell runs this script.

        In it $ROOM, $DRIVER, $LIBDIR (the driver's, below $DRIVER), $PID and $GROUP (the container's) are known.
        """
        driver = self.driver()
        self.tree()
        with Init(self.rootfs, group=GROUP) as init:
            known = {"ROOM": self.room, "DRIVER": driver.root, "LIBDIR": driver.libdir, "PID": init.pid}
            lines = (f"{name}='{value}'\n" for name, value in {**known, "GROUP": init.group_path}.items())
            put(self.room, {"action": f"#!/bin/sh -e\n{''.join(lines)}{script}\n"}, 0o755)
            return self.attempt(init, Fault(*moment, f"{self.room}/action"))

    def attempt(self, init: Init, fault: Fault = NONE) -> Trial:
        """The hook on this container, with this fault."""
        words = (self.at, self.report, fault.who, str(fault.step), fault.action, *self.hook)
        before = self.world(init)
        done = run_hook(words, init.state(self.bundle))
        after = self.world(init)
        with open(self.report, encoding="ascii") as file:
            lines = file.read().splitlines()
        left = sum(int(line.split()[1]) for line in lines if line.startswith("left "))
        assert not [line for line in lines if line.startswith("action")], lines
        steps = tuple(line for line in lines if line.split()[0] in ("hook", "child", "late"))
        return Trial(done.status, done.stderr, steps, left, before, after)

    def world(self, init: Init) -> World:
        """The state now. The container may be gone."""
        rules = tuple(init.rules) if os.path.exists(init.group_path) else ()
        mounts = [line.split(" ")[3:6] for line in init.mounts] if os.path.exists(f"/proc/{init.pid}/ns/mnt") else []
        host = record(f"{self.room}/driver", "/dev", skip=("/dev/pts", "/dev/shm"))
        tree = record(self.rootfs, times=False)
        return World(tuple(sorted(map(" ".join, mounts))), rules, tree, table(self.room), host)


def table(room: str) -> tuple[str, ...]:
    """The mounts of this namespace that a hook could have made; others come and go."""
    lines = mount_table().decode(errors="replace").splitlines()
    return tuple(line for line in lines if any(word in line for word in (room, "nvidia", "ld.so.cache")))
