"""A container's start under a real runtime, its hook traced: no program is executed, no device is opened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fixtures.driver.build import build
from tests.rig.container import Container, Hook
from tests.rig.needs import need
from tests.runtime.node import PAIRS, Node

pytestmark = pytest.mark.runtime

# Every node that the driver has: nvidiactl, nvidia0, nvidia-uvm, nvidia-caps/nvidia-cap1, …-imex-channels/channel0.
NODE = re.compile(r'"[^"]*/?(?:nvidia(?:ctl|-uvm|-uvm-tools|-modeset|[0-9]+)|nvidia-cap[0-9]+|channel[0-9]+)"')
CALLS = "execve,execveat,open,openat,openat2"


def traced(node: Node, log: Path, config: str, env: tuple[str, ...], pair: tuple[str, str]) -> list[str]:
    """The calls of the hook and of its children that open files or execute programs."""
    need("strace")
    words = ("-f", "-o", str(log), "-e", f"trace={CALLS}", node.launcher, "--config", config, "prestart")
    hooks = {"prestart": [Hook("/usr/bin/strace", words, env=("PATH=/usr/bin:/bin",))]}
    runtime, cgroup = pair
    with Container(kind="debian", runtime=runtime, cgroup=cgroup, env=env, hooks=hooks) as container:
        container.args = ("/bin/probe", "devices", "dlopen:libcuda.so.1")
        container.write_spec()
        result = container.run(timeout=120)
    assert result.status == 0, result.stderr
    assert result.seen.library("libcuda.so.1")["cuda"] == 12040
    assert result.seen.devices != {}
    return log.read_text().splitlines()


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("slices", [False, True])
def test_a_usual_start_of_a_container(node: Node, tmp_path: Path, pair: tuple[str, str], slices: bool) -> None:
    """With everything that the driver has, MIG devices and an IMEX channel too: its nodes are only named (O_PATH)."""
    env: tuple[str, ...] = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all")
    config = node.config()
    if slices:
        driver = build(str(tmp_path / "driver"), gpus=2, mig=True, imex_channels=(0,))
        config = node.config(cli={"root": driver.root, "load-kmods": False})
        env += ("NVIDIA_IMEX_CHANNELS=0",)
    calls = traced(node, tmp_path / "calls", config, env, pair)
    assert len([call for call in calls if " execve" in call]) == 1  # the hook itself
    devices = [call for call in calls if NODE.search(call)]
    assert len(devices) > 4
    assert any("nvidia-cap" in call for call in devices) is slices
    assert any("/channel0" in call for call in devices) is slices
    assert [call for call in devices if "O_PATH" not in call and "O_CREAT|O_EXCL" not in call] == []
