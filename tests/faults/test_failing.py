"""A call that the kernel refuses at a step: one line says which, why and where, and everything is taken back."""

from __future__ import annotations

from errno import EAGAIN, EIO

import pytest

from tests.faults.trial import NONE, Fault, Place, Trial

pytestmark = pytest.mark.engine

# To become somebody is judged by what comes of it, not by what the call says.
JUDGED_LATER = ("child setfsgid", "child setfsuid")


def refused(trial: Trial, *says: str) -> bool:
    """Whether one line has the cause, perhaps with where and hint, and nothing stays."""
    line, *rest = trial.lines() or [""]
    told = line.startswith("gpuhook: engine-failed: ") and all(word in line for word in says)
    form = [each for each in rest if not each.startswith(("  in ", "  hint: "))] == []
    return trial.status == 1 and told and form and trial.leaks() == [] and trial.remains() == []


def test_each_step_of_the_worker_fails_once(place: Place) -> None:
    """The disk is broken: all the same which call meets it first."""
    (usual,) = place.each(place.start, [NONE])
    steps = usual.of("child")[:-2]  # but for its answer and its end
    wanted = [number for number, step in enumerate(steps, 1) if step not in JUDGED_LATER][::2]
    trials = place.each(place.start, [Fault("child", number, str(EIO)) for number in wanted])
    whose = [(steps[number - 1], trial.said) for number, trial in zip(wanted, trials, strict=True)]
    good = [refused(trial, "Input/output error") for trial in trials]
    assert [each for each, was_good in zip(whose, good, strict=True) if not was_good] == []


@pytest.mark.parametrize("step", ["fsopen", "fsmount", "write", "fchmod"])
def test_a_filesystem_of_ours_cannot_be_made(place: Place, step: str) -> None:
    """The folder that it was for is named."""
    (usual,) = place.each(place.start, [NONE])
    (trial,) = place.each(place.start, [Fault("child", usual.first(f"child {step}"), str(EIO))])
    assert refused(trial, "/etc/nvidia/nvidia-application-profiles-rc.d", "Input/output error"), trial.said


def test_no_further_process(place: Place) -> None:
    """The limit of processes is reached: not said to be a fault of gpuhook, and the device rules go again."""
    (usual,) = place.each(place.start, [NONE])
    (trial,) = place.each(place.start, [Fault("hook", usual.first("hook clone"), str(EAGAIN))])
    assert refused(trial, "Resource temporarily unavailable"), trial.said
