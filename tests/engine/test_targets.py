"""What stands in a driver file's place is judged, never followed; and what was made goes when a step fails."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.plan.ops import Bind, Link
from tests.engine.conftest import LIBDIR, Scene
from tests.engine.perform import perform
from tests.rig.init import Init

pytestmark = pytest.mark.engine

TARGET = f"{LIBDIR}/libb.so"


def make_socket(path: str) -> None:
    """A socket file, bound by a short name: addresses have 108 bytes."""
    folder = os.open(os.path.dirname(path), os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    os.close(folder)


def device(kind: int, major: int, minor: int) -> Callable[[str, Scene], None]:
    return lambda path, scene: os.mknod(path, kind | 0o666, os.makedev(major, minor))


OBSTACLES: dict[str, Callable[[str, Scene], object]] = {
    "link to a file of the host": lambda path, scene: os.symlink(f"{scene.canary}/file", path),
    "climbing link": lambda path, scene: os.symlink("../" * 20 + f"{scene.canary}/file", path),
    "dangling link": lambda path, scene: os.symlink(f"{scene.canary}/absent", path),
    "relative dangling link": lambda path, scene: os.symlink("absent", path),
    "link to itself": lambda path, scene: os.symlink(os.path.basename(path), path),
    "link to a file of the image": lambda path, scene: os.symlink("/etc/passwd", path),
    "magic link": lambda path, scene: os.symlink("/proc/self/exe", path),
    "folder": lambda path, scene: os.mkdir(path),
    "FIFO": lambda path, scene: os.mkfifo(path),
    "socket": lambda path, scene: make_socket(path),
    "null-like device": device(0o020000, 1, 5),
    "block device": device(0o060000, 8, 0),
}


def with_obstacle(scene: Scene, target: str, obstacle: str) -> None:
    path = f"{scene.rootfs}{target}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    OBSTACLES[obstacle](path, scene)


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_only_a_regular_file_is_covered(scene: Scene, obstacle: str) -> None:
    """A link, folder, FIFO, socket or device in a library's place: refused, named, and everything as before."""
    with_obstacle(scene, TARGET, obstacle)
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        outcome = perform(init, scene.host, *scene.usual(), scene.bind("libb.so"))
        assert outcome.slug == "image-has-driver-files"
        assert TARGET in outcome.error.splitlines()[0]
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts
    assert outcome.seconds < 5


@pytest.mark.parametrize("obstacle", ["link to a file of the host", "dangling link", "FIFO", "folder", "socket"])
def test_a_link_of_ours_is_made_only_where_nothing_stands(scene: Scene, obstacle: str) -> None:
    """Something else in a SONAME link's place stays as it is, with a warning; the loader is led by its cache."""
    with_obstacle(scene, f"{LIBDIR}/libb.so.1", obstacle)
    with Init(scene.rootfs) as init:
        files = scene.files()
        outcome = perform(init, scene.host, Link(target=f"{LIBDIR}/libb.so.1", to="libb.so"))
        assert outcome.error == ""
        assert "warning: image-has-driver-files" in outcome.notes
        assert files.differences(scene.files()) == []


@pytest.mark.parametrize(
    "obstacle", ["link to a file of the host", "FIFO", "socket", "null-like device", "link to itself"]
)
def test_a_folder_is_a_folder(scene: Scene, obstacle: str) -> None:
    """Something else in a folder's place, on the way or at its end: refused and named, everything as before."""
    with_obstacle(scene, "/opt/place", obstacle)
    inside = Bind(source=f"{scene.host}/pipes", target="/opt/place/below", kind="folder")
    itself = Bind(source=f"{scene.host}/pipes", target="/opt/place", kind="folder")
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        for op in (inside, itself, scene.bind("libb.so", "/opt/place/libb.so")):
            outcome = perform(init, scene.host, *scene.usual(), op)
            assert outcome.slug == "image-has-driver-files"
            assert "/opt/place" in outcome.error.splitlines()[0]
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts


@pytest.mark.parametrize("content", ["", "an old library"])
def test_a_regular_file_is_covered_and_stays(scene: Scene, content: str) -> None:
    """Empty or not, the image's file is hidden for this container and keeps its bytes."""
    path = Path(f"{scene.rootfs}{TARGET}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    with Init(scene.rootfs) as init:
        files = scene.files()
        outcome = perform(init, scene.host, scene.bind("libb.so"))
        assert outcome.error == ""
        assert init.run("/bin/cat", TARGET).stdout == "the host's libb.so"
        assert files.differences(scene.files()) == []


def test_a_failure_takes_covers_off_again(scene: Scene) -> None:
    """Where a file of the image was covered before the failing step, it can be seen again: no mount stays."""
    for target in ("/usr/bin/tool", f"{LIBDIR}/liba.so"):
        path = Path(f"{scene.rootfs}{target}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the image's")
    with_obstacle(scene, TARGET, "folder")
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        assert perform(init, scene.host, *scene.usual(), scene.bind("libb.so")).slug == "image-has-driver-files"
        assert init.mounts == mounts
        assert init.run("/bin/cat", "/usr/bin/tool").stdout == "the image's"
        assert files.differences(scene.files()) == []


def test_all_that_was_made_can_be_taken_back(scene: Scene) -> None:
    """After an undo the tree is byte for byte what it was, and the container has no mount more."""
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        assert perform(init, scene.host, *scene.usual(), scene.bind("libb.so"), takes_back=True).error == ""
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts


def test_a_second_time_nothing_is_done(scene: Scene) -> None:
    """The same operations again: each mount is found in place, none is stacked."""
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, *scene.usual()).error == ""
        mounts, files = init.mounts, scene.files()
        again = perform(init, scene.host, *scene.usual()[1:])
        assert again.error == ""
        assert "already in place: /usr/bin/tool" in again.notes
        assert init.mounts == mounts
        assert files.differences(scene.files()) == []


