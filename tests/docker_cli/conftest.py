"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docker_cli.stand import Stand


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    """A wrapper and a docker."""
    return Stand(tmp_path)
