"""The repairs that `gpuhook doctor --fix` offers: safe ones, one by one, each shown first and asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuhook.doctor.model import Finding, Report
from gpuhook.doctor.node import Node
from gpuhook.errors import GpuhookError


@dataclass(frozen=True)
class Repair:
    """A repair. shows: what would change (a diff, or commands); do: carries it out, raises GpuhookError or OSError."""

    slug: str
    title: str
    shows: str
    do: Callable[[], None]


Maker = Callable[[Finding, Node], Repair | None]
MAKERS: dict[str, Maker] = {}


def repair(*slugs: str) -> Callable[[Maker], Maker]:
    """Registers what makes the repair for a finding of one of these slugs; None where it does not fit."""

    def register(make: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(slugs, make))
        return make

    return register


def repairs(report: Report, node: Node) -> Iterator[Repair]:
    """The repairs that fit a report's findings, each once."""
    import gpuhook.doctor.repairs  # noqa: F401  # registers them

    seen = set()
    for found in report.findings:
        if found.level not in ("warning", "failure", "note") or found.slug not in MAKERS:
            continue
        try:
            made = MAKERS[found.slug](found, node)
        except GpuhookError as error:
            sys.stdout.write(f"\n{found.slug}: cannot be repaired from here: {error.text}\n")
            continue
        if made is not None and (made.title, made.shows) not in seen:
            seen.add((made.title, made.shows))
            yield made


def offer(report: Report, node: Node) -> None:
    """Show every repair that fits a finding, ask, and do what is agreed to. Raises GpuhookError and OSError."""
    offered = False
    for one in repairs(report, node):
        offered = True
        sys.stdout.write(f"\n{one.slug}: {one.title}\n{one.shows.rstrip()}\n")
        if _agreed():
            one.do()
            sys.stdout.write("done\n")
    if not offered:
        sys.stdout.write("\nnothing here that gpuhook can repair by itself\n")


def _agreed() -> bool:
    sys.stdout.write("do it? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
