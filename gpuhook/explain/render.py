"""An explanation as text for a person: the verdict first, then what led to it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from gpuhook.errors import printable
from gpuhook.explain.model import Explanation
from gpuhook.terminal import Style

TITLES = {"inject": "gets its GPUs", "skip": "is left alone", "refuse": "does not start"}


@dataclass(frozen=True)
class Page:
    """How to print: colours and marks, and how wide."""

    style: Style
    width: int = 100

    @classmethod
    def here(cls) -> Page:
        """For standard output as it is now."""
        return cls(Style.of(sys.stdout), max(60, min(120, shutil.get_terminal_size((100, 24)).columns)))

    def rows(self, pairs: list[tuple[str, str]], indent: int = 2) -> Iterator[str]:
        """Two aligned columns; the second is wrapped."""
        left = min(34, max((len(name) for name, _ in pairs), default=0))
        for name, text in pairs:
            room = self.width - indent - left - 2
            lines = textwrap.wrap(printable(text), max(20, room), break_on_hyphens=False) or [""]
            yield f"{' ' * indent}{printable(name):<{left}}  {lines[0]}".rstrip()
            yield from (f"{' ' * (indent + left + 2)}{line}" for line in lines[1:])


def render(told: Explanation, page: Page, *, verbose: bool) -> Iterator[str]:
    """The lines of an explanation; verbose: every operation of the plan."""
    style = page.style
    mark = {"inject": style.good, "skip": style.plain, "refuse": style.bad}[told.verdict]
    yield f"{mark()} {style.bold(printable(told.container))} {TITLES[told.verdict]}: {printable(told.summary)}"
    if told.error is not None:
        yield from page.rows(
            [(name, text) for name, text in (("in", told.error.where), ("hint", told.error.hint)) if text]
        )
        yield f"  reference: {told.error.reference}"
    for warning in told.warnings:
        yield f"{style.warn()} {warning.reference}: {printable(warning.text)}"
    for note in told.notes:
        yield f"{style.plain()} {note.reference}: {printable(note.text)}"
    sections = (
        ("asked", [(f.what, f"{f.value or '(empty)'}  [{_place(f.where, f.effect)}]") for f in told.asked]),
        ("this node", [(f.what, f"{f.value}  [{f.where}]") for f in told.node]),
        ("GPUs", [(f"{d.index}  {d.uuid or d.bus_id}", d.model) for d in told.devices]),
        *_capabilities(told),
        ("requirements", [(r.source, f"{r.verdict}: {r.why or r.expression}") for r in told.requirements]),
        ("backend", [(told.backend, " ".join(told.command))] if told.backend else []),
    )
    for title, pairs in sections:
        if pairs:
            yield style.bold(title)
            yield from page.rows(pairs)
    yield from _plan(told, style, verbose=verbose)


def _capabilities(told: Explanation) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """What the container can do, and what it cannot, under the words that decided it."""
    for granted in (True, False):
        some = [capability for capability in told.capabilities if capability.granted is granted]
        for why in dict.fromkeys(capability.why for capability in some):
            title = f"{'capabilities' if granted else 'not in it'} ({why})"
            yield title, [(("" if granted else "no ") + c.name, c.brings) for c in some if c.why == why]


def _place(where: str, effect: str) -> str:
    return f"{where}: {effect}" if effect else where


def _plan(told: Explanation, style: Style, *, verbose: bool) -> Iterator[str]:
    if not told.plan:
        return
    kinds: dict[str, int] = {}
    for line in told.plan:
        kinds[line.split(" ")[0]] = kinds.get(line.split(" ")[0], 0) + 1
    counted = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    yield f"{style.bold('plan')} ({counted}{'' if verbose else '; -v lists all'})"
    if verbose:
        yield from (f"  {printable(line)}" for line in told.plan)
        if told.absent:
            yield style.bold("not found on this host")
            yield from (f"  {printable(line)}" for line in told.absent)
