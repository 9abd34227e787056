"""A report for people: the verdict first, then one line a finding, its evidence and what to do."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from gpuhook.doctor.container import head
from gpuhook.doctor.masks import masked, names_of
from gpuhook.doctor.model import Finding, Level, Report
from gpuhook.doctor.node import Node
from gpuhook.terminal import Mark, Style, columns, shown, wrapped

MARKS: dict[Level, Mark] = {
    "failure": "bad",
    "warning": "warn",
    "skipped": "warn",
    "note": "plain",
    "ok": "good",
}
REPAIRABLE = re.compile(r"gpuhook install |gpuhook doctor --fix")  # in advice: --fix does that
ORDER: tuple[Level, ...] = ("failure", "warning", "skipped", "note", "ok")
VERDICTS = {
    "failure": "GPU containers will not work on this node",
    "warning": "GPU containers may not work on this node, or not for long",
    "skipped": "nothing found, but not everything could be looked at",
    "note": "no fault found",
    "ok": "no fault found",
}
CONTAINERS = {
    "failure": "container {name} does not start, or gets no GPU",
    "warning": "container {name} may not get what it needs",
}


def page(report: Report, *, verbose: bool = False) -> Iterator[str]:
    """The report as lines of text; verbose: also what is fine."""
    style, width = Style.of(sys.stdout), columns(80, 110)
    mark = "good" if report.verdict == "note" else MARKS[report.verdict]
    yield from style.item(mark, verdict_of(report), "", width)
    for level in ORDER:
        found = [finding for finding in report.findings if finding.level == level]
        if level == "ok" and found and verbose:
            yield ""
        for finding in found if level != "ok" or verbose else ():
            yield from ([""] if level != "ok" else [])
            yield from _finding(finding, style, width)
    if verbose or report.verdict in ("warning", "failure"):
        yield ""
        yield from (_version(name, text, width) for name, text in report.versions.items())
    yield ""
    yield from map(style.faint, _footer(report, verbose=verbose))


def verdict_of(report: Report) -> str:
    """The report in one line, with how many of its findings led to it."""
    worst = [finding for finding in report.findings if finding.level == report.verdict]
    if report.verdict not in CONTAINERS:
        return VERDICTS[report.verdict]
    of_it = [one for one in worst if report.container and one.text.startswith(head(report.container))]
    text = CONTAINERS[report.verdict].format(name=report.container) if of_it == worst else VERDICTS[report.verdict]
    return f"{text}: {counted(len(worst), report.verdict)}"


def _footer(report: Report, *, verbose: bool) -> Iterator[str]:
    """How much was looked at, and what may be typed next."""
    fine = sum(finding.level == "ok" for finding in report.findings)
    rest = [finding for finding in report.findings if finding.level != "ok"]
    found = counted(len(rest), "finding") if rest else "no finding"
    more = "" if verbose or not fine else " (-v lists them)"
    yield f"{found}, {fine} checked and fine{more}, in {report.seconds:g} s"
    if any(finding.level == "skipped" for finding in rest) and os.geteuid():
        yield "root can look at more"
    if rest:
        fix = any(REPAIRABLE.search(text) for finding in rest for text in finding.advice)
        yield f"`gpuhook why REFERENCE` tells more{'; `gpuhook doctor --fix` offers repairs' if fix else ''}"


def counted(number: int, noun: str) -> str:
    """A number of things, in words: "1 finding", "2 findings"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _version(name: str, text: str, width: int) -> str:
    line = f"  {name}: {shown(text)}"
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _finding(finding: Finding, style: Style, width: int) -> Iterator[str]:
    yield from style.item(MARKS[finding.level], finding.slug, f": {finding.text}", width)
    for one in finding.evidence:
        seen = f": {one.found}" if one.found else ""
        wanted = f" (wanted: {one.wanted})" if one.wanted else ""
        yield from wrapped(f"in {one.where}{seen}{wanted}", width, "  ", "    ")
    for text in finding.advice:
        yield from style.advice(text, width)


def markdown(report: Report, node: Node) -> Iterator[str]:
    """The report to paste into an issue; names, ids and secrets are masked."""
    names = names_of(node)
    if report.container:
        names[shown(report.container)] = "<name>"

    def told(text: str) -> str:
        return masked(shown(text), names)

    def cell(text: str) -> str:
        return told(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")

    yield f"### gpuhook doctor: {cell(verdict_of(report))}"
    yield ""
    yield "| level | reference | finding | evidence |"
    yield "|---|---|---|---|"
    for finding in sorted(report.findings, key=lambda one: ORDER.index(one.level)):
        if finding.level != "ok":
            seen = "; ".join(f"{one.where} {one.found}".strip() for one in finding.evidence)
            yield f"| {finding.level} | {finding.slug} | {cell(finding.text)} | {cell(seen)} |"
    yield ""
    yield from (f"- {name}: `{told(version)}`" for name, version in report.versions.items())
