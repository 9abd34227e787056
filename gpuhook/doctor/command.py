"""`gpuhook doctor`: checks this node and says what to do."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from difflib import get_close_matches

from gpuhook.catalogue import entries
from gpuhook.doctor import contained
from gpuhook.doctor.limits import UNDETECTABLE
from gpuhook.doctor.model import STATUS, Finding, Report, worst
from gpuhook.doctor.node import Node
from gpuhook.doctor.progress import Progress
from gpuhook.doctor.registry import checks
from gpuhook.doctor.render import markdown, page
from gpuhook.doctor.run import run_one
from gpuhook.doctor.versions import versions
from gpuhook.errors import Usage
from gpuhook.terminal import columns_of_list, wrapped

FAULTS = ("warning", "failure")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="gpuhook doctor",
        description="Checks this node: GPU, driver, engine, configuration, and what will break later. Reads only.",
        epilog="exit status: 0 nothing found, 1 warnings or something that could not be looked at, 2 failures",
    )
    made.add_argument("--only", metavar="SLUG", action="append", default=[], help="this check; may be repeated")
    made.add_argument("--list", action="store_true", help="list the checks")
    made.add_argument("--container", metavar="NAME", help="also what a container of an engine here adds")
    made.add_argument("--json", action="store_true", help="for programs")
    made.add_argument("--markdown", action="store_true", help="a report to paste into an issue; names are masked")
    made.add_argument("--fix", action="store_true", help="offer the safe repairs one by one; shows each, then asks")
    made.add_argument("--schema", action="store_true", help="print the JSON Schema of --json")
    made.add_argument("-v", "--verbose", action="store_true", help="also what is fine")
    made.add_argument("--root", default="/", help=argparse.SUPPRESS)
    return made


def main(argv: list[str]) -> int:
    """Run the command. Raises GpuhookError."""
    given = parser().parse_args(argv)
    if given.schema:
        sys.stdout.write(json.dumps(Report.model_json_schema(), indent=2, sort_keys=True) + "\n")
        return 0
    if given.list:
        sys.stdout.write("".join(f"{line}\n" for line in listed(columns_of_list())))
        return 0
    only = tuple(given.only)
    _require_known(only, given.container)
    if given.fix and (given.json or given.markdown):
        raise Usage("--fix asks a person; --json and --markdown are for programs and reports", hint="one at a time")
    node = Node(given.root)
    report = examine(node, only, given.container or "")
    if given.json:
        sys.stdout.write(json.dumps(report.model_dump(), indent=2) + "\n")
    elif given.markdown:
        sys.stdout.write("\n".join(markdown(report, node)) + "\n")
    else:
        sys.stdout.write("\n".join(page(report, verbose=given.verbose)) + "\n")
    if given.fix:
        from gpuhook.doctor.fix import offer

        if not offer(report, node):
            return STATUS["failure"]
    return STATUS[report.verdict]


def _require_known(only: tuple[str, ...], container: str | None) -> None:
    """Each slug is one that a check of this run can report. Raises Usage."""
    own, theirs = slugs(), (*contained.slugs(), *contained.BY_THE_HOOK)
    for slug in only:
        if slug in UNDETECTABLE:
            raise Usage(f"{slug} cannot be seen from a node: {UNDETECTABLE[slug]}", hint=f"gpuhook why {slug}")
        if slug not in own and slug not in theirs:
            near = get_close_matches(slug, (*own, *theirs), 1)
            raise Usage(f"no check {slug!r}", hint=f"did you mean {near[0]}?" if near else "gpuhook doctor --list")
        if slug not in own and not container:
            raise Usage(f"{slug} is a matter of a container", hint=f"gpuhook doctor --only {slug} --container NAME")


def slugs() -> list[str]:
    """The slugs that the checks can report, in their order."""
    return list(dict.fromkeys(slug for one in checks() for slug in one.slugs))


def listed(width: int) -> Iterator[str]:
    """The checks, those of a container marked so, in lines of this width."""
    own = slugs()
    every = (*own, *(slug for slug in contained.slugs() if slug not in own))
    left = max(map(len, every)) + 1
    for slug in every:
        text = f"{entries()[slug].title}{'' if slug in own else ' (--container)'}"
        yield from wrapped(text, width, f"{slug:<{left}}", " " * left)


def examine(node: Node, only: tuple[str, ...] = (), container: str = "") -> Report:
    """Run the checks and put the report together; progress on a terminal when it takes longer than a second."""
    started = time.monotonic()
    with Progress() as progress:
        found = [*_of_node(node, only, progress)]
        if container:
            from gpuhook.doctor.container import of_container

            progress.now = f"container {container}"
            told_of_it = of_container(node, container)
            found += [one for one in told_of_it if not only or one.slug in only or one.level == "skipped"]
        progress.now = "versions"
        told = versions(node)
    seconds = round(time.monotonic() - started, 2)
    verdict = worst(tuple(found))
    return Report(verdict=verdict, container=container, findings=tuple(found), versions=told, seconds=seconds)


def _of_node(node: Node, only: tuple[str, ...], progress: Progress) -> Iterator[Finding]:
    faulty = False
    for one in checks():
        if (only and not set(only) & set(one.slugs)) or (one.after_fault and not faulty and not only):
            continue
        progress.now = one.slugs[0]
        for finding in run_one(one, node):
            faulty = faulty or finding.level in FAULTS
            if not only or finding.slug in only or finding.level == "skipped":
                yield finding
