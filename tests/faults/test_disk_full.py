"""A container's disk that is full: what could not be made is named, and what was made is taken back."""

from __future__ import annotations

import os
from functools import partial

import pytest

from gpuhook.loader.merge import merge
from tests.faults.trial import GROUP, KEPT_BY_US, Place, Trial
from tests.rig import kernel
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs, put

pytestmark = pytest.mark.engine

FULL = "No space left on device"
PAGE = os.sysconf("SC_PAGESIZE")
CACHE = merge(None, [(f"lib{number}.so.1", f"/usr/lib64/lib{number}.so.1", 64) for number in range(400)])


def start(place: Place, limit: tuple[str, int]) -> Trial:
    """A start on a tmpfs where so many more ("nr_inodes" or "nr_blocks", number) are free than the tree takes."""
    place.driver()
    os.makedirs(place.rootfs, exist_ok=True)
    kernel.mount("tmpfs", place.rootfs, "tmpfs")
    try:
        put(make_rootfs(place.rootfs), {"etc/ld.so.cache": CACHE})
        used = os.statvfs(place.rootfs)
        name, free = limit
        taken = used.f_files - used.f_ffree if name == "nr_inodes" else used.f_blocks - used.f_bfree
        kernel.mount("", place.rootfs, flags=kernel.MS_REMOUNT, data=f"{name}={taken + free}")
        with Init(place.rootfs, group=GROUP, dev=False) as init:  # so that /dev is on the full disk too
            return place.attempt(init)
    finally:
        kernel.unmount(place.rootfs)


def refused(trial: Trial) -> str:
    """What could not be made, as the one line has it; nothing of the start stays."""
    assert (trial.status, trial.leaks(), trial.remains()) == (1, [], [])
    begin, end = "gpuhook: engine-failed: cannot make ", f" in the container: {FULL}"
    line, *rest = trial.lines()
    assert line.startswith(begin), trial.said
    assert line.endswith(end), trial.said
    assert [each for each in rest if not each.startswith(("  in ", "  hint: "))] == []
    what, _, path = line.removeprefix(begin).removesuffix(end).partition(" at ")
    assert path in trial.said
    return what


def good_from(trials: list[Trial]) -> int:
    """How much must be free, at least, for a start that succeeds."""
    good = next(free for free, trial in enumerate(trials) if trial.status == 0)
    assert {(trial.status, trial.said) for trial in trials[good:]} == {(0, "")}
    return good


def test_no_room_for_another_name(place: Place) -> None:
    """From no free inode on, up to enough: each step that makes something fails once."""
    trials = place.each(partial(start, place), [("nr_inodes", free) for free in range(45)])
    good = good_from(trials)
    assert good > 20
    whats = {refused(trial) for trial in trials[:good]}
    assert whats == {"a folder", "a mount point", "a link", "the loader's cache"}


def test_no_room_for_the_loaders_cache(place: Place) -> None:
    """The new cache is written in part, and taken away; the old one stays."""
    trials = place.each(partial(start, place), [("nr_blocks", free) for free in range(len(CACHE) // PAGE + 4)])
    good = good_from(trials)
    assert good > len(CACHE) // PAGE
    assert {refused(trial) for trial in trials[:good]} == {"the loader's cache"}


def start_with_full_run(place: Place, free: int) -> Trial:
    """A first start on a host whose /run has so few free inodes."""
    kernel.mount("tmpfs", KEPT_BY_US, "tmpfs", data=f"mode=700,nr_inodes={1 + free}")
    try:
        return place.start()
    finally:
        kernel.unmount(KEPT_BY_US)


@pytest.mark.parametrize("free", [0, 1])
def test_the_hosts_run_is_full(place: Place, free: int) -> None:
    """What is found out is not kept for the next start, and that is all."""
    (trial,) = place.each(partial(start_with_full_run, place), [free])
    assert (trial.status, trial.said, trial.leaks()) == (0, "", [])
