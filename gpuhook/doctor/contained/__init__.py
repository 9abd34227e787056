"""Checks of a container: what it asks for and how it is made, against this node."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from gpuhook.doctor.contained.case import LOOKS, Case, Look
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.errors import GpuhookError
from gpuhook.explain.subject import Subject
from gpuhook.oci.state import State
from gpuhook.request.build import build_request
from gpuhook.request.devices import choose_devices
from gpuhook.settings.values import Settings

PID = 2**22  # stands for the container's process
# What the hook itself says of a container, as warnings and errors, in gpuhook/request and gpuhook/explain.
BY_THE_HOOK = ("strict-mode-mismatch", "hook-not-invoked", "runtime-not-registered", "env-all-exposes")


def slugs() -> list[str]:
    """The slugs that these checks can report."""
    _load()
    return list(dict.fromkeys(slug for some, _ in LOOKS for slug in some))


def _load() -> None:
    for name in ("request", "libraries", "spec", "image"):
        import_module(f"gpuhook.doctor.contained.{name}")


def findings(case: Case) -> Iterator[Finding]:
    """What the checks say of it. One that fails is itself a finding, and the others go on."""
    _load()
    for some, run in LOOKS:
        yield from _guarded(some[0], run, case)


def _guarded(slug: str, run: Look, case: Case) -> Iterator[Finding]:
    try:
        yield from run(case)
    except Unreadable as unreadable:
        yield tell(slug, "skipped", f"not checked: {unreadable}")
    except Exception as fault:  # noqa: BLE001  # a check that raises becomes a finding about the check
        yield tell(slug, "skipped", f"the check itself failed ({type(fault).__name__}: {fault}); please report it")


def examine(subject: Subject, settings: Settings, node: Node) -> Iterator[Finding]:
    """All that can be said of a container without asking the driver: the hook's own words, then the checks'."""
    request = None
    try:
        choice, warnings = choose_devices(subject.bundle, settings)
        where = (subject.source,)
        yield from (tell(slug, "warning", text, where) for slug, text in warnings)
        if choice is not None:
            yield from (tell(slug, "warning", text, where) for slug, text in subject.remarks)
            yield from (tell(slug, "note", text, where) for slug, text in subject.notes)
            if subject.uncalled is not None:
                slug, text, advice = subject.uncalled
                yield tell(slug, "warning", text, where, advice=advice)
            state = State(pid=PID, bundle=subject.bundle.path, id=subject.name)
            request = build_request(state, subject.bundle, settings.with_(warnings=()), choice)
            yield from (tell(slug, "warning", text, where) for slug, text in request.warnings)
    except GpuhookError as error:
        yield tell(
            error.reference,
            "failure",
            error.text,
            *([(error.where,)] if error.where else []),
            advice=error.hint or (),
        )
        return
    yield from findings(Case(subject, settings, node, request))
