"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.driver.build import build
from tests.rig.needs import need
from tests.runtime.node import GPUS
from tests.shim.stand import Stand


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    """A place without a driver."""
    return Stand(tmp_path)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The root of a fake driver with three GPUs."""
    need("gcc")
    return build(str(tmp_path_factory.mktemp("driver")), gpus=GPUS).root


@pytest.fixture
def gpu_stand(tmp_path: Path, driver: str) -> Stand:
    """A place with that driver."""
    return Stand(tmp_path, root=driver)
