"""WSL2 from Windows' folders into a container. What only a real WSL2 can show, libdxcore at work, is not tested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.driver.wsl import COMPONENTS, DRIVER, NODE, build_wsl
from tests.rig.init import Init
from tests.rig.needs import need, unified_host
from tests.rig.rootfs import TRIPLET, make_rootfs
from tests.runtime.node import RULES, Node

pytestmark = pytest.mark.engine

GROUP = not unified_host()
LIBDIR = f"/usr/lib/{TRIPLET}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    need("gcc")
    folder = tmp_path_factory.mktemp("wsl")
    folder.chmod(0o755)
    return build_wsl(str(folder / "root"))


@pytest.mark.parametrize("devices", ["all", "0"])
def test_a_container_on_wsl(node: Node, tmp_path: Path, root: str, devices: str) -> None:
    """The one node with its rule; libraries by their SONAMEs; the store at the same path; no procfs, no profile."""
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    with Init(rootfs, group=GROUP) as init:
        env = (f"NVIDIA_VISIBLE_DEVICES={devices}", "NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics")
        done = node.prestart(init, *env, config=node.config(cli={**RULES, "root": root}))
        assert (done.status, done.stderr) == (0, "")
        points = init.mount_points
        rules = init.rules if GROUP else []
        seen = init.run("/bin/probe", "stat:/dev/dxg", "dlopen:libcuda.so.1", "dlopen:libdxcore.so", "devices").seen
    assert seen.stat("/dev/dxg")["kind"] == "char"
    assert not GROUP or f"c {NODE[0]}:{NODE[1]} rw" in rules
    assert seen.devices == {}
    assert (seen.library("libcuda.so.1")["file"], seen.library("libcuda.so.1")["cuda"]) == (
        f"{LIBDIR}/libcuda.so.1",
        12040,
    )
    assert seen.library("libdxcore.so")["file"] == f"{LIBDIR}/libdxcore.so"
    for name in COMPONENTS:
        assert {"ro", "nosuid", "nodev"} <= set(points[f"{DRIVER}/{name}"].split(","))
    assert "/usr/bin/nvidia-smi" in points
    assert not [point for point in points if point.startswith(("/etc/nvidia", "/proc/driver"))]


def test_only_the_library_that_everything_needs(node: Node, tmp_path: Path, root: str) -> None:
    """Without a GPU and with one capability: dxcore and the node, nothing of the store."""
    with Init(make_rootfs(str(tmp_path / "rootfs"), "debian"), group=GROUP) as init:
        env = ("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_DRIVER_CAPABILITIES=utility")
        done = node.prestart(init, *env, config=node.config(cli={**RULES, "root": root}))
        assert (done.status, done.stderr) == (0, "")
        points = init.mount_points
    assert {f"{LIBDIR}/libdxcore.so", "/dev/dxg"} <= set(points)
    assert not [point for point in points if "libcuda" in point or point.startswith(os.path.dirname(DRIVER))]


def test_requirements_on_wsl(node: Node, tmp_path: Path, root: str) -> None:
    """NVML is asked for the driver's version and the GPUs, also where `all` needs neither."""
    with Init(make_rootfs(str(tmp_path / "rootfs"), "debian"), group=GROUP) as init:
        config = node.config(cli={**RULES, "root": root})
        for requirement, status in (("driver>=551 arch>=9", 0), ("driver>=560", 1), ("cuda>=12.4,arch=7.5", 0)):
            env = ("NVIDIA_VISIBLE_DEVICES=all", f"NVIDIA_REQUIRE_CUDA={requirement}")
            done = node.prestart(init, *env, config=config)
            assert done.status == status, done.stderr
