"""What a deviation rule is, and how rules together predict the outcome of a case.

A rule is a predicate on the input, the outcome that it predicts, and the page that says so. There are five kinds, and
they work in this order:

Reading    gpuhook reads this input as the reference reads another one; the outcome is the reference's for that one.
Breaking   config.toml counts as broken: only a container that asks for a GPU, by the defaults, is refused.
Leaving    this is no GPU container, and left alone.
Amendment  the outcome is the recorded one but for a detail.
Refusal    gpuhook refuses the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.replay_rules import reference, wanted
from tests.replay_rules.config import DEFAULTS
from tests.replay_rules.outcome import LEFT_ALONE, REFUSED, Outcome
from tests.replay_rules.shapes import is_readable
from tests.replay_rules.view import View


@dataclass(frozen=True)
class Rule:
    """A named deviation. source: the pages that demand it; applies: whether it does for an input."""

    name: str
    source: str
    applies: Callable[[View], bool]

    def read(self, view: View) -> View:
        """The input that the reference would have to get in order to do what gpuhook does."""
        return view

    def predicted(self, view: View, outcome: Outcome) -> Outcome:
        """The outcome, given what it would be without this rule."""
        raise NotImplementedError


@dataclass(frozen=True)
class Reading(Rule):
    """The input counts as another one."""

    as_if: Callable[[View], View]

    def read(self, view: View) -> View:
        """The other input."""
        return self.as_if(view)

    def predicted(self, view: View, outcome: Outcome) -> Outcome:
        """What the reference does with the other input."""
        return reference.outcome(self.read(view))


@dataclass(frozen=True)
class Breaking(Rule):
    """The configuration counts as broken (decisions.md 3)."""

    def read(self, view: View) -> View:
        """The input without a configuration: whether a GPU is asked for is decided with the defaults."""
        return replace(view, config=DEFAULTS, config_data=b"")

    def predicted(self, view: View, outcome: Outcome) -> Outcome:
        """A container that asks for a GPU does not start; any other does, if its files can be read."""
        readable = is_readable(view)
        return LEFT_ALONE if readable and wanted.devices(self.read(view)) is None else REFUSED


@dataclass(frozen=True)
class Leaving(Rule):
    """The container is left alone."""

    def read(self, view: View) -> View:
        """The input without any request."""
        return replace(view, mounts=(), entries=())

    def predicted(self, view: View, outcome: Outcome) -> Outcome:
        """Success, and nothing handed over."""
        return LEFT_ALONE if is_readable(view) else REFUSED


@dataclass(frozen=True)
class Amendment(Rule):
    """The outcome differs in a detail."""

    amend: Callable[[View, Outcome], Outcome]

    def predicted(self, view: View, outcome: Outcome) -> Outcome:
        """The outcome with the detail changed."""
        return self.amend(view, outcome)


@dataclass(frozen=True)
class Refusal(Rule):
    """The input is refused."""

    def predicted(self, view: View, outcome: Outcome) -> Outcome:
        """A failure, and nothing handed over."""
        return REFUSED


ORDER = (Reading, Breaking, Leaving, Amendment, Refusal)


def predict(rules: Sequence[Rule], view: View, outcome: Outcome) -> tuple[Outcome, list[str]]:
    """What gpuhook must do with an input of which `outcome` was recorded, and the names of the rules that applied."""
    fired = []
    for rule in sorted(rules, key=lambda rule: ORDER.index(type(rule))):
        if rule.applies(view):
            fired.append(rule.name)
            outcome = rule.predicted(view, outcome)
            view = rule.read(view)
    return outcome, fired
