"""The node that all tests of this folder share."""

from __future__ import annotations

import pytest

from tests.rig.needs import need
from tests.runtime.node import Node, make_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need("runc", "crun")
    return make_node(str(tmp_path_factory.mktemp("node")))
