"""The hook on a container's first process, without a runtime around it: what the parts do together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from fixtures.driver.build import build
from fixtures.driver.elf import shared_object
from tests.engine.perform import PROJECT
from tests.rig.init import Init
from tests.rig.needs import unified_host
from tests.rig.process import run
from tests.rig.rootfs import TRIPLET, index, make_rootfs, put
from tests.runtime.node import COMMON, RULES, Node, state_of

pytestmark = pytest.mark.engine

LIBDIR = f"/usr/lib/{TRIPLET}"
GROUP = not unified_host()
ALL = "NVIDIA_VISIBLE_DEVICES=all"


@pytest.fixture
def rootfs(tmp_path: Path) -> str:
    return make_rootfs(str(tmp_path / "rootfs"), "debian")


def warnings(stderr: str) -> list[str]:
    """The slugs of the warnings, in order."""
    lines = [line for line in stderr.splitlines() if line.startswith("gpuhook: warning: ")]
    return [line.split(": ")[2] for line in lines]


def test_the_hosts_driver_wins_over_the_images(node: Node, rootfs: str) -> None:
    """An image with driver files of another version: the loader is led to the host's, the image stays as it is."""
    old = f"{rootfs}{LIBDIR}"
    put(old, {"libnvidia-ml.so.515.65.01": shared_object("libnvidia-ml.so.1")})
    put(old, {"libcuda.so.1": shared_object("libcuda.so.1")})  # a file, not a link
    put(rootfs, {"usr/bin/nvidia-smi": b"the image's"}, 0o755)
    index(rootfs)
    assert os.readlink(f"{old}/libnvidia-ml.so.1") == "libnvidia-ml.so.515.65.01"
    before = state_of(rootfs).entries
    with Init(rootfs, group=GROUP) as init:
        done = node.prestart(init, ALL)
        assert done.status == 0, done.stderr
        seen = init.run("/bin/probe", "dlopen:libnvidia-ml.so.1", "dlopen:libcuda.so.1").seen
        program = Path(init.path("/usr/bin/nvidia-smi")).read_bytes()
    assert program == Path(node.driver.path("/usr/bin/nvidia-smi")).read_bytes()
    assert seen.library("libnvidia-ml.so.1")["file"] == f"{LIBDIR}/libnvidia-ml.so.550.54.14"
    assert seen.library("libcuda.so.1")["file"] == f"{LIBDIR}/libcuda.so.550.54.14"
    assert seen.library("libcuda.so.1")["cuda"] == 12040
    assert warnings(done.stderr) == ["image-has-driver-files"] * 2
    assert "libnvidia-ml.so.515.65.01" in done.stderr
    after = state_of(rootfs).entries
    changed = [path for path in before if before[path] != after.get(path)]
    assert [path for path in changed if not os.path.isdir(path)] == [f"{rootfs}/etc/ld.so.cache"]


@pytest.mark.parametrize("layout", ["debian", "rhel", "driver-root"])
@pytest.mark.parametrize("kind", ["debian", "rhel"])
def test_every_layout_serves_every_image(node: Node, tmp_path: Path, layout: str, kind: str) -> None:
    """Where the host has its libraries does not matter to where the container finds them."""
    driver = build(str(tmp_path / "driver"), layout=layout)
    rootfs = make_rootfs(str(tmp_path / "rootfs"), kind)
    config = node.config(cli={**RULES, "root": driver.root})
    with Init(rootfs, group=GROUP) as init:
        done = node.prestart(init, ALL, config=config)
        assert (done.status, done.stderr) == (0, "")
        seen = init.run("/bin/probe", "devices", "dlopen:libcuda.so.1").seen
    folder = LIBDIR if kind == "debian" else "/usr/lib64"
    assert seen.library("libcuda.so.1")["file"] == f"{folder}/libcuda.so.550.54.14"
    assert sorted(seen.devices) == sorted((*COMMON, "/dev/nvidia0"))


def test_a_failure_at_the_last_step_leaves_nothing(node: Node, rootfs: str) -> None:
    """No mount, no file, no device rule and no process stays, in the container or on the host."""
    os.unlink(f"{rootfs}/etc/ld.so.cache")
    os.mkdir(f"{rootfs}/etc/ld.so.cache")
    with Init(rootfs, group=GROUP) as init:
        files, mounts, rules, host = state_of(rootfs), init.mounts, init.rules if GROUP else [], node.host()
        done = node.prestart(init, ALL)
        assert done.status == 1
        assert "/etc/ld.so.cache" in done.stderr.splitlines()[0]
        assert files.differences(state_of(rootfs)) == []
        assert init.mounts == mounts
        assert (init.rules if GROUP else []) == rules
    assert host.differences(node.host()) == []
    assert node.processes() == []


