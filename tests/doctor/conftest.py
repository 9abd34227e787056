"""Fixture hosts, each made and looked at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node
from tests.doctor import hosts


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Finding, ...]]:
    """What the doctor finds on a host, by its name."""

    @cache
    def look(name: str) -> tuple[Finding, ...]:
        return hosts.findings(name, tmp_path_factory.mktemp(name))

    return look


@pytest.fixture
def host(tmp_path: Path) -> Callable[[str], Node]:
    """A host of its own, which a test may change."""
    return lambda name: hosts.made(name, tmp_path / name)
