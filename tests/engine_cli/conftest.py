"""The program as callers start it, and a fake driver in each layout."""

from __future__ import annotations

import pytest

from fixtures.driver.build import LAYOUTS, build
from fixtures.driver.model import FakeDriver
from gpuhook.launchers import write_launcher
from tests.engine_cli.cli import Cli
from tests.rig.needs import need
from tests.runtime.node import GPUS, Node, make_node


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The launcher, under NVIDIA's name."""
    return str(write_launcher(tmp_path_factory.mktemp("bin"), "nvidia-container-cli"))


# pytest's own folders are root's alone; the user who asks the driver's libraries has to get into a driver root.
@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    need("gcc")
    return build(f"{tmp_path_factory.mktemp('driver')}/root", gpus=GPUS)


@pytest.fixture
def cli(program: str, driver: FakeDriver) -> Cli:
    return Cli(program, driver.root)


@pytest.fixture(scope="session", params=LAYOUTS)
def laid_out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    need("gcc")
    return build(f"{tmp_path_factory.mktemp(request.param)}/root", gpus=GPUS, layout=request.param)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need("runc", "crun")
    return make_node(str(tmp_path_factory.mktemp("node")))


@pytest.fixture(scope="session")
def cut(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """Two GPUs of two MIG devices each; index and minor differ."""
    need("gcc")
    mig = [
        [{"uuid": f"MIG-0000000{gpu}-0000-0000-0000-00000000000{gi}", "gi": gi, "ci": 0} for gi in (1, 2)]
        for gpu in (0, 1)
    ]
    gpus = [{"minor": 1, "mig": mig[0]}, {"minor": 0, "mig": mig[1]}]
    return build(f"{tmp_path_factory.mktemp('cut')}/root", gpus=gpus, layout="driver-root")
