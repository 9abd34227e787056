"""What a given container adds to the report: its explanation's warnings and error."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.doctor.model import Evidence, Finding
from gpuhook.doctor.node import Node
from gpuhook.errors import GpuhookError


def of_container(node: Node, name: str) -> Iterator[Finding]:
    """The findings about a container of Docker or Podman."""
    from gpuhook.explain.decide import explain
    from gpuhook.explain.engines import inspected

    engine = "docker" if node.which("docker") else "podman"
    try:
        [subject] = inspected(engine, name)
    except GpuhookError as error:
        yield Finding(slug=error.reference, level="skipped", text=f"container {name}: {error.text}")
        return
    told = explain(subject)
    for warning in told.warnings:
        yield Finding(slug=warning.reference, level="warning", text=f"container {name}: {warning.text}")
    if told.error is not None:
        yield Finding(
            slug=told.error.reference,
            level="failure",
            text=f"container {name}: {told.error.text}",
            evidence=(Evidence(where=told.error.where),) if told.error.where else (),
            advice=(told.error.hint,) if told.error.hint else (),
        )
