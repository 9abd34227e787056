"""A node with a fake driver, for explanations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """A driver with the GPUs that the sample bundles name."""
    return build(str(tmp_path_factory.mktemp("driver")), gpus=2)


@pytest.fixture
def node(tmp_path: Path, driver: FakeDriver) -> Callable[[str, str], str]:
    """Writes a config.toml for this driver and returns its path; the second argument is the [nvidia-container-cli]."""

    def write(top: str = "", cli: str = "") -> str:
        path = tmp_path / "config.toml"
        path.write_text(f'{top}[nvidia-container-cli]\nroot = "{driver.root}"\nload-kmods = false\n{cli}')
        return str(path)

    return write
