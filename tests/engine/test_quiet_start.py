"""The usual start, seen from outside: no program is executed, no device of the driver is opened, nothing is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rig.init import Init, run_hook
from tests.rig.needs import need, unified_host
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import Node

pytestmark = pytest.mark.engine

NODE = re.compile(r'"(?:[^"]*/dev/)?nvidia(?:ctl|-uvm|-uvm-tools|-modeset|[0-9]+)"')
CALLS = "execve,execveat,open,openat,openat2"


def traced(node: Node, tmp_path: Path, *env: str) -> list[str]:
    """The calls by which the hook and its children open files and execute programs."""
    need("strace")
    log = tmp_path / "calls"
    with Init(make_rootfs(str(tmp_path / "rootfs"), "debian"), group=not unified_host()) as init:
        bundle = node.bundle(init.rootfs, "NVIDIA_VISIBLE_DEVICES=all", *env)
        argv = ["strace", "-f", "-o", str(log), "-e", f"trace={CALLS}", node.launcher]
        done = run_hook([*argv, "--config", node.config(), "prestart"], init.state(bundle), timeout=120)
        assert (done.status, done.stderr) == (0, "")
    return log.read_text().splitlines()


@pytest.mark.parametrize("capabilities", ["compute,utility", "all"])
def test_a_usual_start(node: Node, tmp_path: Path, capabilities: str) -> None:
    """Forked children of our own are fine; the driver's nodes are only named (O_PATH), never opened."""
    calls = traced(node, tmp_path, f"NVIDIA_DRIVER_CAPABILITIES={capabilities}")
    assert len([call for call in calls if " execve" in call]) == 1  # the hook itself
    devices = [call for call in calls if NODE.search(call)]
    assert len(devices) > 4
    assert [call for call in devices if "O_PATH" not in call and "O_CREAT|O_EXCL" not in call] == []
