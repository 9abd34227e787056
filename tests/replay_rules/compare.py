"""The differences between what was expected of a case and what was seen."""

from __future__ import annotations

from typing import Any

from tests.replay_rules.case import Case
from tests.replay_rules.outcome import Outcome

# Variables that a shell or Python sets while it starts.
NOISE = ("LC_CTYPE", "_", "PWD", "OLDPWD", "SHLVL")
LONGEST = 400  # characters of a value in a report


def differences(case: Case, expected: Outcome, seen: Outcome) -> list[str]:
    """One line for each difference; an empty list means that the case holds."""
    if seen.exit is None:
        return ["it did not end in time"]
    return [
        *_exit(expected, seen),
        *_handover(expected, seen),
        *_manners(case.kind, seen),
        *(_version_line(expected, seen) if case.kind == "docker" else []),
        *(_spec(case, expected, seen) if case.kind == "runtime" else []),
    ]


def _exit(expected: Outcome, seen: Outcome) -> list[str]:
    if expected.fails:
        return ["exit 0, expected a failure"] if seen.exit == 0 else []
    if seen.exit == expected.exit:
        return []
    return [f"exit {seen.exit}, expected {expected.exit}; stderr: {short(seen.stderr.strip()[-LONGEST:])}"]


def _handover(expected: Outcome, seen: Outcome) -> list[str]:
    if (expected.argv is None) != (seen.argv is None):
        return [f"it handed over: {seen.argv is not None}, expected: {expected.argv is not None}"]
    if expected.argv is None or seen.argv is None:
        return []
    lines = _argv(_sorted_requirements(expected.argv), _sorted_requirements(seen.argv))
    return lines if expected.env is None else lines + _environment(dict(expected.env), dict(seen.env or {}))


def _sorted_requirements(argv: tuple[str, ...]) -> list[str]:
    """The arguments with the requirements, which the reference passes in no fixed order, in order."""
    spots = [number for number, word in enumerate(argv) if word.startswith("--require=")]
    words = list(argv)
    for spot, word in zip(spots, sorted(argv[number] for number in spots), strict=True):
        words[spot] = word
    return words


def _argv(expected: list[str], seen: list[str]) -> list[str]:
    if expected == seen:
        return []
    spare = list(seen)
    missing = [word for word in expected if word not in spare or spare.remove(word)]  # type: ignore[func-returns-value]
    lines = [f"argv lacks {short(word)}" for word in missing] + [f"argv has {short(word)}" for word in spare]
    return lines or [f"argv is in another order: {short(seen)}"]


def _environment(expected: dict[str, str | None], seen: dict[str, str | None]) -> list[str]:
    absent = object()
    lines = []
    for name in sorted({*expected, *seen}):
        wanted, got = expected.get(name, absent), seen.get(name, absent)
        if wanted != got and not (wanted is absent and name in NOISE):
            texts = ["unchanged" if value is absent else short(value) for value in (wanted, got)]
            lines.append(f"variable {name}: expected {texts[0]}, got {texts[1]}")
    return lines


def _manners(kind: str, seen: Outcome) -> list[str]:
    """A failure is told in our own words, and never as a traceback."""
    if "Traceback (most recent call last)" in seen.stderr:
        return [f"it ended in a traceback: {short(seen.stderr.strip()[-LONGEST:])}"]
    if kind == "hook" and seen.fails and not any(line.startswith("gpuhook: ") for line in seen.stderr.split("\n")):
        return ["it failed without a line that begins with 'gpuhook: '"]
    return []


def _version_line(expected: Outcome, seen: Outcome) -> list[str]:
    wanted, got = (outcome.stdout.startswith("NVIDIA Docker: ") for outcome in (expected, seen))
    return [] if wanted == got else [f"the version line: {got}, expected: {wanted}"]


def _spec(case: Case, expected: Outcome, seen: Outcome) -> list[str]:
    wanted, got = full(expected.spec), full(seen.spec)
    if isinstance(wanted, dict) and got == "unchanged":
        got = full(case.members.get("config_json"))
    return _tree(wanted, got, "config.json")


def full(value: Any) -> Any:
    """A JSON value without empty members: the reference drops some and adds others whenever it writes the file."""
    if isinstance(value, list):
        return [full(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {key: full(item) for key, item in value.items()}
    return {key: item for key, item in members.items() if item}


def _tree(expected: Any, seen: Any, place: str) -> list[str]:
    if isinstance(expected, dict) and isinstance(seen, dict):
        return [
            line for key in {**expected, **seen} for line in _tree(expected.get(key), seen.get(key), f"{place}.{key}")
        ]
    if isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        pairs = enumerate(zip(expected, seen, strict=True))
        return [line for number, (one, two) in pairs for line in _tree(one, two, f"{place}[{number}]")]
    return [] if expected == seen else [f"{place}: expected {short(expected)}, got {short(seen)}"]


def short(value: object) -> str:
    """A value for a report, cut."""
    text = ascii(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
