"""A pid number that comes back for another container, in a pid namespace of its own where numbers can be chosen.

As a program (python -m tests.attack.reuse): a JSON job on stdin, on stdout what came of it, by name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuhook.backend.container import Container
from gpuhook.backend.engine import _allow, carry_out, prepare
from gpuhook.errors import GpuhookError
from gpuhook.request.model import DeviceChoice, Request
from gpuhook.settings.values import Settings
from tests.attack.rig import Lab
from tests.engine.perform import PROJECT
from tests.rig.init import Init, run_hook
from tests.rig.process import run
from tests.rig.rootfs import make_rootfs

NEXT = "/proc/sys/kernel/ns_last_pid"
BEFORE = 3  # processes that an Init starts up to and with its first one
TRIES = 200


def outcomes(lab: Lab) -> dict[str, str]:
    """What the hook said to a pid that had become another container's, by the moment at which it did."""
    job = {
        "folder": lab.folder,
        "bundle": lab.bundle(make_rootfs(f"{lab.folder}/one")),
        "rootfs": [f"{lab.folder}/one", make_rootfs(f"{lab.folder}/other")],
        "launcher": lab.node.launcher,
        "config": lab.config(),
        "driver": lab.node.driver.root,
    }
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "tests.attack.reuse"]
    with lab.guard():
        done = run(argv, stdin=json.dumps(job).encode(), cwd=PROJECT)
    if done.status:
        raise RuntimeError(done.stderr)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@contextmanager
def successor(first: Init, rootfs: str) -> Iterator[Init]:
    """Ends the first and gives another container's process its number."""
    pid = first.pid
    first.__exit__()
    os.waitpid(pid, 0)  # we are the first process here, so its orphan has become our child
    for _ in range(TRIES):
        with open(NEXT, "w", encoding="ascii") as file:
            file.write(str(pid - BEFORE))
        with Init(rootfs, group=True) as other:
            if other.pid == pid:
                yield other
                return
    raise RuntimeError(f"{pid} did not come back")


def unchanged(other: Init, before: tuple[object, object]) -> str:
    """What is not as it was with the other container, "" for nothing."""
    return "" if (other.mounts, other.rules) == before else f"changed: {other.mounts} {other.rules}"


def stale_state(job: dict[str, Any]) -> str:
    """The number is another's when the hook starts."""
    with Init(job["rootfs"][0], group=True) as first:
        state = first.state(job["bundle"])
        with successor(first, job["rootfs"][1]) as other:
            before = other.mounts, other.rules
            done = run_hook([job["launcher"], "--config", job["config"], "prestart"], state)
            return unchanged(other, before) or done.stderr


def _prepared(job: dict[str, Any], pid: int) -> tuple[Any, Settings]:
    request = Request(
        container="c", pid=pid, rootfs=job["rootfs"][0], devices=DeviceChoice(names=("all",), sources=("x",)),
        capabilities=("utility",),
    )  # fmt: skip
    settings = Settings(cli_root=job["driver"])
    return prepare(request, settings), settings


def held_container(job: dict[str, Any]) -> str:
    """It becomes another's while the hook decides."""
    with Init(job["rootfs"][0], group=True) as first:
        prepared, settings = _prepared(job, first.pid)
        with successor(first, job["rootfs"][1]) as other:
            before = other.mounts, other.rules
            try:
                carry_out(prepared, settings)
            except GpuhookError as error:
                return unchanged(other, before) or error.render()
            return "it succeeded"


def device_rules(job: dict[str, Any]) -> str:
    """It becomes another's when the container is held already, just before the device rules are written."""
    with Init(job["rootfs"][0], group=True) as first:
        prepared, _ = _prepared(job, first.pid)
        container = Container(first.pid, job["rootfs"][0])
        with successor(first, job["rootfs"][1]) as other:
            before = other.mounts, other.rules
            try:
                _allow(prepared.plan, container)
            except GpuhookError as error:
                return unchanged(other, before) or error.render()
            return "it succeeded"


if __name__ == "__main__":
    the_job = json.load(sys.stdin)
    os.environ["GPUHOOK_DEBUG"] = "1"
    works = {"stale state": stale_state, "held container": held_container, "device rules": device_rules}
    json.dump({name: work(the_job) for name, work in works.items()}, sys.stdout)
