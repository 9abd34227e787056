"""A kernel that lacks a call is refused with the way out, before or after anything was looked at (decisions.md 15)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.rig import old_kernel
from tests.rig.init import Init, run_hook
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import RULES, Node, state_of

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86-64's"),
]
CALLS = {
    "statx": 332, "open_tree": 428, "move_mount": 429, "fsopen": 430, "pidfd_open": 434, "openat2": 437,
    "mount_setattr": 442,
}  # fmt: skip


@pytest.mark.parametrize("call", sorted(set(CALLS) - {"fsopen"}))
def test_a_call_that_the_kernel_lacks(node: Node, tmp_path: Path, call: str) -> None:
    """The message names the call, the kernel and nvidia-container-cli; nothing is changed."""
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    config = node.config(cli={"load-kmods": False, **RULES})
    with Init(rootfs) as init:
        before, mounts = state_of(rootfs), init.mounts
        argv = [sys.executable, old_kernel.__file__, str(CALLS[call]), node.launcher, "--config", config, "prestart"]
        done = run_hook(argv, init.state(node.bundle(rootfs, "NVIDIA_VISIBLE_DEVICES=0")))
        assert done.status != 0
        assert done.stderr.startswith("gpuhook: kernel-too-old: Linux ")
        assert call in done.stderr.splitlines()[0]
        assert "nvidia-container-cli" in done.stderr
        assert (before.differences(state_of(rootfs)), mounts) == ([], init.mounts)
