"""What stands inside the root filesystem in the place of something else (threats.md 3.1, AC-07 to AC-10, AC-18)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack.rig import ALL, MODESET, Lab
from tests.attack.rounds import Plant
from tests.attack.targets import CACHE, CAPABILITIES, outcomes, targets_of, unexpected
from tests.rig.init import Init
from tests.rig.process import run
from tests.rig.rootfs import make_rootfs, put

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

LIBDIR = "/usr/lib/x86_64-linux-gnu"
REFUSED = "image-has-driver-files"
NODES = ("fd", "ptmx", "stdin", "stdout", "stderr", "console")  # what a runtime makes in /dev by itself


@pytest.mark.parametrize("form", ["FIFO", "socket", "character device", "block device", "folder"])
def test_ac_07_wrong_type_at_every_file(lab: Lab, form: str) -> None:
    """FAIL for each file, socket and device in turn, the target named; SKIP for what is dispensable."""
    targets = targets_of(lab)
    plants = [Plant(target, form) for target in targets.files]
    assert unexpected(targets, outcomes(lab, targets, plants), REFUSED) == []


@pytest.mark.parametrize("form", ["file", "FIFO", "socket", "character device"])
def test_ac_07_no_folder_at_every_folder(lab: Lab, form: str) -> None:
    """FAIL for each folder in turn, those that only hold targets included."""
    targets = targets_of(lab)
    above = [os.path.dirname(path) for path in targets.files if path.startswith(("/lib/firmware", "/run"))]
    plants = [Plant(target, form) for target in dict.fromkeys((*targets.folders, *above))]
    assert unexpected(targets, outcomes(lab, targets, plants), REFUSED) == []


@pytest.mark.parametrize("content", ["", "the image's"])
def test_ac_07_a_regular_file_at_every_file(lab: Lab, content: str) -> None:
    """SAFE: it is covered, and its bytes stay what they are."""
    targets = targets_of(lab)
    files = dict.fromkeys(targets.files, content)
    with lab.container(
        f"read:{targets.files[0]}", files={"etc/debian_version": "", **files}, env=(CAPABILITIES,), kind="busybox",
        edit=without("/dev"),
    ) as container:  # fmt: skip
        ended = lab.run(container, granted=ALL | MODESET)
        assert ended.started
        assert ended.result.seen.content(targets.files[0]) != content
        assert {Path(container.rootfs + path).read_text() for path in targets.files} == {content}


def test_ac_07_the_file_that_was_covered_takes_no_bytes_of_a_device(lab: Lab) -> None:
    """FAIL under the runtime too, for a node of another number where a tool has to go."""

    def prepare(rootfs: str) -> None:
        os.mknod(f"{rootfs}/usr/bin/nvidia-smi", 0o020666, os.makedev(1, 5))

    ended = lab.start(prepare=prepare)
    assert (ended.started, ended.slug) == (False, REFUSED)


def without(*destinations: str) -> Callable[[dict[str, Any]], None]:
    """Takes these mounts, and those below them, out of config.json."""

    def edit(spec: dict[str, Any]) -> None:
        places = [(mount["destination"], mount) for mount in spec["mounts"]]
        spec["mounts"] = [
            mount
            for place, mount in places
            if not any(place == name or place.startswith(f"{name}/") for name in destinations)
        ]

    return edit


def made_by_the_runtime(path: str) -> bool:
    """Whether the runtime itself makes this in a /dev that is no mount, or follows its link to make it."""
    return os.path.basename(path) in (*NODES, "null", "zero", "full", "random", "urandom", "tty", "pts", "shm", "dev")


def test_ac_08_dev_is_a_link_and_the_runtime_mounts_its_own(lab: Lab) -> None:
    """SAFE: the nodes are in the runtime's /dev. What runc itself leaves behind its link (fd, stdin …) is not ours."""
    lab.ignore = made_by_the_runtime

    def prepare(rootfs: str) -> None:
        os.rename(f"{rootfs}/dev", f"{rootfs}/dev.aside")
        os.symlink(f"{lab.canary}/dir", f"{rootfs}/dev")

    ended = lab.start(prepare=prepare)
    assert ended.started
    assert {*os.listdir(f"{lab.canary}/dir")} <= {"file", "sub", "x.conf", *NODES}


