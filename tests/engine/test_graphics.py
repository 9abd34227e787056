"""Files for the loaders of Vulkan, EGL and OpenCL arrive in a container, or are left out where it cannot take them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.plan.ops import Link
from tests.engine.conftest import LIBDIR, Scene
from tests.engine.perform import perform
from tests.rig.init import Init
from tests.rig.needs import unified_host
from tests.rig.rootfs import make_rootfs, put
from tests.runtime.node import Node

pytestmark = pytest.mark.engine

GROUP = not unified_host()
ICD, VENDOR = "/etc/vulkan/icd.d/nvidia_icd.json", "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"


def test_graphics_find_the_driver(node: Node, tmp_path: Path) -> None:
    """The host's JSON files stand where Vulkan and EGL look, over the image's own; EGL's helpers load."""
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    put(rootfs, {ICD.lstrip("/"): "the image's"})
    with Init(rootfs, group=GROUP) as init:
        done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=graphics")
        assert (done.status, done.stderr) == (0, "")
        seen = init.run(
            "/bin/probe", f"read:{ICD}", f"read:{VENDOR}", "dlopen:libnvidia-egl-gbm.so.1",
            f"stat:{LIBDIR}/gbm/nvidia-drm_gbm.so",
        ).seen  # fmt: skip
    assert '"libGLX_nvidia.so.0"' in (seen.content(ICD) or "")
    assert '"libEGL_nvidia.so.0"' in (seen.content(VENDOR) or "")
    assert seen.library("libnvidia-egl-gbm.so.1")["file"] == f"{LIBDIR}/libnvidia-egl-gbm.so.1.1.1"
    assert seen.stat(f"{LIBDIR}/gbm/nvidia-drm_gbm.so")["target"] == "../libnvidia-allocator.so.1"


@pytest.mark.parametrize("dispensable", [True, False])
def test_on_a_read_only_root(scene: Scene, dispensable: bool) -> None:
    """What cannot be put in is left out with a note; only what a container cannot do without stops it."""
    ops = (
        scene.bind("liba.so", "/usr/share/glvnd/egl_vendor.d/a.json").with_(dispensable=dispensable),
        Link(target="/usr/lib/gbm/a.so", to="../a.so.1", dispensable=dispensable),
    )
    with Init(scene.rootfs, readonly=True) as init:
        outcome = perform(init, scene.host, *ops)
    assert outcome.slug == ("" if dispensable else "rootfs-readonly")
    assert ("left out: " in outcome.notes) is dispensable


@pytest.mark.attack
def test_where_something_else_stands(scene: Scene) -> None:
    """A folder or a link of the image in the place of a dispensable file: left out, and nothing else is touched."""
    os.makedirs(f"{scene.rootfs}/etc/vulkan/icd.d/a.json")
    os.symlink(f"{scene.canary}/folder", f"{scene.rootfs}/etc/glvnd")
    before = scene.files()
    ops = [
        scene.bind("liba.so", path).with_(dispensable=True) for path in ("/etc/vulkan/icd.d/a.json", "/etc/glvnd/a")
    ]
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, *ops).error == ""
    assert before.differences(scene.files()) == []


def test_a_source_that_is_gone(scene: Scene) -> None:
    """Removed since the inventory was taken."""
    op = scene.bind("gone.json").with_(dispensable=True)
    with Init(scene.rootfs) as init:
        outcome = perform(init, scene.host, op, scene.bind("liba.so"))
    assert outcome.error == ""
    assert "left out" in outcome.notes
