"""The repairs that `gpuhook doctor --fix` offers: safe ones, one by one, each shown first and asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuhook.doctor.model import Finding, Report
from gpuhook.doctor.node import Node
from gpuhook.errors import GpuhookError
from gpuhook.terminal import shown

NEW = re.compile(r"^--- /dev/null\n\+\+\+ (.*)\n@@ .*\n((?:\+.*\n)+)", re.MULTILINE)
SHORT = 20  # lines of a new file that are shown


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
            sys.stdout.write(f"\n{found.slug}: cannot be repaired from here: {shown(error.text)}\n")
            continue
        if made is not None and (made.title, made.shows) not in seen:
            seen.add((made.title, made.shows))
            yield made


def offer(report: Report, node: Node) -> bool:
    """Show every repair that fits a finding, ask, and do what is agreed to; whether none of those failed."""
    offered, well = False, True
    for one in repairs(report, node):
        offered = True
        sys.stdout.write(f"\n{one.slug}: {one.title}\n{brief(one.shows).rstrip()}\n")
        if _agreed():
            well = _done(one) and well
    if not offered:
        sys.stdout.write("\nnothing here that gpuhook can repair by itself\n")
    return well


def _agreed() -> bool:
    sys.stdout.write("do it? [y/N] ")
    sys.stdout.flush()
    answer = sys.stdin.readline() if sys.stdin else ""
    if not answer.endswith("\n"):  # nobody to ask
        sys.stdout.write("\n")
    return answer.strip().lower() in ("y", "yes")


def _done(one: Repair) -> bool:
    """Carry it out; where that fails, say why and leave the others their turn."""
    try:
        one.do()
    except GpuhookError as error:
        sys.stdout.write(f"not done: {shown(error.text)}{f' ({shown(error.hint)})' if error.hint else ''}\n")
        return False
    except OSError as error:
        sys.stdout.write(f"not done: {error.strerror}: {shown(str(error.filename or one.title))}\n")
        return False
    sys.stdout.write("done\n")
    return True


def brief(shows: str) -> str:
    """A diff in which new files of many lines, such as launchers, are only named."""
    return NEW.sub(_named, shows)


def _named(found: re.Match[str]) -> str:
    lines = found[2].count("\n")
    return found[0] if lines <= SHORT else f"new file {found[1]} ({lines} lines)\n"
