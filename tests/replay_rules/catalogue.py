"""All deviation rules: the hook's, the runtime shim's and the docker wrapper's."""

from __future__ import annotations

from typing import Any

from tests.replay_rules import (
    rules_bundle,
    rules_config,
    rules_docker,
    rules_program,
    rules_request,
    rules_runtime,
)
from tests.replay_rules.case import Case
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.rule import Rule, predict
from tests.replay_rules.shim import look_at_shim
from tests.replay_rules.steps import Step, walk
from tests.replay_rules.view import look_at

RULES: tuple[Rule, ...] = (*rules_program.RULES, *rules_bundle.RULES, *rules_config.RULES, *rules_request.RULES)


def rules_of(kind: str) -> tuple[Rule | Step[Any], ...]:
    """The rules for cases of a kind."""
    others: dict[str, tuple[Step[Any], ...]] = {"runtime": rules_runtime.RULES, "docker": rules_docker.RULES}
    return others.get(kind, RULES)


def expected(case: Case) -> tuple[Outcome, list[str]]:
    """What is expected of a case, and the names of the rules that say so."""
    if case.kind == "runtime":
        return walk(rules_runtime.RULES, look_at_shim(case), case.recorded)
    if case.kind == "docker":
        return walk(rules_docker.RULES, rules_docker.look_at_docker(case), case.recorded)
    return predict(RULES, look_at(case), case.recorded)
