"""Nodes that are missing on the host, and places in the container that are taken or cannot be written."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.faults.trial import GROUP, Place, Trial
from tests.rig.init import Init
from tests.rig.rootfs import put
from tests.runtime.node import Node

pytestmark = pytest.mark.engine

LIBRARY = "/usr/lib64/libnvidia-ml.so.550.54.14"


def refused(trial: Trial, slug: str, *says: str) -> None:
    """One line has the cause, and nothing stays."""
    line, *rest = trial.lines()
    assert line.startswith(f"gpuhook: {slug}: "), trial.said
    assert [text for text in says if text not in line] == []
    assert [each for each in rest if not each.startswith(("  in ", "  hint: "))] == []
    assert (trial.status, trial.leaks(), trial.remains()) == (1, [], [])


def without(place: Place, name: str) -> Trial:
    """A start where this node is missing."""
    driver = place.driver()
    place.tree()
    os.unlink(driver.path(name))
    with Init(place.rootfs, group=GROUP) as init:
        return place.attempt(init)


@pytest.mark.parametrize("name", ["/dev/nvidiactl", "/dev/nvidia2"])
def test_a_node_that_is_needed_is_missing(place: Place, name: str) -> None:
    """Refused, with the node's name."""
    (trial,) = place.each(partial(without, place), [name])
    refused(trial, "device-node-perms", name, "does not exist")


@pytest.mark.parametrize("name", ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia0"])
def test_a_node_that_is_not_needed_is_missing(place: Place, node: Node, name: str) -> None:
    """Left out where CUDA would have used it, with a warning or none; the rest is as usual."""
    wants = ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    asked = replace(place, bundle=node.bundle(place.rootfs, *wants))
    (trial,) = asked.each(partial(without, asked), [name])
    assert (trial.status, trial.leaks()) == (0, []), trial.said
    targets = {line.split(" ")[1].removeprefix(place.rootfs) for line in trial.after.mounts}
    wanted = {"/dev/nvidiactl", "/dev/nvidia2", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} - {name}
    assert {target for target in targets if target.startswith("/dev/nvidia")} == wanted


def make_socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)


OBSTACLES: dict[str, Callable[[str], object]] = {
    "folder": os.mkdir,
    "FIFO": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: os.mknod(path, 0o020666, os.makedev(1, 5)),
    "link": lambda path: os.symlink("/etc/passwd", path),
}


def taken(place: Place, job: tuple[str, str]) -> Trial:
    """A start where something stands in a target's place, which the image has brought."""
    obstacle, target = job
    place.driver()
    place.tree()
    os.makedirs(os.path.dirname(f"{place.rootfs}{target}"), exist_ok=True)
    OBSTACLES[obstacle](f"{place.rootfs}{target}")
    with Init(place.rootfs, group=GROUP, dev=False) as init:
        return place.attempt(init)


@pytest.mark.parametrize("target", [LIBRARY, "/usr/bin/nvidia-smi", "/dev/nvidiactl"])
def test_a_target_is_taken(place: Place, target: str) -> None:
    """A folder, FIFO, socket, device or link in a driver file's place: refused and named."""
    for trial in place.each(partial(taken, place), [(obstacle, target) for obstacle in OBSTACLES]):
        refused(trial, "image-has-driver-files", target)


def read_only(place: Place, target: str) -> Trial:
    """A start on a tree that cannot be written, where this is there already."""
    place.driver()
    place.tree()
    if target:
        put(place.rootfs, {target: b""})
    with Init(place.rootfs, group=GROUP, readonly=True) as init:
        return place.attempt(init)


@pytest.mark.parametrize("target", ["", LIBRARY])
def test_the_tree_is_read_only(place: Place, target: str) -> None:
    """Refused, with the first thing that could not be made."""
    (trial,) = place.each(partial(read_only, place), [target])
    refused(trial, "rootfs-readonly", "must be made at /", "is read-only")
