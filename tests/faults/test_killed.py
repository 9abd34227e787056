"""SIGKILL at every step of a start: nothing stays on the host, no process, and the next start finds its way."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.attack.oracle import Record, changed
from tests.faults.trial import GROUP, KEPT_BY_US, Fault, Place, Trial
from tests.rig.init import Init

pytestmark = pytest.mark.engine

KILLED = 137  # a shell's status for SIGKILL
DIED = "configuring the container ended without an answer: it crashed or was killed"


def start(place: Place, fault: Fault) -> tuple[Trial, Trial]:
    """A start with this fault and the next one in the same container."""
    place.driver()
    place.tree()
    with Init(place.rootfs, group=GROUP) as init:
        return place.attempt(init, fault), place.attempt(init)


@pytest.fixture(scope="module")
def usual(place: Place) -> Trial:
    """A start without any fault."""
    ((first, second),) = place.each(partial(start, place), [Fault()])
    assert (first.status, first.said, second.status, second.said, first.leaks()) == (0, "", 0, "", [])
    return first


def faults(usual: Trial, who: str, action: str, every: int = 1) -> list[Fault]:
    """One at each step."""
    return [Fault(who, step, action) for step in range(1, len(usual.of(who)) + 1, every)]


def wrong(usual: Trial, second: Trial) -> list[str]:
    """What the next start has not done as the usual one does; a file that was not finished may lie about."""
    names = changed(shape(usual.after.tree), shape(second.after.tree))
    lines = [name for name in names if "/.ld.so.cache.gpuhook-" not in name]
    lines += sorted(set(usual.after.mounts) ^ set(second.after.mounts))
    lines += sorted(set(usual.after.rules) ^ set(second.after.rules))
    return [*lines, *second.lines()]


def shape(tree: Record) -> Record:
    """A tree without times."""
    return {path: (*mark[:4], *mark[5:]) for path, mark in tree.items()}


def test_the_hook_is_killed_at_every_step(place: Place, usual: Trial) -> None:
    """The runtime sees a failure; the host is as it was, and no process goes on."""
    wanted = faults(usual, "hook", "kill")
    assert len(wanted) > 20
    for fault, (first, second) in zip(wanted, place.each(partial(start, place), wanted), strict=True):
        assert (first.status, first.leaks(), late(first), fault) == (KILLED, [], [], fault)
        assert wrong(usual, second) == [], fault


def late(trial: Trial) -> list[str]:
    """What a child changed after its hook was gone; to become somebody, and to end, changes nothing."""
    harmless = ("late prctl", "late setfsgid", "late setfsuid", "late exit_group")
    return [step for step in trial.of("late") if step not in harmless]


def test_the_worker_is_killed_at_every_step(place: Place, usual: Trial) -> None:
    """The hook says so in a line, and takes the device rules back; the tree and its mounts go with the container."""
    wanted = faults(usual, "child", "kill")
    assert len(wanted) > 50
    for fault, (first, second) in zip(wanted, place.each(partial(start, place), wanted), strict=True):
        assert (first.leaks(), fault) == ([], fault)
        if usual.of("child")[fault.step - 1] == "child exit_group":  # it has answered
            assert (first.status, first.said) == (0, "")
        else:
            assert (first.status, first.lines()[:1]) == (1, [f"gpuhook: engine-failed: {DIED}"])
            assert first.before.rules == first.after.rules
        assert wrong(usual, second) == [], fault


def test_the_hook_is_killed_while_its_worker_is_at_a_step(place: Place, usual: Trial) -> None:
    """The worker goes with it before it does anything more."""
    wanted = faults(usual, "child", "orphan", every=5)
    for fault, (first, second) in zip(wanted, place.each(partial(start, place), wanted), strict=True):
        assert (first.status, first.leaks(), late(first), fault) == (KILLED, [], [], fault)
        assert wrong(usual, second) == [], fault


def first_start(place: Place, fault: Fault) -> tuple[Trial, list[str]]:
    """A start on a node that has kept nothing yet, and what lies about after the next such one, a while later."""
    for name in os.listdir(KEPT_BY_US):
        os.unlink(f"{KEPT_BY_US}/{name}")
    trial = place.start(fault)
    for name in os.listdir(KEPT_BY_US):
        os.utime(f"{KEPT_BY_US}/{name}", (0, 0))
        if name.endswith(".json"):
            os.unlink(f"{KEPT_BY_US}/{name}")
    place.start()
    return trial, [name for name in os.listdir(KEPT_BY_US) if not name.endswith(".json")]


def test_the_hook_is_killed_while_it_keeps_what_it_found(place: Place) -> None:
    """An unfinished file of /run/gpuhook goes when the next one is kept."""
    ((whole, _),) = place.each(partial(first_start, place), [Fault()])
    steps = range(1, whole.first("hook prctl") + 1)
    assert len(steps) > 4
    trials = place.each(partial(first_start, place), [Fault("hook", step, "kill") for step in steps])
    assert [(trial.status, trial.leaks(), left) for trial, left in trials] == [(KILLED, [], [])] * len(steps)
