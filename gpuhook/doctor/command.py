"""`gpuhook doctor`: checks this node and says what to do."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from gpuhook.catalogue import entries
from gpuhook.doctor.model import STATUS, Finding, Report, worst
from gpuhook.doctor.node import Node
from gpuhook.doctor.registry import checks
from gpuhook.doctor.render import markdown, page
from gpuhook.doctor.run import run_one
from gpuhook.doctor.versions import versions
from gpuhook.errors import Usage

SLOW = 1.0  # seconds after which progress is shown


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="gpuhook doctor",
        description="Checks this node: GPU, driver, engine, configuration, and what will break later. Reads only.",
        epilog="exit status: 0 nothing found, 1 warnings, 2 failures",
    )
    made.add_argument("--only", metavar="SLUG", action="append", default=[], help="this check; may be repeated")
    made.add_argument("--list", action="store_true", help="list the checks")
    made.add_argument("--container", metavar="NAME", help="also what a container of Docker or Podman adds")
    made.add_argument("--json", action="store_true", help="for programs")
    made.add_argument("--markdown", action="store_true", help="a report to paste into an issue; names are masked")
    made.add_argument("--fix", action="store_true", help="offer the safe repairs one by one; shows each, then asks")
    made.add_argument("-v", "--verbose", action="store_true", help="also what is fine")
    made.add_argument("--root", default="/", help=argparse.SUPPRESS)
    return made


def main(argv: list[str]) -> int:
    """Run the command. Raises GpuhookError."""
    given = parser().parse_args(argv)
    if given.list:
        sys.stdout.write("".join(f"{slug:<28} {entries()[slug].title}\n" for slug in slugs()))
        return 0
    only = tuple(given.only)
    unknown = [slug for slug in only if slug not in slugs()]
    if unknown:
        raise Usage(f"no check {unknown[0]!r}", hint="gpuhook doctor --list")
    node = Node(given.root)
    report = examine(node, only, given.container or "")
    if given.json:
        sys.stdout.write(report.model_dump_json(indent=2) + "\n")
    elif given.markdown:
        sys.stdout.write("\n".join(markdown(report, node)) + "\n")
    else:
        sys.stdout.write("\n".join(page(report, verbose=given.verbose)) + "\n")
    if given.fix:
        from gpuhook.doctor.fix import offer

        offer(report, node)
    return STATUS[report.verdict]


def slugs() -> list[str]:
    """The slugs that the checks can report, in their order."""
    return list(dict.fromkeys(slug for one in checks() for slug in one.slugs))


def examine(node: Node, only: tuple[str, ...] = (), container: str = "") -> Report:
    """Run the checks and put the report together; progress on a terminal when it takes longer than a second."""
    started = time.monotonic()
    found = tuple(_all(node, only, container, started))
    return Report(
        verdict=worst(found),
        findings=found,
        versions=versions(node),
        seconds=round(time.monotonic() - started, 2),
    )


def _all(node: Node, only: tuple[str, ...], container: str, started: float) -> Iterator[Finding]:
    for one in checks():
        if only and not set(only) & set(one.slugs):
            continue
        if sys.stderr.isatty() and time.monotonic() - started > SLOW:
            sys.stderr.write(f"\r\x1b[Kchecking {one.slugs[0]} ...")
        yield from (finding for finding in run_one(one, node) if not only or finding.slug in only)
    if container:
        from gpuhook.doctor.container import of_container

        yield from of_container(node, container)
    if sys.stderr.isatty() and time.monotonic() - started > SLOW:
        sys.stderr.write("\r\x1b[K")
