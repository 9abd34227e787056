"""An explanation as text for a person: the verdict first, then what led to it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from gpuhook.explain.model import Explanation, Problem
from gpuhook.terminal import Mark, Style, columns, shown, wrapped

TITLES = {"inject": "gets its GPUs", "skip": "is left alone", "refuse": "does not start"}
MARKS: dict[str, Mark] = {"inject": "good", "skip": "plain", "refuse": "bad"}


@dataclass(frozen=True)
class Page:
    """How to print: colours and marks, and how wide."""

    style: Style
    width: int = 100

    @classmethod
    def here(cls) -> Page:
        """For standard output as it is now."""
        return cls(Style.of(sys.stdout), columns(100, 120))

    def rows(self, pairs: list[tuple[str, str]], indent: int = 2) -> Iterator[str]:
        """Two aligned columns; the second is wrapped."""
        left = min(34, max((len(shown(name)) for name, _ in pairs), default=0))
        for name, text in pairs:
            room = self.width - indent - left - 2
            lines = textwrap.wrap(shown(text), max(20, room), break_on_hyphens=False) or [""]
            yield f"{' ' * indent}{shown(name):<{left}}  {lines[0]}".rstrip()
            yield from (f"{' ' * (indent + left + 2)}{line}" for line in lines[1:])


def render(told: Explanation, page: Page, *, verbose: bool) -> Iterator[str]:
    """The lines of an explanation; verbose: every operation of the plan."""
    style = page.style
    title = "gets no GPU" if told.uncalled else TITLES[told.verdict]
    mark: Mark = "warn" if told.uncalled else MARKS[told.verdict]
    yield from style.item(mark, f"{told.container} {title}", f": {told.summary}", page.width)
    if told.error is not None:
        yield from _below(told.error, page)
        yield f"  more: gpuhook why {shown(told.error.reference)}"
    for warning in told.warnings:
        yield from _problem("warn", warning, page)
    for note in told.notes:
        yield from _problem("plain", note, page)
    sections = (
        ("asked", [(f.what, f"{f.value or '(empty)'}  [{_place(f.where, f.effect)}]") for f in told.asked]),
        ("this node", [(f.what, f"{f.value}  [{f.where}]") for f in told.node]),
        ("GPUs", [(f"{d.index}  {d.uuid or d.bus_id}", d.model) for d in told.devices]),
        *_capabilities(told),
        ("requirements", [(r.source, f"{r.verdict}: {r.why or r.expression}") for r in told.requirements]),
        ("backend", [(told.backend, " ".join(told.command))] if told.backend else []),
    )
    for name, pairs in sections:
        if pairs:
            yield from map(style.bold, wrapped(name, page.width, rest="  "))
            yield from page.rows(pairs)
    yield from _plan(told, style, verbose=verbose)


def _problem(mark: Mark, problem: Problem, page: Page) -> Iterator[str]:
    yield from page.style.item(mark, problem.reference, f": {problem.text}", page.width)
    yield from _below(problem, page)


def _below(problem: Problem, page: Page) -> Iterator[str]:
    """Where it is, and what to do."""
    if problem.where:
        yield from wrapped(f"in {problem.where}", page.width, "  ", "    ")
    if problem.hint:
        yield from page.style.advice(problem.hint, page.width)


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
        yield from (f"  {shown(line)}" for line in told.plan)
        if told.absent:
            yield style.bold("not found on this host")
            yield from (f"  {shown(line)}" for line in told.absent)
