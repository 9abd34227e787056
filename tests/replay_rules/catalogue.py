"""All deviation rules for the hook."""

from __future__ import annotations

from tests.replay_rules import rules_bundle, rules_config, rules_program, rules_request
from tests.replay_rules.case import Case
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.rule import Rule, predict
from tests.replay_rules.view import look_at

RULES: tuple[Rule, ...] = (*rules_program.RULES, *rules_bundle.RULES, *rules_config.RULES, *rules_request.RULES)


def expected(case: Case) -> tuple[Outcome, list[str]]:
    """What is expected of a case, and the names of the rules that say so."""
    if case.kind != "hook":
        return case.recorded, []
    return predict(RULES, look_at(case), case.recorded)
