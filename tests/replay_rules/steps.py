"""Deviation rules of the two programs around the hook: a predicate on the input, a change of the outcome, a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.replay_rules.outcome import Outcome

Input = TypeVar("Input")


@dataclass(frozen=True)
class Step(Generic[Input]):
    """A named deviation. source: the page that demands it; amend: the outcome, given what it would be without."""

    name: str
    source: str
    applies: Callable[[Input], bool]
    amend: Callable[[Input, Outcome], Outcome]


def walk(steps: Sequence[Step[Input]], given: Input, outcome: Outcome) -> tuple[Outcome, list[str]]:
    """What gpuhook must do with an input of which `outcome` was recorded, and the names of the rules that applied."""
    fired = []
    for step in steps:
        if step.applies(given):
            fired.append(step.name)
            outcome = step.amend(given, outcome)
    return outcome, fired
