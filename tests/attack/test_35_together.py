"""Fifty containers of a real runtime that start together over one image folder and one log (threats.md 3.5, AC-65)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack import markers
from tests.attack.rig import PROBE, Lab
from tests.rig.container import Container
from tests.rig.probe import probe_program
from tests.rig.process import Result
from tests.rig.rootfs import make_rootfs, put
from tests.runtime.node import COMMON, GPUS

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

TOGETHER, AT_ONCE = 50, 10
LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14"


def test_ac_65_fifty_containers_of_a_runtime(lab: Lab) -> None:
    """SAFE: each has the GPU that it asked for and no other, the shared tree is whole, no line of the log is lost."""
    rootfs = make_rootfs(f"{lab.folder}/image")
    put(rootfs, {"etc/debian_version": "12.5\n", PROBE: probe_program(static=True)}, 0o755)
    markers.plant(rootfs, lab.marks)
    begun = os.path.getsize(lab.log) if os.path.exists(lab.log) else 0
    with lab.guard(), ExitStack() as stack:
        containers = []
        for number in range(TOGETHER):
            hook, _ = lab.hook_of()
            gpu = f"NVIDIA_VISIBLE_DEVICES={number % len(GPUS)}"
            args = (PROBE, "devices", f"stat:{LIBCUDA}", *(f"rule:195:{minor}" for minor in range(3)))
            container = stack.enter_context(Container(args=args, env=(gpu,), hooks={"prestart": [hook]}))
            container.edit = lambda spec: spec["root"].update(path=rootfs)
            container.write_spec()
            containers.append(container)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(lambda each: each.run(timeout=120), containers))
    for number, result in enumerate(results):
        check(result, int(str(GPUS[number % len(GPUS)]["minor"])))
    lines = Path(lab.log).read_bytes()[begun:].decode().splitlines()
    assert len([line for line in lines if "] setting pid to " in line]) == TOGETHER
    assert [name for name in os.listdir(f"{rootfs}/etc") if "gpuhook" in name or name.startswith(".")] == []
    assert os.path.getsize(f"{rootfs}{LIBCUDA}") == 0


def check(result: Result, minor: int) -> None:
    """What one container saw: the node and the rule of one GPU, and the driver's library."""
    assert result.status == 0, result.stderr
    assert not result.mounts_leaked
    assert sorted(result.seen.devices) == sorted((*COMMON, f"/dev/nvidia{minor}"))
    assert [number for (_, number), allowed in result.seen.rules.items() if allowed] == [minor]
    assert result.seen.stat(LIBCUDA)["kind"] == "file"
