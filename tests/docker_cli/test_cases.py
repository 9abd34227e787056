"""The case of fixtures/cases about the wrapper, and all that was recorded of the original."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.docker_cli.stand import Stand, python
from tests.engine.test_cases import FOLDER, patched
from tests.replay_rules.case import Case, load
from tests.replay_rules.catalogue import expected
from tests.replay_rules.rules_docker import RULES
from tests.test_replay import VECTORS, replay

CASE = json.loads((FOLDER / "wrapper-nv-gpu.json").read_text())
FILE = VECTORS / "docker-wrapper.jsonl"
RECORDED = load(FILE)


@pytest.mark.parametrize("each", CASE["runs"], ids=lambda each: str(each["name"]))
def test_case(stand: Stand, each: dict[str, Any]) -> None:
    """The first of the right outcomes, which is the best."""
    given = patched(CASE["given"], each.get("change", {}))
    wanted = each["expect"][0] if isinstance(each["expect"], list) else each["expect"]
    result = stand.run(*given["argv"], env=given["environ"])
    assert (result.status, stand.argv) == (0, wanted["docker_argv"])
    assert all(text in result.stderr for text in wanted.get("says", []))
    slugs = [line.split(": ")[2] for line in result.stderr.splitlines()]
    assert set(wanted.get("warns", slugs)) == set(slugs)
    assert result.stderr == "" or wanted.keys() & {"says", "warns"}


def test_every_recorded_case_is_explained() -> None:
    """It does what the original did, or what a rule says."""
    passed, failed, text = replay("--fork", str(FILE), "gpuhook.docker_cli:main")
    assert 0 == failed, text
    assert 113 == passed


def test_a_process_of_its_own_does_the_same() -> None:
    """A sample, started as a shell starts it."""
    passed, failed, text = replay("--every", "6", str(FILE), *python())
    assert 0 == failed, text
    assert 19 == passed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_a_case(rule: Any) -> None:
    """No rule is there for nothing."""
    assert any(rule.name in expected(case)[1] for case in RECORDED)


def test_rules_look_at_nothing_but_the_input() -> None:
    """Another name, other tags and another expectation change nothing."""
    other = {"name": "x", "tags": [], "expect": {"exit": 5, "exec": False}}
    for case in RECORDED:
        assert expected(case)[1] == expected(Case({**case.members, **other}))[1]
