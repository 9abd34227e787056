"""The checks: a function for each, under its slug, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node

Check = Callable[[Node], Iterator[Finding]]
# The families, in the order in which a person would look: is there a GPU, its driver, the engine, configuration, what
# will break later, and what a given container adds.
FAMILIES = ("gpu", "driver", "engine", "kubernetes", "settings", "later", "host")


@dataclass(frozen=True)
class Registered:
    """A check with its slugs (the first is its own; it may also yield findings of the others) and its family."""

    slugs: tuple[str, ...]
    family: str
    run: Check


_checks: list[Registered] = []


def check(*slugs: str, family: str) -> Callable[[Check], Check]:
    """Registers a check. It yields findings; one that yields nothing found nothing to say."""

    def register(run: Check) -> Check:
        _checks.append(Registered(slugs, family, run))
        return run

    return register


def checks() -> list[Registered]:
    """All checks, in the order of their families."""
    for family in FAMILIES:
        import_module(f"gpuhook.doctor.checks.{family}")
    return sorted(_checks, key=lambda one: FAMILIES.index(one.family))


def findings(node: Node, only: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Run the checks (those of `only`, if any). A check that fails is itself a finding, and the others go on."""
    from gpuhook.doctor.run import run_one

    for one in checks():
        if not only or set(only) & set(one.slugs):
            yield from (found for found in run_one(one, node) if not only or found.slug in only)