@pytest.mark.parametrize(("minor", "slug"), [(0, ""), (1, "image-has-driver-files")])
def test_a_node_that_is_there_already_is_left(scene: Scene, minor: int, slug: str) -> None:
    """A node of the same device, made by the runtime: nothing is mounted on it. Another number: refused."""
    os.mknod(f"{scene.host}/gpu", 0o020666, os.makedev(195, 0))
    os.mknod(f"{scene.rootfs}/dev/gpu", 0o020666, os.makedev(195, minor))
    op = Bind(source=f"{scene.host}/gpu", target="/dev/gpu", kind="device", flags=("ro",), device=(195, 0))
    with Init(scene.rootfs, dev=False) as init:
        mounts = init.mounts
        outcome = perform(init, scene.host, op)
        assert init.mounts == mounts
    assert outcome.slug == slug


# --- links on the way: resolved inside the tree ---

WAYS = {
    "to the root": "/",
    "climbing": "../" * 30,
    "absolute, elsewhere in the image": "/srv/libs",
    "through another link": "/first/libs",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_link_on_the_way_is_resolved_inside(scene: Scene, way: str) -> None:
    """The library folder is a link: what is made is made inside the tree, the canary and the host stay as they are."""
    os.makedirs(f"{scene.rootfs}/srv/libs")
    os.symlink("srv", f"{scene.rootfs}/first")
    os.symlink(WAYS[way], f"{scene.rootfs}{LIBDIR}")
    place = {"absolute, elsewhere in the image": "/srv/libs", "through another link": "/srv/libs"}.get(way, "")
    root = sorted(os.listdir("/"))
    with Init(scene.rootfs) as init:
        outcome = perform(init, scene.host, scene.bind("liba.so"))
        assert outcome.error == ""
        assert init.run("/bin/cat", f"{place}/liba.so").stdout == "the host's liba.so"
    assert sorted(os.listdir("/")) == root


@pytest.mark.parametrize(
    "to", ["CANARY/folder", "/proc/self/root/usr", "/proc/1/root/usr", "/proc/self/cwd", "/proc/self/fd/3", "out"]
)
def test_a_link_that_leads_out_or_nowhere_is_refused(scene: Scene, to: str) -> None:
    """A path that exists on the host only, a magic link, a loop: refused, nothing made anywhere."""
    os.symlink(to.replace("CANARY", scene.canary), f"{scene.rootfs}/usr/lib/out")
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        outcome = perform(init, scene.host, *scene.usual(), scene.bind("liba.so", "/usr/lib/out/x/liba.so"))
        assert outcome.slug == "image-has-driver-files"
        assert "/usr/lib/out" in outcome.error.splitlines()[0]
        assert init.mounts == mounts
        assert files.differences(scene.files()) == []


def test_the_flags_are_those_of_the_operation(scene: Scene) -> None:
    """Each mount has its flags from the first moment, whatever the filesystem of its source has."""
    op = Bind(source=f"{scene.host}/pipes", target="/run/pipes", kind="folder", flags=("nosuid", "nodev", "noexec"))
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, scene.bind("liba.so"), op).error == ""
        flags = {path: set(options.split(",")) for path, options in init.mount_points.items()}
    assert {"ro", "nosuid", "nodev"} <= flags[f"{LIBDIR}/liba.so"]
    assert "noexec" not in flags[f"{LIBDIR}/liba.so"]
    assert {"rw", "nosuid", "nodev", "noexec"} <= flags["/run/pipes"]


@pytest.mark.parametrize("now", ["", "link to a file of the image", "folder", "FIFO", "null-like device"])
def test_a_source_that_changed_is_refused(scene: Scene, now: str) -> None:
    """A library that is gone, or something else by now, is not taken: refused and named, nothing changed."""
    os.unlink(f"{scene.host}/libb.so")
    if now:
        OBSTACLES[now](f"{scene.host}/libb.so", scene)
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        outcome = perform(init, scene.host, *scene.usual(), scene.bind("libb.so"))
        assert outcome.slug == "engine-failed"
        assert f"{scene.host}/libb.so" in outcome.error
        assert init.mounts == mounts
        assert files.differences(scene.files()) == []


def test_a_device_of_another_number_is_no_source(scene: Scene) -> None:
    """A node of the driver root whose number is not the GPU's is refused."""
    os.mknod(f"{scene.host}/gpu", 0o020666, os.makedev(1, 1))
    op = Bind(source=f"{scene.host}/gpu", target="/dev/gpu", kind="device", flags=("ro",), device=(195, 0))
    with Init(scene.rootfs) as init:
        outcome = perform(init, scene.host, op)
    assert outcome.slug == "device-node-perms"
    assert "1:1" in outcome.error
    assert "195:0" in outcome.error
