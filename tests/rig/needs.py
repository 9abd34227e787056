"""What a tier needs. Where it is missing: a failure in CI, elsewhere a skip that says the reason."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def refuse(reason: str) -> NoReturn:
    """Skips the test; fails it in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have what its tests need: {reason}")
    pytest.skip(reason)


def need(*programs: str, root: bool = True) -> None:
    """Root, and these programs on PATH."""
    if root and os.geteuid() != 0:
        refuse("needs root")
    for program in programs:
        if not shutil.which(program):
            refuse(f"needs {program}")


def unified_host() -> bool:
    """Whether this machine's cgroups are version 2 alone."""
    return os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def need_cgroup(version: str) -> None:
    """Cgroups of this version: v2 can be had everywhere, v1 only where the devices hierarchy is mounted."""
    if version == "v1" and not os.path.exists("/sys/fs/cgroup/devices/tasks"):
        refuse("needs the devices hierarchy of cgroup v1")
