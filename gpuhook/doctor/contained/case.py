"""A container to look at: what it asks for, what is known of it, and the node that it is on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node
from gpuhook.explain.subject import Subject
from gpuhook.request.model import Request
from gpuhook.settings.values import Settings


class Tree(Node):
    """A container's root filesystem. Its links are followed inside it, and nothing beside it is looked at."""

    @property
    def is_real(self) -> bool:
        """Never this machine."""
        return False

    def _beside(self, name: str, default: object) -> object:  # noqa: ARG002  # there is nothing of any name
        return default


@dataclass(frozen=True)
class Case:
    """request: None for a container that is left alone."""

    subject: Subject
    settings: Settings
    node: Node
    request: Request | None = None

    @property
    def env(self) -> dict[str, str]:
        """The container's variables."""
        return self.subject.bundle.env

    @property
    def names(self) -> tuple[str, ...]:
        """The devices that are asked for."""
        return self.request.devices.names if self.request else ()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The driver's capabilities that it gets."""
        return self.request.capabilities if self.request else ()

    @property
    def image(self) -> Node | None:
        """Its files, None where they cannot be read from here."""
        root = self.subject.traits.rootfs
        return Tree(root.rstrip("/")) if root and os.access(root, os.R_OK | os.X_OK) else None


Look = Callable[[Case], Iterator[Finding]]
LOOKS: list[tuple[tuple[str, ...], Look]] = []


def look(*slugs: str) -> Callable[[Look], Look]:
    """Registers what looks at a container that asks for GPUs."""

    def register(run: Look) -> Look:
        LOOKS.append((slugs, run))
        return run

    return register
