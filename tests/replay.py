"""Replay recorded cases against a command, with the deviation rules applied.

    python -m tests.replay [options] FILE.jsonl COMMAND [ARG ...]

Prints what differs from the recorded outcome without a rule that says so, how often each rule applied, and a last
line `N passed, M failed`. The exit status is 0 if nothing failed. fixtures/vectors/ holds the cases; their format is
described in tests/replay_rules/case.py.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.replay_rules.case import Case, load
from tests.replay_rules.catalogue import expected, rules_of
from tests.replay_rules.compare import differences
from tests.replay_rules.machine import why_not
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.run import Fork, Runner, Spawn, run_case

LINES = 10  # of a failing case


@dataclass(frozen=True)
class Report:
    """How a case went. skipped: why it cannot be replayed here; changed: a rule predicts another outcome."""

    case: Case
    fired: list[str]
    changed: bool = False
    lines: tuple[str, ...] = ()
    skipped: str = ""


def replay(case: Case, runner: Runner, base: str) -> Report:
    """Run one case in the folder `base` and compare."""
    reason = next(filter(None, map(why_not, case.members.get("needs", ()))), "")
    if reason:
        return Report(case, [], skipped=reason)
    wanted, fired = expected(case)
    lines = differences(case, wanted, run_case(case, runner, base))
    return Report(case, fired, bool(_changes(case, wanted)), tuple(lines))


def _changes(case: Case, wanted: Outcome) -> list[str]:
    """What the rules change in the recorded outcome; manners are not theirs to change."""
    told = Outcome(**{**vars(wanted), "stderr": "gpuhook: "})
    return differences(case, case.recorded, told)


def replay_all(cases: list[Case], runner: Runner, jobs: int) -> Iterator[Report]:
    """The reports of all cases, in their order; `jobs` cases run at a time."""
    top = os.path.realpath(tempfile.mkdtemp(prefix="replay-"))
    work = [(case, runner, f"{top}/{number:05}") for number, case in enumerate(cases)]
    try:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            yield from pool.imap(_replay, work, chunksize=4)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _replay(work: tuple[Case, Runner, str]) -> Report:
    return replay(*work)


def print_reports(reports: Iterator[Report], show: int) -> int:
    """Print everything that a person wants to know; returns the number of cases that failed."""
    fired: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    passed = failed = 0
    kind = "hook"
    for report in reports:
        kind = report.case.kind
        fired.update(report.fired)
        changed.update(report.fired if report.changed else ())
        if report.skipped:
            print(f"skipped {report.case.name}: {report.skipped}")
        elif report.lines:
            failed += 1
            if failed <= show:
                _print_failure(report)
        else:
            passed += 1
    _print_rules(kind, fired, changed)
    print(f"{passed} passed, {failed} failed", flush=True)
    return failed


def _print_failure(report: Report) -> None:
    print(f"FAIL {report.case.name} [{', '.join(report.case.members['tags'])}]")
    for line in report.lines[:LINES]:
        print(f"     {line}")
    for name in report.fired:
        print(f"     under the rule: {name}")


def _print_rules(kind: str, fired: Counter[str], changed: Counter[str]) -> None:
    print("applied  changed  rule")
    for rule in rules_of(kind):
        print(f"{fired[rule.name]:7}  {changed[rule.name]:7}  {rule.name} ({rule.source})")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="cases with this tag or in whose name it is"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="run N cases at a time")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="describe at most N failing cases")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run each Nth case only")
    parser.add_argument("--fork", action="store_true", help="COMMAND is MODULE:FUNCTION, called in forked children")
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE", help="load this before forking")
    parser.add_argument("file", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv)
    given.command = given.command[given.command[:1] == ["--"] :]
    if not given.command:
        parser.error("no command is given")
    return given


def command_words(words: list[str]) -> list[str]:
    """The command with its program's path in full, as each case has a PATH and a folder of its own."""
    found = shutil.which(words[0])
    if found is None:
        raise SystemExit(f"replay: cannot run {words[0]}")
    return [os.path.abspath(found), *words[1:]]


def main(argv: list[str] | None = None) -> int:
    """Replay a file; returns 0 if no case failed."""
    given = parse(argv)
    cases = [case for case in load(given.file) if case.matches(given.only)][:: given.every]
    runner = Fork(given.command[0], tuple(given.preload)) if given.fork else Spawn(command_words(given.command))
    return 1 if print_reports(replay_all(cases, runner, given.jobs), given.show) else 0


if __name__ == "__main__":
    sys.exit(main())
