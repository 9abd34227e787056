"""Somebody exchanges what we look at, as fast as they can: every round ends inside the tree, or is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuhook.plan.ops import Link
from tests.engine.conftest import LIBDIR, Scene
from tests.engine.perform import perform
from tests.engine.test_cache import MERGE
from tests.rig.init import Init

pytestmark = pytest.mark.engine

ROUNDS = 200
# renameat2(2) with RENAME_EXCHANGE, for ever.
EXCHANGE = """
import ctypes, sys
libc = ctypes.CDLL(None)
one, other = (word.encode() for word in sys.argv[1:])
print(libc.renameat2(-100, one, -100, other, 2), libc.renameat2(-100, one, -100, other, 2), flush=True)
while True:
    libc.renameat2(-100, one, -100, other, 2)
    libc.renameat2(-100, one, -100, other, 2)
"""


@contextmanager
def exchanged(one: str, other: str) -> Iterator[None]:
    """These two names change places all the time; afterwards they are where they were."""
    inode = os.lstat(one).st_ino
    with subprocess.Popen([sys.executable, "-IS", "-c", EXCHANGE, one, other], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"0 0\n"
        yield
        process.kill()
    if os.lstat(one).st_ino != inode:
        os.rename(one, f"{one}.aside")
        os.rename(other, one)
        os.rename(f"{one}.aside", other)


def folder_and_link(scene: Scene, folder: str) -> tuple[str, str]:
    os.makedirs(f"{scene.rootfs}{folder}", exist_ok=True)
    os.symlink(f"{scene.canary}/folder", f"{scene.rootfs}/elsewhere")
    return f"{scene.rootfs}{folder}", f"{scene.rootfs}/elsewhere"


@pytest.mark.parametrize("folder", ["/usr/lib", LIBDIR, "/etc"])
def test_a_folder_and_a_link_change_places(scene: Scene, folder: str) -> None:
    """Some rounds succeed, the others are refused; no name outside, and none left inside after the undo."""
    one, other = folder_and_link(scene, folder)
    ops = (scene.bind("liba.so"), Link(target=f"{LIBDIR}/liba.so.1", to="liba.so"), *scene.usual()[:1])
    with Init(scene.rootfs) as init:
        files, mounts, root = scene.files(), init.mounts, sorted(os.listdir("/"))
        with exchanged(one, other):
            outcome = perform(init, scene.host, *ops, rounds=ROUNDS, takes_back=True)
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts
    assert sorted(os.listdir("/")) == root
    assert len(outcome.errors) == ROUNDS
    assert "" in outcome.errors
    assert {error.split(": ")[1] for error in outcome.errors if error} <= {"image-has-driver-files"}


@pytest.mark.parametrize("kind", ["link", "folder", "FIFO"])
def test_a_file_and_something_else_change_places(scene: Scene, kind: str) -> None:
    """The target itself: covered when it was a regular file, refused otherwise, never followed."""
    one, other = f"{scene.rootfs}/usr/bin/tool", f"{scene.rootfs}/usr/bin/other"
    with open(one, "w") as file:
        file.write("the image's")
    make = {"link": lambda path: os.symlink(f"{scene.canary}/file", path), "folder": os.mkdir, "FIFO": os.mkfifo}
    make[kind](other)
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        with exchanged(one, other):
            outcome = perform(init, scene.host, scene.bind("tool", "/usr/bin/tool"), rounds=ROUNDS, takes_back=True)
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts
    assert {error.split(": ")[1] for error in outcome.errors if error} == {"image-has-driver-files"}
    assert "" in outcome.errors


def test_the_cache_and_a_link_change_places(scene: Scene) -> None:
    """The cache that is replaced is exchanged with a link to the host: the host's file stays what it is."""
    one, other = f"{scene.rootfs}/etc/ld.so.cache", f"{scene.rootfs}/etc/other"
    with open(one, "w") as file:
        file.write("old")
    os.symlink(f"{scene.canary}/file", other)
    argv = [sys.executable, "-IS", "-c", EXCHANGE, one, other]
    with Init(scene.rootfs) as init, subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        outcome = perform(init, scene.host, MERGE, rounds=ROUNDS)
        process.kill()
    assert set(outcome.errors) == {""}
    with open(f"{scene.canary}/file") as file:
        assert file.read() == "canary"
    assert [name for name in os.listdir(f"{scene.rootfs}/etc") if "gpuhook" in name] == []
