"""The recorded cases of the reference's shim: done as they were, or as a rule says."""

from __future__ import annotations

import sys

import pytest

from tests.replay_rules.case import Case, load
from tests.replay_rules.catalogue import expected
from tests.replay_rules.nodes import host_devices
from tests.replay_rules.rules_config import RULES as CONFIG_RULES
from tests.replay_rules.rules_runtime import RULES
from tests.replay_rules.shim import Launcher, look_at_shim
from tests.replay_rules.steps import walk
from tests.test_replay import VECTORS, replay

FILE = VECTORS / "runtime.jsonl"
CASES = load(FILE)
SHARED = {rule.name for rule in CONFIG_RULES}  # with the hook, whose own cases test them


def test_every_recorded_case_is_explained() -> None:
    """All of them, in forked processes."""
    passed, failed, text = replay(
        "--fork", "--preload", "gpuhook.settings.decide", str(FILE), "gpuhook.runtime.entry:main"
    )
    assert 0 == failed, text
    assert 140 == passed


def test_a_process_of_its_own_does_the_same() -> None:
    """A sample, started as engines start it."""
    command = [sys.executable, "-c", "import sys; from gpuhook.runtime.entry import main; sys.exit(main())"]
    passed, failed, text = replay("--every", "7", str(FILE), *command)
    assert 0 == failed, text
    assert 20 == passed


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name not in SHARED], ids=lambda rule: rule.name)
def test_a_rule_has_a_case(rule: object) -> None:
    """No rule is there for nothing; test_nodes.py has the one about devices, which needs a driver."""
    name = getattr(rule, "name", "")
    if name.startswith("device nodes"):
        return
    assert any(name in expected(case)[1] for case in CASES)


def test_rules_look_at_nothing_but_the_input() -> None:
    """Another name, other tags and another expectation change nothing."""
    other = {"name": "x", "tags": [], "expect": {"exit": 5, "exec": False}}
    for case in CASES:
        assert expected(case)[1] == expected(Case({**case.members, **other}))[1]


def test_rules_are_exceptions() -> None:
    """What every create differs in is the hook's environment; most cases need nothing else."""
    fired = [set(expected(case)[1]) - {"the hook has an environment of its own"} for case in CASES]
    assert sum(not names for names in fired) > len(CASES) / 2
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_prediction_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own launcher is any file of its name, and no other; a node of this machine would be one of its driver."""
    assert Launcher("x") == "/opt/gpuhook"
    assert Launcher("x") != "/opt/gpuhook-runtime"
    case = next(case for case in CASES if case.name == "args-bundle")
    assert all(path.startswith("/dev/nvidia") for path in host_devices(look_at_shim(case)))
    assert walk((), look_at_shim(case), case.recorded) == (case.recorded, [])
