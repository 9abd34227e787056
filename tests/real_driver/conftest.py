"""The real drivers that `make test-real-driver` has fetched; without it these tests are left out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.real_driver.roots import LAYOUTS, Real, Shipped, make, shipped
from tests.rig.needs import need
from tools.real_driver import Generation, cache_folder, ready

ASKED = bool(os.environ.get("GPUHOOK_REAL_DRIVER"))
GENERATIONS = tuple(ready()) if ASKED else ()
NUMBERS: list[str] = []  # what was measured
Roots = Callable[[Generation, str], Real]


@pytest.fixture(scope="session", params=GENERATIONS or [None], ids=[each.version for each in GENERATIONS] or ["none"])
def generation(request: pytest.FixtureRequest) -> Generation:
    """Each driver generation that was fetched; at least two."""
    if not ASKED:
        pytest.skip("make test-real-driver runs it")
    assert len(GENERATIONS) > 1, "python -m tools.real_driver has not fetched two generations"
    need("readelf")
    found: Generation = request.param
    return found


@pytest.fixture(scope="session")
def roots() -> Iterator[Roots]:
    """Makes driver roots beside what was fetched, once each, and removes them in the end."""
    with tempfile.TemporaryDirectory(prefix=".roots-", dir=cache_folder()) as folder:

        @cache
        def root(generation: Generation, layout: str) -> Real:
            other = next(each for each in GENERATIONS if each.slot != generation.slot)
            return make(generation, layout, Path(folder), other)

        yield root


@pytest.fixture(params=LAYOUTS)
def real(request: pytest.FixtureRequest, generation: Generation, roots: Roots) -> Real:
    """A driver root of each generation in each layout."""
    return roots(generation, request.param)


@pytest.fixture(scope="session")
def libraries(generation: Generation) -> list[Shipped]:
    """What the packages of this generation ship."""
    return shipped(generation)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was measured, failed or not."""
    for line in NUMBERS:
        terminalreporter.write_line(line)
