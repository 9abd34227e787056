import pytest

from tests.replay_rules.case import Case
from tests.replay_rules.compare import differences, full
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.run import environment_changes

HOOK = Case({"kind": "hook", "name": "x", "tags": []})
RUNTIME = Case({"kind": "runtime", "name": "x", "tags": [], "config_json": {"a": 1, "b": {}}})
WRAPPER = Case({"kind": "docker", "name": "x", "tags": []})


@pytest.mark.parametrize(
    ("expected", "seen", "same"),
    [
        (Outcome(1), Outcome(2, stderr="gpuhook: x"), True),
        (Outcome(0), Outcome(2, stderr="gpuhook: x"), False),
        (Outcome(3, ("a",)), Outcome(3, ("a",)), True),
        (Outcome(3, ("a",)), Outcome(0, ("a",)), False),
        (Outcome(0, ("a", "b")), Outcome(0, ("b", "a")), False),
        (Outcome(0, ("a", "a")), Outcome(0, ("a",)), False),
        (Outcome(0, ("--require=a", "x", "--require=b")), Outcome(0, ("--require=b", "x", "--require=a")), True),
        (Outcome(0, ("--require=a", "x")), Outcome(0, ("x", "--require=a")), False),
        (Outcome(0, ("a",), {"A": "1"}), Outcome(0, ("a",), {"A": "1", "LC_CTYPE": "C"}), True),
        (Outcome(0, ("a",), {"A": "1"}), Outcome(0, ("a",), {"A": "2"}), False),
        (Outcome(0, ("a",), {"A": None}), Outcome(0, ("a",), {}), False),
        (Outcome(0), Outcome(None), False),
    ],
)
def test_outcomes_are_compared(expected: Outcome, seen: Outcome, same: bool) -> None:
    """Status, arguments and variables count; the order of requirements and a failure's number do not."""
    assert same == (not differences(HOOK, expected, seen))


@pytest.mark.parametrize(
    ("expected", "seen", "same"),
    [
        ("unchanged", "unchanged", True),
        ("unchanged", {"a": 1}, False),
        ({"a": 1}, {"a": 1, "c": [], "d": 0, "e": None}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": 1, "b": {"c": ""}}, "unchanged", True),
        ({"a": 2}, "unchanged", False),
        ({"a": 1}, "not JSON: x", False),
    ],
)
def test_specs_are_compared_without_empty_members(expected: object, seen: object, same: bool) -> None:
    """The reference drops and adds empty members whenever it writes config.json."""
    assert same == (not differences(RUNTIME, Outcome(0, spec=expected), Outcome(0, spec=seen)))


def test_empty_members_are_dropped_at_every_depth() -> None:
    """Elements of lists stay, as their places count."""
    assert {"a": [{}, 0], "b": True} == full({"a": [{"x": {"y": ""}}, 0], "b": True, "c": {"d": False}})


@pytest.mark.parametrize(("text", "same"), [("NVIDIA Docker: 2.0\n", True), ("Docker", False)])
def test_the_wrappers_version_line_counts(text: str, same: bool) -> None:
    """Whether it is there, not what it says."""
    expected = Outcome(0, stdout="NVIDIA Docker: 2.0.3\n")

    assert same == (not differences(WRAPPER, expected, Outcome(0, stdout=text)))


def test_the_first_of_two_entries_is_what_a_program_sees() -> None:
    """getenv() takes the first."""
    given = {"A": "1", "B": "2", "C": "3"}

    assert {"A": "0", "C": None, "D": "4"} == environment_changes(given, ["A=0", "A=1", "B=2", "D=4", "PYTHONPATH=x"])
