"""A report for people: the verdict first, then one line a finding, its evidence and what to do."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import textwrap
from collections.abc import Iterator

from gpuhook.doctor.model import Finding, Report
from gpuhook.doctor.node import Node
from gpuhook.errors import printable
from gpuhook.terminal import Style

ORDER = ("failure", "warning", "skipped", "note", "ok")
VERDICTS = {
    "failure": "GPU containers will not work on this node",
    "warning": "GPU containers may not work on this node, or not for long",
    "skipped": "nothing found, but not everything could be looked at",
    "note": "no fault found",
    "ok": "no fault found",
}


def page(report: Report, *, verbose: bool = False) -> Iterator[str]:
    """The report as lines of text; verbose: also what is fine."""
    style = Style.of(sys.stdout)
    width = max(60, min(110, shutil.get_terminal_size((80, 24)).columns))
    yield f"{_mark(report.verdict, style)} {style.bold(VERDICTS[report.verdict])}"
    for level in ORDER if verbose else ORDER[:-1]:
        for finding in report.findings:
            if finding.level == level:
                yield ""
                yield from _finding(finding, style, width)
    yield ""
    yield style.paint(
        "2", f"{len(report.findings)} findings in {report.seconds:g} s; gpuhook why REFERENCE tells more"
    )


def _mark(level: str, style: Style) -> str:
    return {"failure": style.bad, "warning": style.warn, "skipped": style.warn}.get(level, style.good)()


def _finding(finding: Finding, style: Style, width: int) -> Iterator[str]:
    head = f"{_mark(finding.level, style)} {style.bold(finding.slug)}: "
    yield from textwrap.wrap(head + printable(finding.text), width, subsequent_indent="  ", break_on_hyphens=False)
    for one in finding.evidence:
        seen = f": {one.found}" if one.found else ""
        wanted = f" (wanted: {one.wanted})" if one.wanted else ""
        yield from _wrapped(f"in {one.where}{seen}{wanted}", width)
    for text in finding.advice:
        yield from _wrapped(f"→ {text}" if style.unicode else f"-> {text}", width)


def _wrapped(text: str, width: int) -> Iterator[str]:
    yield from textwrap.wrap(
        printable(text),
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def markdown(report: Report, node: Node) -> Iterator[str]:
    """The report to paste into an issue; this machine's and its users' names are masked."""
    secrets = (
        [socket.gethostname(), os.environ.get("USER", ""), os.environ.get("SUDO_USER", "")] if node.is_real else []
    )
    names = {name: mask for name, mask in zip(secrets, ("HOST", "USER", "USER"), strict=False) if len(name) > 2}

    def masked(text: str) -> str:
        for name, mask in names.items():
            text = text.replace(name, f"<{mask}>")
        return printable(text).replace("|", "\\|")

    yield f"### gpuhook doctor: {VERDICTS[report.verdict]}"
    yield ""
    yield "| level | reference | finding | evidence |"
    yield "|---|---|---|---|"
    for finding in sorted(report.findings, key=lambda one: ORDER.index(one.level)):
        if finding.level != "ok":
            seen = "; ".join(f"{one.where} {one.found}".strip() for one in finding.evidence)
            yield f"| {finding.level} | {finding.slug} | {masked(finding.text)} | {masked(seen)} |"
    yield ""
    yield from (f"- {name}: `{masked(version)}`" for name, version in report.versions.items())
