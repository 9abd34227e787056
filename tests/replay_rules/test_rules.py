from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.replay_rules import reference
from tests.replay_rules.case import Case, load
from tests.replay_rules.catalogue import RULES, expected
from tests.replay_rules.compare import differences
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.rule import predict
from tests.replay_rules.view import look_at

VECTORS = Path(__file__).parent.parent.parent / "fixtures" / "vectors"


@cache
def cases(name: str) -> tuple[Case, ...]:
    """The cases of one of the files."""
    return tuple(load(VECTORS / name))


@cache
def fired(name: str) -> tuple[frozenset[str], ...]:
    """The rules that apply to each case of a file."""
    return tuple(frozenset(expected(case)[1]) for case in cases(name))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_a_case(rule: object) -> None:
    """No rule is there for nothing."""
    name = getattr(rule, "name", "")

    assert any(name in names for names in (*fired("hook.jsonl"), *fired("rules.jsonl")))


def test_rules_have_names_of_their_own_and_a_source() -> None:
    """A rule can be told from the others and names the page that demands it."""
    assert len(RULES) == len({rule.name for rule in RULES})
    assert all(any(page in rule.source for page in ("decisions.md", "AC-", "hook.md §11", "case ")) for rule in RULES)


def test_rules_look_at_nothing_but_the_input() -> None:
    """Another name, other tags and another expectation change nothing."""
    other = {"name": "x", "tags": [], "expect": {"exit": 5, "exec": False}}
    blind = [frozenset(expected(Case({**case.members, **other}))[1]) for case in cases("hook.jsonl")]

    assert list(fired("hook.jsonl")) == blind


def test_most_cases_need_no_rule() -> None:
    """Rules are exceptions: the bulk of what was recorded is done as it was."""
    plain = [case for case, names in zip(cases("hook.jsonl"), fired("hook.jsonl"), strict=True) if not names]

    assert 1000 < len(plain)


def test_the_small_reference_does_what_was_recorded() -> None:
    """Where gpuhook and the reference read the files alike, the model of the reference agrees with every record."""
    unlike = {rule.name for rule in RULES if rule.source.startswith(("AC-5", "decisions.md 11"))}
    alike = [case for case, names in zip(cases("hook.jsonl"), fired("hook.jsonl"), strict=True) if not names & unlike]
    told = {case.name: _differences(case) for case in alike}

    assert {} == {name: lines for name, lines in told.items() if lines}
    assert 1300 < len(alike)


def _differences(case: Case) -> list[str]:
    return differences(case, case.recorded, replace(reference.outcome(look_at(case)), stderr="gpuhook: "))


def hook_case(**members: object) -> Case:
    """A case that asks for a GPU, with some members changed."""
    spec = {"ociVersion": "1.0.2", "process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}, "root": {"path": "{rootfs}"}}
    base = {
        "name": "x",
        "tags": [],
        "env_of_hook": {"PATH": "{path}"},
        "config_toml": '[nvidia-container-cli]\npath = "{cli}"\n',
        "state": {"pid": 7, "bundle": "{bundle}"},
        "config_json": spec,
    }
    return Case({**base, **members})


def test_rules_apply_one_after_the_other() -> None:
    """A refusal has the last word over a reading, whatever was recorded."""
    spec = {
        "ociVersion": "1.0.2",
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=-x", "B"]},
        "root": {"path": "{rootfs}"},
    }
    view = look_at(hook_case(config_json=spec))

    outcome, names = predict(RULES, view, Outcome(0, ("x",)))

    assert outcome.fails
    assert ["an entry of process.env without '=' is ignored", "an element of a list that could be an option"] == names


@pytest.mark.parametrize(("entry", "refused"), [("NVIDIA_VISIBLE_DEVICES=0", True), ("A=b", False)])
def test_a_broken_file_concerns_gpu_containers_alone(entry: str, refused: bool) -> None:
    """Whether a GPU is asked for is decided with the defaults (decisions.md 3)."""
    spec = {"ociVersion": "1.0.2", "process": {"env": [entry]}, "root": {"path": "{rootfs}"}}
    view = look_at(hook_case(config_json=spec, config_toml="swarm-resource = 'A'\nx"))

    assert refused == predict(RULES, view, Outcome(1))[0].fails
