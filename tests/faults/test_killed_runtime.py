"""SIGKILL at steps of a start under real runtimes: they report it, the entry point never runs, nothing stays."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from time import monotonic, sleep

import pytest

from gpuhook.kernel import bpf
from tests.faults.trial import NONE, Fault
from tests.rig.container import Container, Hook
from tests.runtime.node import PAIRS, Node

pytestmark = pytest.mark.engine

NEXT_ID = (11, "BPF_PROG_GET_NEXT_ID")  # bpf(2)
OURS = b"gpuhook\0"  # what kernel/bpf.py calls its programs
NAME_AT = 64  # in struct bpf_prog_info


def programs() -> set[int]:
    """The ids of the device programs of ours that the kernel holds."""
    found: set[int] = set()
    number = 0
    while True:
        _, answer, error = bpf._bpf(NEXT_ID, "=III", number, 0, 0)
        if error:
            return found
        number = struct.unpack_from("=I", answer, 4)[0]
        try:
            program = bpf.open_program(number)
        except FileNotFoundError:  # it is gone by now
            continue
        if bpf._info(program, b"")[NAME_AT:].startswith(OURS):
            found.add(number)
        os.close(program)


def gone_soon(before: set[int]) -> bool:
    """Whether no program of ours is new, once the kernel has cleared up what a removed cgroup held."""
    give_up = monotonic() + 10
    while programs() - before and monotonic() < give_up:
        sleep(0.05)
    return not programs() - before


def steps_of(report: str) -> list[str]:
    return Path(report).read_text().splitlines()


def start(node: Node, at: str, pair: tuple[str, str], fault: Fault = NONE) -> list[str]:
    """The steps of a container's start with this fault; what must hold of one that was killed holds."""
    runtime, cgroup = pair
    host, mine = node.host(), programs()
    with Container(runtime=runtime, cgroup=cgroup, env=["NVIDIA_VISIBLE_DEVICES=0"]) as container:
        report = f"{container.folder}/report"
        words = (report, fault.who, str(fault.step), fault.action)
        config = node.config(cli={"load-kmods": False})
        container.hooks = {"prestart": [Hook(at, (*words, node.launcher, "--config", config, "prestart"))]}
        container.write_spec()
        result = container.run()
        steps = steps_of(report)
    assert (result.status == 0, bool(result.stdout)) == (fault == NONE, fault == NONE), result
    assert fault == NONE or "hook" in result.stderr, result  # the runtime says what failed
    assert (result.mounts_leaked, host.differences(node.host()), node.processes()) == (False, [], [])
    assert not [line for line in steps if line.startswith("left")]
    assert gone_soon(mine)
    return steps


def numbers(steps: list[str], step: str) -> list[int]:
    """The places of such a step ("hook bpf") among those of its process."""
    who = step.partition(" ")[0]
    mine = [each for each in steps if each.startswith(f"{who} ")]
    return [number for number, each in enumerate(mine, 1) if each == step]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_runtime_reports_it(node: Node, at: str, pair: tuple[str, str]) -> None:
    """The hook or its worker is killed before the fork, in the middle of the mounts, and when all is done."""
    start(node, at, pair)
    steps = start(node, at, pair)
    mounts = numbers(steps, "child move_mount")
    start(node, at, pair, Fault("hook", numbers(steps, "hook clone")[0], "kill"))
    start(node, at, pair, Fault("hook", numbers(steps, "hook exit_group")[0], "kill"))
    start(node, at, pair, Fault("child", mounts[len(mounts) // 2], "kill"))
    start(node, at, pair, Fault("child", mounts[-1], "orphan"))


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair[1] == "v2"], ids=str)
def test_killed_at_every_step_of_a_device_program(node: Node, at: str, pair: tuple[str, str]) -> None:
    """No program of ours stays in the kernel when the container's cgroup is gone."""
    start(node, at, pair)
    calls = numbers(start(node, at, pair), "hook bpf")
    assert len(calls) > 4
    for call in calls:
        start(node, at, pair, Fault("hook", call, "kill"))
