"""As much as there may be, and one more; and a driver that does not answer."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fixtures.driver.model import Behaviour
from gpuhook.kernel.child import raise_limit_of_files, run_in_child
from tests.faults.trial import GROUP, NONE, Fault, Place, Trial
from tests.rig.init import Init
from tests.runtime.node import Node

pytestmark = pytest.mark.engine

IMPATIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "impatient.py")
NEVER = Behaviour(delay_ms=60_000)


def asking(place: Place, node: Node, *env: str) -> Place:
    """The place, for a container with these variables."""
    return replace(place, bundle=node.bundle(place.rootfs, *env))


def start(place: Place, driver: dict[str, Any], fault: Fault = NONE) -> Trial:
    """A start on this driver."""
    place.driver(**driver)
    place.tree()
    with Init(place.rootfs, group=GROUP) as init:
        return place.attempt(init, fault)


def one(place: Place, fault: Fault = NONE, **driver: Any) -> Trial:
    """A start on this driver, in the room."""
    (trial,) = place.each(partial(start, place, driver), [fault])
    return trial


def refused(trial: Trial, line: str) -> None:
    """One line has the cause, and nothing stays."""
    assert trial.lines()[:1] == [line], trial.said
    assert [each for each in trial.lines()[1:] if not each.startswith(("  in ", "  hint: "))] == []
    assert (trial.status, trial.leaks(), trial.remains()) == (1, [], [])


def test_64_gpus(place: Place, node: Node) -> None:
    """Each has its node, and its device rule where rules are."""
    trial = one(asking(place, node, "NVIDIA_VISIBLE_DEVICES=all"), gpus=64)
    assert (trial.status, trial.said, trial.leaks()) == (0, "", [])
    targets = {line.split(" ")[1] for line in trial.after.mounts}
    assert {f"{place.rootfs}/dev/nvidia{minor}" for minor in range(64)} <= targets
    if GROUP:
        assert {f"c 195:{minor} rw" for minor in range(64)} <= set(trial.after.rules)


def test_65_gpus(place: Place, node: Node) -> None:
    """The number is named, whichever of them is asked for."""
    trial = one(asking(place, node, "NVIDIA_VISIBLE_DEVICES=0"), gpus=65)
    refused(trial, "gpuhook: engine-not-covered: this node has 65 GPUs; no more than 64 are served")


def test_more_open_files_than_select_takes() -> None:
    """Each source of a container is an open file, and select(2) knows 1,024."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_limit_of_files()
    with ExitStack() as files:
        for _ in range(1100):
            files.callback(os.close, os.dup(2))
        assert run_in_child(lambda: b"done", 5, "it") == b"done"
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def requirements(count: int) -> list[str]:
    """So many variables, each with one that is met."""
    return [f"NVIDIA_REQUIRE_{number}=cuda>=11.0" for number in range(count)]


def test_32_requirements(place: Place, node: Node) -> None:
    """All are met."""
    trial = one(asking(place, node, "NVIDIA_VISIBLE_DEVICES=0", *requirements(32)))
    assert (trial.status, trial.said, trial.leaks()) == (0, "", [])


def test_33_requirements(place: Place, node: Node) -> None:
    """Refused before any is looked at, with the number and the first that is too much."""
    trial = one(asking(place, node, "NVIDIA_VISIBLE_DEVICES=0", *requirements(33)))
    refused(trial, "gpuhook: bad-requirement: 33 requirements are stated, more than 32")
    assert "NVIDIA_REQUIRE_" in trial.said


LIBRARIES = {"libcuda": ("libcuda.so.1", "cuda>=11.0"), "nvml": ("libnvidia-ml.so.1", "arch>=7.0")}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_that_does_not_answer(place: Place, node: Node, library: str) -> None:
    """Its child is killed at the deadline, and the library is named."""
    name, wants = LIBRARIES[library]
    asked = asking(place, node, "NVIDIA_VISIBLE_DEVICES=0", f"NVIDIA_REQUIRE_X={wants}")
    trial = one(in_haste(asked), NONE, **{library: NEVER})
    refused(trial, f"gpuhook: gpu-lost: the driver's {name} cannot be asked: it did not answer within 0.5 seconds")


def test_a_library_that_is_stuck_in_the_kernel(place: Place, node: Node) -> None:
    """As with a lost GPU, its child does not even die when it is killed: the hook does not wait for that."""
    asked = in_haste(asking(place, node, "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_X=cuda>=11.0"))
    trial = one(asked, Fault("child", 1, "stuck"))
    refused(
        trial, "gpuhook: gpu-lost: the driver's libcuda.so.1 cannot be asked: it did not answer within 0.5 seconds"
    )


def test_a_worker_that_is_stuck_in_the_kernel(place: Place) -> None:
    """As in a file system that does not answer: told after the deadline, and the device rules are taken back.

    What it has done in the container's own tree and namespace it cannot take back.
    """
    trial = one(in_haste(place), Fault("child", 40, "stuck"))
    assert (trial.status, trial.leaks(), trial.before.rules) == (1, [], trial.after.rules)
    assert trial.said == "gpuhook: timed-out: configuring the container did not end within 0.5 s\n"


def in_haste(place: Place) -> Place:
    """The place, with a hook of short deadlines."""
    return replace(place, hook=(sys.executable, IMPATIENT, *place.hook[1:]))
