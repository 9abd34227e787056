"""Podman, as root, with a hooks directory: the same hook, registered once for all containers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.rig.needs import need
from tests.rig.process import run
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import COMMON, Node

pytestmark = pytest.mark.runtime

# In a mount namespace of its own, in which podman's storage may mount what it likes.
ALONE = """
import os, sys
from tests.rig import kernel
kernel.private_mounts()
kernel.show_cgroups("v1")
os.execvp(sys.argv[1], sys.argv[1:])
"""
PROJECT = str(Path(__file__).resolve().parents[2])


@pytest.fixture
def runroot() -> Iterator[str]:
    """A folder with a short name: podman takes 50 characters."""
    with TemporaryDirectory(prefix="gpuhook-", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.parametrize(("asked", "nodes"), [("1", [*COMMON, "/dev/nvidia0"]), ("void", [])])
def test_a_hooks_directory(node: Node, tmp_path: Path, runroot: str, asked: str, nodes: list[str]) -> None:
    """A container that asks gets its GPU and loads the driver, another one gets nothing."""
    need("podman")
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    entry = {"version": "1.0.0", "hook": node.hook().entry(), "when": {"always": True}, "stages": ["prestart"]}
    (hooks / "gpuhook.json").write_text(json.dumps(entry))
    limits = ["--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000"]  # else podman raises them, if it may
    argv = [
        "podman", "--root", f"{tmp_path}/storage", "--runroot", runroot, "--tmpdir", f"{runroot}/tmp",
        "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--hooks-dir", str(hooks), "--runtime", "runc",
        "run", "--rm", "--network", "none", *limits, "--log-driver", "none",
        "--env", f"NVIDIA_VISIBLE_DEVICES={asked}",
        "--rootfs", rootfs, "/bin/probe", "devices", "dlopen:libcuda.so.1",
    ]  # fmt: skip
    done = run([sys.executable, "-c", ALONE, *argv], cwd=PROJECT, env={**os.environ, "HOME": str(tmp_path)})
    assert done.status == 0, done.stderr
    assert sorted(done.seen.devices) == sorted(nodes)
    assert done.seen.library("libcuda.so.1").get("cuda") == (12040 if nodes else None)
