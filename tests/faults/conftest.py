"""A room for faults: the hook, a configuration and a bundle for a driver and a tree that each trial makes anew."""

from __future__ import annotations

import os

import pytest

from fixtures.driver.native_build import compiled
from tests.faults.trial import Place
from tests.rig.needs import need
from tests.runtime.node import RULES, Node, make_node

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need()
    return make_node(str(tmp_path_factory.mktemp("node")))


@pytest.fixture(scope="session")
def at(node: Node) -> str:
    """The path of the program that lets a fault happen at a step."""
    path = f"{node.folder}/at"
    with open(path, "wb") as file:
        file.write(compiled(f"{HERE}/at.c", ["-O1", "-static"]))
    os.chmod(path, 0o755)
    return path


@pytest.fixture(scope="session")
def place(node: Node, at: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place for a container that asks for a GPU and the driver's tools."""
    room = str(tmp_path_factory.mktemp("room"))
    config = node.config(cli={"root": f"{room}/driver", "load-kmods": False, **RULES})
    wants = ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=utility,graphics")
    return Place(room, at, node.bundle(f"{room}/rootfs", *wants), (node.launcher, "--config", config, "prestart"))
