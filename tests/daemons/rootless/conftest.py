"""One ordinary user for all tests of rootless containers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.daemons.rootless.user import User, make_user
from tests.rig.needs import need


@pytest.fixture(scope="session")
def user() -> Iterator[User]:
    need("podman", "runc", "crun", "newuidmap", "newgidmap", "setpriv", "tar")
    # pytest's own folders are root's alone
    with tempfile.TemporaryDirectory(prefix="gpuhook-rootless-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        made = make_user(folder)
        try:
            yield made
        finally:
            made.close()