def test_a_work_that_stalls_takes_back_what_it_did(node: Node, rootfs: str) -> None:
    """It gives up in time for that, before it is killed."""
    argv = [sys.executable, "-m", "tests.engine.stall", "--config", node.config(cli=RULES), "prestart"]
    with Init(rootfs, group=GROUP) as init:
        bundle, files, mounts = node.bundle(rootfs, ALL), state_of(rootfs), init.mounts
        done = run(argv, stdin=init.state(bundle), cwd=PROJECT)
        assert done.status == 1
        assert done.stderr.splitlines()[0] == (
            "gpuhook: timed-out: configuring the container did not end within 0.5 s"
        )
        assert files.differences(state_of(rootfs)) == []
        assert init.mounts == mounts
    assert node.processes() == []


def test_a_second_start_changes_nothing(node: Node, rootfs: str) -> None:
    """With prestart and createRuntime both registered: the second finds everything in place."""
    with Init(rootfs, group=GROUP) as init:
        assert node.prestart(init, ALL).status == 0
        files, mounts, rules = state_of(rootfs), init.mounts, init.rules if GROUP else []
        done = node.prestart(init, ALL, stage="createRuntime")
        assert (done.status, done.stderr) == (0, "")
        assert files.differences(state_of(rootfs)) == []
        assert init.mounts == mounts
        assert (init.rules if GROUP else []) == rules


def test_killed_at_any_moment_the_next_start_works(node: Node, rootfs: str) -> None:
    """SIGKILL in the middle leaves nothing on the host, no process, and nothing that is in the next start's way."""
    argv = [node.launcher, "--config", node.config(cli=RULES), "prestart"]
    with Init(rootfs, group=GROUP) as init:
        bundle, host = node.bundle(rootfs, ALL), node.host()
        for step in range(12):
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as hook:
                assert hook.stdin
                hook.stdin.write(init.state(bundle))
                hook.stdin.close()
                sleep(0.02 + 0.008 * step)
                hook.send_signal(signal.SIGKILL)
        sleep(0.05)  # the worker dies with its parent
        assert node.processes() == []
        assert host.differences(node.host()) == []
        done = node.prestart(init, ALL)
        assert (done.status, done.stderr) == (0, "")
        seen = init.run("/bin/probe", "devices", "dlopen:libcuda.so.1").seen
    assert len(seen.devices) == 6
    assert seen.library("libcuda.so.1")["cuda"] == 12040


def test_a_musl_image_is_told_what_works(node: Node, tmp_path: Path) -> None:
    """No loader cache will help its own programs: a warning says so, and the container starts."""
    rootfs = make_rootfs(str(tmp_path / "rootfs"))
    put(rootfs, {f"lib/ld-musl-{os.uname().machine}.so.1": b"loader"})
    with Init(rootfs, group=GROUP) as init:
        done = node.prestart(init, ALL)
    assert (done.status, warnings(done.stderr)) == (0, ["musl-or-distroless"])
    assert "will not find NVIDIA's glibc libraries" in done.stderr
    assert "statically linked programs" in done.stderr


@pytest.mark.parametrize("named", ["all", "1"])
def test_a_broken_gpu(node: Node, tmp_path: Path, rootfs: str, named: str) -> None:
    """`all` gives the working ones and a warning; the broken one by name fails."""
    gpus: list[dict[str, object]] = [{"index": 0}, {"index": 1, "state": "no-node"}]
    driver = build(str(tmp_path / "driver"), gpus=gpus)
    config = node.config(cli={**RULES, "root": driver.root, "load-kmods": False})  # else the node would be made
    with Init(rootfs, group=GROUP) as init:
        done = node.prestart(init, f"NVIDIA_VISIBLE_DEVICES={named}", config=config)
        seen = init.run("/bin/probe", "devices").seen
    if named == "all":
        assert (done.status, sorted(seen.devices)) == (0, sorted((*COMMON, "/dev/nvidia0")))
        assert warnings(done.stderr) == ["device-node-perms"]
    else:
        assert (done.status, seen.devices) == (1, {})


def test_capabilities_bring_their_files(node: Node, rootfs: str) -> None:
    """`all` brings graphics, video and 32 bits; the profile for EGL names the GPUs by their minors."""
    profile = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
    with Init(rootfs, group=GROUP) as init:
        done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=0,1", "NVIDIA_DRIVER_CAPABILITIES=all")
        assert (done.status, done.stderr) == (0, "")
        points = init.mount_points
        seen = init.run("/bin/probe", f"read:{profile}", f"stat:{LIBDIR}/libGLX_indirect.so.0", "devices").seen
    missing = [path for path in node.driver.libraries if f"{LIBDIR}/{os.path.basename(path)}" not in points]
    assert missing == []
    assert "/usr/lib/i386-linux-gnu/libcuda.so.550.54.14" in points
    assert "0x5" in (seen.content(profile) or "")
    assert seen.stat(f"{LIBDIR}/libGLX_indirect.so.0")["target"] == "libGLX_nvidia.so.550.54.14"
    assert "/dev/nvidia-modeset" in seen.devices
