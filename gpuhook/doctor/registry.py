"""The checks: a function for each, under its slug, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node

Check = Callable[[Node], Iterator[Finding]]
# The families, in the order in which a person would look: is there a GPU, its driver and its device nodes, the engine,
# Kubernetes, configuration, what will break later, the host around it.
FAMILIES = (
    "gpu",
    "driver",
    "nodes",
    "engine",
    "hooks",
    "kubernetes",
    "pods",
    "cdi",
    "settings",
    "later",
    "host",
    "packages",
)


@dataclass(frozen=True)
class Registered:
    """A check with its slugs (the first is its own; it may also yield findings of the others) and its family.

    after_fault: it runs last, and only where another one found a fault.
    """

    slugs: tuple[str, ...]
    family: str
    run: Check
    after_fault: bool = False


_checks: list[Registered] = []


def check(*slugs: str, family: str, after_fault: bool = False) -> Callable[[Check], Check]:
    """Registers a check. It yields findings; one that yields nothing found nothing to say."""

    def register(run: Check) -> Check:
        _checks.append(Registered(slugs, family, run, after_fault))
        return run

    return register


def checks() -> list[Registered]:
    """All checks, in the order of their families."""
    for family in FAMILIES:
        import_module(f"gpuhook.doctor.checks.{family}")
    return sorted(_checks, key=lambda one: (one.after_fault, FAMILIES.index(one.family)))