@pytest.mark.parametrize("climbing", [True, False])
def test_ac_08_dev_is_a_link_and_nothing_is_mounted(lab: Lab, climbing: bool) -> None:
    """FAIL: the link leads to a folder that the image does not have."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    os.rmdir(f"{rootfs}/dev")
    os.symlink("../" * 20 * climbing + f"{lab.canary}/dir", f"{rootfs}/dev")
    with Init(rootfs, dev=False) as init:
        ended = lab.hook(init)
    assert ended.slug == REFUSED
    assert "/dev" in ended.error


READY = {
    "nvidia0 as a block device": ("nvidia0", 0o060666, (8, 0)),
    "nvidiactl as another device": ("nvidiactl", 0o020666, (1, 1)),
    "nvidia-uvm as another device": ("nvidia-uvm", 0o020666, (195, 255)),
    "nvidia1 as GPU 0": ("nvidia1", 0o020666, (195, 0)),
}


@pytest.mark.parametrize("form", READY)
def test_ac_09_ready_made_device_nodes_of_other_numbers(lab: Lab, form: str) -> None:
    """FAIL: the image's node is neither used nor covered; no rule is written by its number."""
    lab.ignore = made_by_the_runtime
    name, mode, number = READY[form]

    def prepare(rootfs: str) -> None:
        os.mknod(f"{rootfs}/dev/{name}", mode, os.makedev(*number))

    ended = lab.start(prepare=prepare, edit=without("/dev"))
    assert (ended.started, ended.slug) == (False, REFUSED)
    assert f"/dev/{name}" in ended.error


def test_ac_09_a_regular_file_in_the_place_of_a_node(lab: Lab) -> None:
    """SAFE: the host's node is on top of it, and the rules are those of the host's numbers."""
    lab.ignore = made_by_the_runtime
    ended = lab.start("stat:/dev/nvidia-uvm", files={"dev/nvidia-uvm": "image"}, edit=without("/dev"))
    assert ended.started
    seen = ended.result.seen.stat("/dev/nvidia-uvm")
    assert (seen["kind"], seen["major"], seen["minor"]) == ("char", 511, 0)


def test_ac_09_a_ready_made_node_of_a_gpu_that_was_not_asked_for(lab: Lab) -> None:
    """SAFE: it cannot be opened; there is a rule for the GPU that was asked for alone."""
    lab.ignore = made_by_the_runtime

    def prepare(rootfs: str) -> None:
        for minor in range(3):
            os.mknod(f"{rootfs}/dev/nvidia{minor}", 0o020666, os.makedev(195, minor))

    ended = lab.start(prepare=prepare, edit=without("/dev"), gpus="1", granted=ALL - {(195, 1), (195, 2)})
    assert ended.started
    assert {path: error == "EPERM" for path, error in ended.result.seen.devices.items() if path[-1].isdigit()} == {
        "/dev/nvidia0": False, "/dev/nvidia1": True, "/dev/nvidia2": True,
    }  # fmt: skip


def proc_as_link(rootfs: str, to: str) -> None:
    os.rmdir(f"{rootfs}/proc")
    os.symlink(to, f"{rootfs}/proc")


IMPOSTORS: dict[str, Callable[[Lab, str], object]] = {
    "files of the image": lambda lab, rootfs: put(
        rootfs, {"proc/driver/nvidia/params": "ModifyDeviceFiles: 1\n", "proc/driver/nvidia/version": "NVRM 1\n"}
    ),
    "a link": lambda lab, rootfs: proc_as_link(rootfs, f"{lab.canary}/dir"),
    "a link of the driver's folder": lambda lab, rootfs: put(rootfs, {"proc/driver": f"-> {lab.canary}/dir"}),
}


@pytest.mark.parametrize("form", IMPOSTORS)
def test_ac_10_procfs_impostor(lab: Lab, form: str) -> None:
    """SKIP of the procfs part with a note: nothing is mounted there; versions come from the host alone.

    runc ends a container without /proc by itself, after its hooks, so that a process without a runtime stands for it.
    """
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    IMPOSTORS[form](lab, rootfs)
    with Init(rootfs, proc=False) as init:
        ended = lab.hook(init)
        assert ended.report.status == 0, ended.error
        assert "not covered" in ended.said
        assert not [point for point in init.mount_points if point.startswith("/proc")]
    assert not [path for path in ended.changes if path.startswith("/proc")]


def test_ac_18_hard_links_to_host_files(lab: Lab) -> None:
    """SAFE: the cache is a new inode, other targets are covered; the host's file keeps content, mode and time."""
    lab.times = False  # the file loses the name that the cache was
    targets = targets_of(lab)
    places = [path for path in targets.files if not path.startswith("/dev/")]

    def prepare(rootfs: str) -> None:
        put(rootfs, {"etc/debian_version": ""})
        for path in (CACHE, *places, *targets.links):
            os.makedirs(os.path.dirname(f"{rootfs}{path}"), exist_ok=True)
            os.link(f"{lab.canary}/file", f"{rootfs}{path}")

    ended = lab.start(f"stat:{CACHE}", prepare=prepare, env=(CAPABILITIES,), granted=ALL | MODESET)
    assert ended.started
    assert ended.result.seen.stat(CACHE)["links"] == 1
    assert CACHE in ended.changes


def test_ac_18_protections_are_off() -> None:
    """What held, held without the kernel's own protection of links."""
    names = ("hardlinks", "symlinks", "fifos", "regular")
    files = [f"/proc/sys/fs/protected_{name}" for name in names]
    assert run(["/bin/cat", *files]).stdout.split() == ["0"] * 4
