"""What a given container adds to the report: its explanation's warnings and error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from gpuhook.doctor.model import Finding, Level, tell
from gpuhook.doctor.node import Node
from gpuhook.errors import GpuhookError
from gpuhook.explain.model import Problem
from gpuhook.explain.subject import Subject

UNKNOWN = "bad-bundle"


def of_container(node: Node, name: str) -> Iterator[Finding]:
    """The findings about a container of Docker, Podman or containerd, whichever knows it."""
    from gpuhook.explain.decide import explain

    subject = _asked(node, name)
    if isinstance(subject, Finding):
        yield subject
        return
    told = explain(subject)
    for warning in told.warnings:
        yield _of(name, warning, "warning")
    for note in told.notes:
        yield _of(name, note, "note")
    if told.error is not None:
        yield _of(name, told.error, "failure")
    if not (told.warnings or told.error):
        yield tell("hook-not-invoked", "ok", f"{head(name)}{told.summary}")


def head(name: str) -> str:
    """What findings about a container begin with."""
    return f"container {name}: "


def _asked(node: Node, name: str) -> Subject | Finding:
    """The container, from the first engine that knows it; else what each of them said."""
    said: list[tuple[str, ...]] = []
    for engine, ask in _engines(node):
        answer = _answer(ask, name)
        if isinstance(answer, Subject):
            return answer
        said.append((answer.where or engine, answer.text))
    text = f"{head(name)}not checked: no engine of this node tells of it"
    advice = ("`docker ps --all` and `podman ps --all` list containers", *(["ask as root"] if os.geteuid() else []))
    return tell(UNKNOWN, "skipped", text, *said, advice=advice)


def _answer(ask: Callable[[str], Subject], name: str) -> Subject | GpuhookError:
    try:
        return ask(name)
    except GpuhookError as error:
        return error


def _engines(node: Node) -> Iterator[tuple[str, Callable[[str], Subject]]]:
    from gpuhook.explain import engines

    for engine in ("docker", "podman"):
        if node.which(engine):
            yield engine, lambda name, engine=engine: engines.inspected(engine, name)[0]  # type: ignore[misc]
    if node.exists(engines.TASKS):
        yield "containerd", engines.of_containerd


def _of(name: str, problem: Problem, level: Level) -> Finding:
    place = [(problem.where,)] if problem.where else []
    return tell(problem.reference, level, f"{head(name)}{problem.text}", *place, advice=problem.hint or ())
