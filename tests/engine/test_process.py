"""The process that the state names must be the bundle's container, and alive; else nothing is touched."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from gpuhook.backend.container import Container
from gpuhook.refusals import BadContainer
from tests.engine.conftest import Scene
from tests.engine.perform import ARGV, PROJECT, Job, perform
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import state_of

pytestmark = pytest.mark.engine


def test_a_process_that_does_not_exist(scene: Scene) -> None:
    """No such pid: refused at once."""
    child = subprocess.Popen(["true"])
    child.wait()
    with pytest.raises(BadContainer, match="does not exist"):
        Container(child.pid, scene.rootfs)


def test_a_process_that_has_ended(scene: Scene) -> None:
    """A zombie still has a pid, and no namespace: refused."""
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(BadContainer, match=r"has ended|cannot read about"):
            Container(child.pid, scene.rootfs)


def test_a_process_of_the_host(scene: Scene) -> None:
    """A process in our own mount namespace would have us mount on the host: refused."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child, pytest.raises(BadContainer, match="our own mount"):
        Container(child.pid, scene.rootfs)


def test_the_process_of_another_container(scene: Scene, tmp_path: Path) -> None:
    """Container A's process with B's bundle: A's namespace does not have B's tree as its root, so neither changes."""
    other = make_rootfs(str(tmp_path / "other"))
    with Init(scene.rootfs) as init:
        mounts, files, others = init.mounts, scene.files(), state_of(other)
        outcome = perform(init, scene.host, *scene.usual(), rootfs=other)
        assert (outcome.slug, init.mounts) == ("bad-container", mounts)
        assert files.differences(scene.files()) == []
        assert others.differences(state_of(other)) == []


@pytest.mark.parametrize("kind", ["missing", "file", "/", "link to /", "dangling link"])
def test_a_root_that_is_none(scene: Scene, tmp_path: Path, kind: str) -> None:
    """A root filesystem that is missing, no folder, or the host's own root."""
    place = tmp_path / "root"
    if kind == "file":
        place.write_text("")
    elif "link" in kind:
        place.symlink_to("/" if kind == "link to /" else "absent")
    with Init(scene.rootfs) as init, pytest.raises(BadContainer, match="root filesystem"):
        Container(init.pid, "/" if kind == "/" else str(place))


def test_a_root_by_another_name(scene: Scene, tmp_path: Path) -> None:
    """A link to the root filesystem is the root filesystem: what counts is which folder it is."""
    (tmp_path / "link").symlink_to(scene.rootfs)
    with Init(scene.rootfs) as init:
        assert (
            perform(init, scene.host, scene.bind("tool", "/usr/bin/tool"), rootfs=str(tmp_path / "link")).error == ""
        )
        assert init.run("/bin/cat", "/usr/bin/tool").stdout == "the host's tool"


def test_a_work_that_hangs_is_ended(scene: Scene) -> None:
    """At the deadline the worker is killed, and the message says what did not end."""
    with Init(scene.rootfs) as init:
        outcome = perform(init, scene.host, scene.bind("tool", "/usr/bin/tool"), hangs=True, deadline=0.5)
    assert outcome.error.splitlines()[0] == ("gpuhook: timed-out: configuring the container did not end within 0.5 s")
    assert outcome.seconds < 5


def has_ended(pid: int) -> bool:
    """Whether this process is gone, or waits to be reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def test_the_worker_dies_with_its_parent(scene: Scene) -> None:
    """A hook that is killed leaves no process behind that goes on in the container."""
    with Init(scene.rootfs) as init:
        job = Job(init.pid, init.rootfs, (scene.bind("tool", "/usr/bin/tool"),), scene.host, hangs=True, deadline=60)
        with subprocess.Popen(ARGV, stdin=subprocess.PIPE, cwd=PROJECT) as hook:
            assert hook.stdin
            hook.stdin.write(pickle.dumps(job))
            hook.stdin.close()
            assert until(lambda: "/usr/bin/tool" in init.mount_points)
            (worker,) = map(int, Path(f"/proc/{hook.pid}/task/{hook.pid}/children").read_text().split())
            hook.kill()
        assert until(lambda: has_ended(worker))


def until(holds: Callable[[], bool]) -> bool:
    """Whether this holds within ten seconds."""
    give_up = monotonic() + 10
    while not holds() and monotonic() < give_up:
        sleep(0.02)
    return holds()
