"""A report for people: the verdict first, then one line a finding, its evidence and what to do."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import textwrap
from collections.abc import Iterator, Mapping

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
    mark = style.good() if report.verdict == "note" else _mark(report.verdict, style)
    yield f"{mark} {style.bold(VERDICTS[report.verdict])}"
    for level in ORDER if verbose else ORDER[:-1]:
        for finding in report.findings:
            if finding.level == level:
                yield ""
                yield from _finding(finding, style, width)
    if verbose or report.verdict in ("warning", "failure"):
        yield ""
        yield from (_version(name, text, width) for name, text in report.versions.items())
    yield ""
    fine = sum(finding.level == "ok" for finding in report.findings)
    told = f"{counted(len(report.findings) - fine, 'finding')}, {fine} more ok, in {report.seconds:g} s"
    yield style.paint("2", f"{told}; gpuhook why REFERENCE tells more")


def counted(number: int, noun: str) -> str:
    """A number of things, in words: "1 finding", "2 findings"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _version(name: str, text: str, width: int) -> str:
    line = f"  {name}: {printable(text)}"
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _mark(level: str, style: Style) -> str:
    marks = {"failure": style.bad, "warning": style.warn, "skipped": style.warn, "note": style.plain}
    return marks.get(level, style.good)()


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
    """The report to paste into an issue; names, ids and secrets are masked."""
    names = names_of(node)

    def told(text: str) -> str:
        return masked(printable(text), names).replace("|", "\\|")

    yield f"### gpuhook doctor: {VERDICTS[report.verdict]}"
    yield ""
    yield "| level | reference | finding | evidence |"
    yield "|---|---|---|---|"
    for finding in sorted(report.findings, key=lambda one: ORDER.index(one.level)):
        if finding.level != "ok":
            seen = "; ".join(f"{one.where} {one.found}".strip() for one in finding.evidence)
            yield f"| {finding.level} | {finding.slug} | {told(finding.text)} | {told(seen)} |"
    yield ""
    yield from (f"- {name}: `{told(version)}`" for name, version in report.versions.items())


def names_of(node: Node) -> dict[str, str]:
    """The names that tell whose machine it is, and what stands for them."""
    hosts = [node.read("/etc/hostname", "").strip()]
    users = [name for name in node.listdir("/home") if name != "lost+found"]
    if node.is_real:
        hosts.append(socket.gethostname())
        users += [os.environ.get("USER", ""), os.environ.get("SUDO_USER", "")]
    hosts += [name.partition(".")[0] for name in hosts]
    found = {**dict.fromkeys(hosts, "<host>"), **dict.fromkeys(users, "<user>")}
    return {name: mask for name, mask in found.items() if len(name) > 2 and name not in KEPT}


KEPT = ("root", "localhost", "docker", "nvidia", "podman", "kubelet", "containerd")
SECRETS = (
    (re.compile(r"(?i)\b(\w*(?:token|secret|passw(?:or)?d|api_?key)\w*\s*[=:]\s*)\S+"), r"\1<secret>"),
    (re.compile(r"://[^/\s@]+@"), "://<secret>@"),
    (re.compile(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), r"\1-<uuid>"),
    (re.compile(r"(/home/)[^/\s]+"), r"\1<user>"),
    (re.compile(r"\bcontainer \S+:"), "container <name>:"),
    (re.compile(r"\b(?!127\.|0\.)\d{1,3}(?:\.\d{1,3}){3}\b"), "<address>"),
)


def masked(text: str, names: Mapping[str, str]) -> str:
    """A text without names, ids, addresses and secrets."""
    for pattern, mask in SECRETS:
        text = pattern.sub(mask, text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", names[name], text)
    return text
