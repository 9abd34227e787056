"""Running one check so that nothing that it meets can stop the others."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.doctor.model import Evidence, Finding
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.doctor.registry import Registered
from gpuhook.errors import GpuhookError


def run_one(check: Registered, node: Node) -> Iterator[Finding]:
    """The findings of a check; what it could not read, and a fault of its own, are findings too, and never "ok"."""
    slug = check.slugs[0]
    try:
        yield from check.run(node)
    except Unreadable as unreadable:
        yield Finding(slug=slug, level="skipped", text=f"not checked: {unreadable}")
    except GpuhookError as error:
        evidence = (Evidence(where=error.where),) if error.where else ()
        advice = (error.hint,) if error.hint else ()
        yield Finding(slug=error.reference, level="failure", text=error.text, evidence=evidence, advice=advice)
    except Exception as fault:  # noqa: BLE001  # a check that raises becomes a finding about the check
        text = f"the check itself failed ({type(fault).__name__}: {fault}); please report it"
        yield Finding(slug=slug, level="skipped", text=text)
