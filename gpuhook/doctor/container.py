"""What a given container adds to the report: its explanation's warnings and error."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.doctor.model import Finding, Level, tell
from gpuhook.doctor.node import Node
from gpuhook.errors import GpuhookError, Usage
from gpuhook.explain.model import Problem
from gpuhook.explain.subject import Subject


def of_container(node: Node, name: str) -> Iterator[Finding]:
    """The findings about a container of Docker or Podman, whichever knows it."""
    from gpuhook.explain.decide import explain

    subject = _asked(node, name)
    if isinstance(subject, GpuhookError):
        yield tell(subject.reference, "skipped", f"container {name}: {subject.text}", *_place(subject.where))
        return
    told = explain(subject)
    for warning in told.warnings:
        yield _of(name, warning, "warning")
    for note in told.notes:
        yield _of(name, note, "note")
    if told.error is not None:
        yield _of(name, told.error, "failure")
    if not (told.warnings or told.error):
        yield tell("hook-not-invoked", "ok", f"container {name}: {told.summary}")


def _asked(node: Node, name: str) -> Subject | GpuhookError:
    from gpuhook.explain.engines import inspected

    found: Subject | GpuhookError = Usage("neither docker nor podman is installed here")
    for engine in ("docker", "podman"):
        if not node.which(engine):
            continue
        try:
            return inspected(engine, name)[0]
        except GpuhookError as error:
            found = error
    return found


def _place(where: str) -> list[tuple[str]]:
    return [(where,)] if where else []


def _of(name: str, problem: Problem, level: Level) -> Finding:
    text = f"container {name}: {problem.text}"
    return tell(problem.reference, level, text, *_place(problem.where), advice=problem.hint or ())
