"""What was there when the hook looked is gone when it is needed: driver, container and cgroup, at every step."""

from __future__ import annotations

from functools import partial

import pytest

from tests.faults.trial import NONE, Place, Trial
from tests.rig.needs import need_cgroup

pytestmark = pytest.mark.engine

NODES = 'rm "$DRIVER"/dev/nvidia*'
PROCFS = 'rm -r "$DRIVER/proc/driver/nvidia"'
CHANGES = {
    "the nodes": (NODES, "device-node-perms", "nvidia"),
    "the module": (f"{NODES}; {PROCFS}", "device-node-perms", "nvidia"),
    "a library": ('rm "$DRIVER$LIBDIR"/libnvidia-ml.so.5*', "engine-failed", "libnvidia-ml.so.550.54.14"),
    "a library, a folder stands there": (
        'for file in "$DRIVER$LIBDIR"/libnvidia-ml.so.5*; do rm "$file"; mkdir "$file"; done',
        "engine-failed", "libnvidia-ml.so.550.54.14",
    ),
}  # fmt: skip
KILL = 'kill -9 "$PID"; while readlink "/proc/$PID/ns/mnt"; do :; done'


@pytest.fixture(scope="module")
def usual(place: Place) -> Trial:
    (trial,) = place.each(place.start, [NONE])
    return trial


def from_look_to_fork(usual: Trial, every: int) -> list[tuple[str, int]]:
    """The steps from the first source that is taken to the fork of the worker."""
    return [("hook", step) for step in range(usual.first("hook open_tree"), usual.first("hook clone") + 1, every)]


def disturbed(place: Place, script: str, moment: tuple[str, int]) -> Trial:
    return place.disturbed(moment, script)


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_between_look_and_mount(place: Place, usual: Trial, what: str) -> None:
    """Refused in a line that names it, whether or not it was taken already; nothing stays."""
    script, slug, name = CHANGES[what]
    for trial in place.each(partial(disturbed, place, script), from_look_to_fork(usual, 4)):
        line = trial.lines()[0]
        assert line.startswith((f"gpuhook: {slug}: ", "gpuhook: engine-failed: ")), trial.said
        assert name in line
        assert "hint: " in trial.said
        assert (trial.status, trial.leaks(f"{place.room}/driver"), trial.remains()) == (1, [], [])


@pytest.mark.parametrize("what", ["a daemon's socket", "the module's files"])
def test_what_a_container_can_do_without_goes(place: Place, usual: Trial, what: str) -> None:
    """A daemon that is just restarted, or files of procfs that were read already, cost nobody the start."""
    script = {"a daemon's socket": 'rm "$DRIVER/run/nvidia-persistenced/socket"', "the module's files": PROCFS}[what]
    for trial in place.each(partial(disturbed, place, script), from_look_to_fork(usual, 4)):
        assert (trial.status, trial.said, trial.leaks(f"{place.room}/driver")) == (0, "", [])
        assert "/dev/nvidia2" in "".join(trial.after.mounts)


def test_the_container_ends_before_it_is_entered(place: Place, usual: Trial) -> None:
    """Refused as soon as it is noticed, with no device rule left for whoever gets its number."""
    moments = [("hook", step) for step in range(1, usual.first("hook clone") + 1, 3)]
    for trial in place.each(partial(disturbed, place, KILL), [*moments, ("child", usual.first("child setns"))]):
        line, rest = trial.lines()[0], trial.said
        assert line.startswith("gpuhook: bad-container: "), trial.said
        assert "has ended" in rest or "does not exist" in rest
        assert (trial.status, trial.leaks()) == (1, [])
        assert (trial.before.rules, trial.before.tree) == (trial.after.rules, trial.after.tree)


def test_the_container_ends_while_it_is_changed(place: Place, usual: Trial) -> None:
    """Its namespace lives as long as the worker, which ends its work; the runtime knows of the death by itself."""
    moments = [("child", step) for step in range(usual.first("child mkdirat"), len(usual.of("child")), 9)]
    for trial in place.each(partial(disturbed, place, KILL), moments):
        assert (trial.status, trial.said, trial.leaks()) == (0, "", [])


def test_the_cgroup_goes(place: Place, usual: Trial) -> None:
    """Where rules are being written it is refused; before, the process is in another one; after, they are written."""
    need_cgroup("v1")
    script = 'for each in $(cat "$GROUP/tasks"); do echo $each > "$GROUP/../tasks"; done; rmdir "$GROUP"'
    write = usual.first("hook write")
    moments = [("hook", step) for step in (write - 1, write, write + 1, write + 2)]
    before, first, second, after = place.each(partial(disturbed, place, script), moments)
    assert [(trial.status, trial.said) for trial in (before, after)] == [(0, "")] * 2
    for trial in (first, second):
        assert trial.status == 1
        assert trial.lines()[0] == "gpuhook: rootless-cgroup: the device rules cannot be changed: No such device"
        assert trial.lines()[-1] == "  hint: start the container again"
        assert (trial.leaks(), trial.before.tree, trial.before.mounts) == ([], trial.after.tree, trial.after.mounts)
