"""Somebody acts while the hook works (threats.md 3.1, AC-13, AC-14, AC-23)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from gpuhook.plan.ops import Bind, Link, MergeCache, Op, Tmpfs
from tests.attack.race import exchanged, program, written
from tests.attack.rig import Lab
from tests.attack.rounds import plan_of, rounds
from tests.rig.container import Container
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs, put

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

LIBDIR = "/usr/lib/x86_64-linux-gnu"
ROUNDS = 1000
REFUSED, VOLUME = "image-has-driver-files", "socket-mount-conflict"


def some_of_the_plan(lab: Lab) -> tuple[Op, ...]:
    """A real plan cut down to a few operations of each kind, so that a thousand rounds take seconds."""
    ops = [op for op in plan_of(lab.node.driver.root) if not getattr(op, "target", "").startswith("/proc/")]
    libraries = [op for op in ops if isinstance(op, Bind) and op.target.startswith(LIBDIR)]
    links = [op for op in ops if isinstance(op, Link)]
    ends = [op for op in ops if isinstance(op, (MergeCache, Tmpfs))]
    firmware = [op for op in ops if isinstance(op, Bind) and "firmware" in op.target]
    return (*ends[:1], *libraries[:3], *links[:2], *firmware[:1], *ends[1:])


def slugs(errors: list[str]) -> set[str]:
    return {error.split(": ")[1] if error else "" for error in errors}


@pytest.mark.parametrize(
    ("place", "to"), [("/usr/lib", "CANARY/dir"), (LIBDIR, "CANARY/dir"), ("/etc", "CANARY/dir"), (LIBDIR, "/")]
)
def test_ac_13_exchange_race_on_a_component(lab: Lab, place: str, to: str) -> None:
    """SAFE or FAIL in each of a thousand rounds, and both happen: no name and no mount outside of the tree."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    os.makedirs(f"{rootfs}{place}", exist_ok=True)
    os.symlink(to.replace("CANARY", lab.canary), f"{rootfs}/elsewhere")
    ops = some_of_the_plan(lab)
    with lab.guard(), Init(rootfs) as init:
        mounts = init.mounts
        with exchanged(lab.folder, f"{rootfs}{place}", f"{rootfs}/elsewhere"):
            errors = rounds(init, lab.node.driver.root, ops, rounds=ROUNDS)
        assert init.mounts == mounts
    assert len(errors) == ROUNDS
    assert "" in errors
    assert slugs(errors) <= {"", REFUSED}


@pytest.mark.parametrize("form", ["link", "hard link", "folder"])
def test_ac_13_exchange_race_on_the_target_itself(lab: Lab, form: str) -> None:
    """SAFE or FAIL in each of a thousand rounds: an empty file and something else change places under our hands."""
    lab.times = False  # the exchange alone changes the times of a file that has names in both trees
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    op = next(op for op in some_of_the_plan(lab) if isinstance(op, Bind))
    put(rootfs, {op.target: ""})
    other = f"{rootfs}/other"
    {
        "link": lambda: os.symlink(f"{lab.canary}/file", other),
        "hard link": lambda: os.link(f"{lab.canary}/file", other),
        "folder": lambda: os.mkdir(other),
    }[form]()
    with lab.guard(), Init(rootfs) as init:
        mounts = init.mounts
        with exchanged(lab.folder, f"{rootfs}{op.target}", other):
            errors = rounds(init, lab.node.driver.root, (op,), rounds=ROUNDS)
        assert init.mounts == mounts
    assert "" in errors
    assert slugs(errors) <= {"", REFUSED}
    assert form == "hard link" or REFUSED in slugs(errors)


def test_ac_13_the_whole_hook(lab: Lab) -> None:
    """SAFE or FAIL for the hook as a program, too, a hundred times under the same load."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    os.symlink(f"{lab.canary}/dir", f"{rootfs}/elsewhere")
    lab.looks_at_tree = False  # half of it is somewhere else at any time
    with lab.guard(), exchanged(lab.folder, f"{rootfs}/usr/lib", f"{rootfs}/elsewhere"):
        for _ in range(100):
            with Init(rootfs) as init:
                assert lab.hook(init, light=True).slug in ("", REFUSED)


@contextmanager
def neighbour(lab: Lab, volume: str) -> Iterator[None]:
    """A running container with this volume, which exchanges its x86_64-linux-gnu with its `other` all the time."""
    stop = f"{volume}/stop"
    with Container(
        args=("/exchange", "/v/x86_64-linux-gnu", "/v/other", "/v/stop"),
        mounts=[{"destination": "/v", "type": "bind", "source": volume, "options": ["rbind", "rw"]}],
    ) as container:
        put(container.rootfs, {"exchange": program("exchange")}, 0o755)
        results = []
        thread = Thread(target=lambda: results.append(container.run(timeout=300)))
        thread.start()
        try:
            yield
        finally:
            put(volume, {"stop": ""})
            thread.join()
        assert (results[0].status, results[0].stdout) == (0, "ready\n")
    os.unlink(stop)


def make_volume(lab: Lab) -> str:
    volume = f"{lab.folder}/volume"
    os.makedirs(f"{volume}/x86_64-linux-gnu")
    os.symlink("/", f"{volume}/other")
    return volume


def test_ac_14_race_from_a_second_container(lab: Lab) -> None:
    """FAIL while the folder of the volume stands there, which is named; SAFE while the link to the own root does."""
    volume = make_volume(lab)
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    ops = tuple(op for op in some_of_the_plan(lab) if isinstance(op, Bind) and op.target.startswith(LIBDIR))
    with lab.guard(), neighbour(lab, volume), Init(rootfs, binds=[(volume, "/usr/lib")]) as init:
        mounts = init.mounts
        errors = rounds(init, lab.node.driver.root, ops, rounds=ROUNDS)
        assert init.mounts == mounts
    assert slugs(errors) <= {"", VOLUME, REFUSED}
    assert VOLUME in slugs(errors)
    assert os.listdir(f"{volume}/x86_64-linux-gnu") == []


def test_ac_14_with_write_into_volumes(lab: Lab) -> None:
    """SAFE or FAIL where the volume may be written to: nothing lands on the host but in the volume."""
    volume = make_volume(lab)
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    ops = tuple(op for op in some_of_the_plan(lab) if isinstance(op, Bind) and op.target.startswith(LIBDIR))
    with lab.guard(), neighbour(lab, volume), Init(rootfs, binds=[(volume, "/usr/lib")]) as init:
        mounts = init.mounts
        errors = rounds(init, lab.node.driver.root, ops, rounds=ROUNDS, write_into_volumes=True)
        assert init.mounts == mounts
    assert slugs(errors) <= {"", REFUSED}
    assert "" in errors


def test_ac_23_no_moment_of_a_writable_mount(lab: Lab) -> None:
    """SAFE: in a thousand rounds a watcher never opens the library for writing nor sees it without its flags."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    op = next(op for op in some_of_the_plan(lab) if isinstance(op, Bind))
    stop = f"{lab.folder}/stop"
    with lab.guard(), Init(rootfs) as init:
        argv = [written(lab.folder, "watch"), str(init.pid), f"{rootfs}{op.target}", stop]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watcher:
            assert watcher.stdout
            assert watcher.stdout.readline() == "ready\n"
            errors = rounds(init, lab.node.driver.root, (op,), rounds=ROUNDS)
            put(lab.folder, {"stop": ""})
            seen, for_writing, without_flags = (int(word) for word in watcher.stdout.read().split())
    assert slugs(errors) == {""}
    assert seen > ROUNDS / 10
    assert (for_writing, without_flags) == (0, 0)
