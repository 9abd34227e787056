"""The container's loader cache is replaced as a whole, whatever stands in its place; nothing else is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.loader.cache import parse
from gpuhook.plan.ops import CacheEntry, MergeCache
from tests.engine.conftest import LIBDIR, Scene
from tests.engine.perform import perform
from tests.rig.init import Init

pytestmark = pytest.mark.engine

PATH = f"{LIBDIR}/liba.so"
MERGE = MergeCache(entries=(CacheEntry(soname="liba.so.1", path=PATH, bits=64),))


def sparse(path: str) -> None:
    with open(path, "wb") as file:
        file.truncate(4 << 30)


def written(content: bytes) -> Callable[[str, Scene], object]:
    return lambda path, scene: Path(path).write_bytes(content)


FOUND: dict[str, Callable[[str, Scene], object]] = {
    "nothing": lambda path, scene: None,
    "an empty file": written(b""),
    "rubbish": written(b"\xff" * 5000),
    "a link to the host": lambda path, scene: os.symlink(f"{scene.canary}/file", path),
    "a dangling link": lambda path, scene: os.symlink(f"{scene.canary}/absent", path),
    "a hard link": lambda path, scene: os.link(f"{scene.canary}/file", path),
    "a FIFO": lambda path, scene: os.mkfifo(path),
    "a device": lambda path, scene: os.mknod(path, 0o020666, os.makedev(1, 5)),
    "four GiB": lambda path, scene: sparse(path),
}


@pytest.mark.parametrize("found", FOUND)
def test_a_new_cache_takes_its_place(scene: Scene, found: str) -> None:
    """Afterwards there is a regular file of root's that leads to the driver; the canary is what it was."""
    FOUND[found](f"{scene.rootfs}/etc/ld.so.cache", scene)
    content, status = Path(scene.canary, "file").read_bytes(), os.stat(f"{scene.canary}/file")
    with Init(scene.rootfs) as init:
        outcome = perform(init, scene.host, MERGE)
    assert outcome.error == ""
    assert outcome.seconds < 5
    place = f"{scene.rootfs}/etc/ld.so.cache"
    new = os.lstat(place)
    assert (new.st_mode, new.st_uid, new.st_gid, new.st_nlink) == (0o100644, 0, 0, 1)
    assert [entry[:2] for entry in parse(Path(place).read_bytes()).entries] == [("liba.so.1", PATH)]
    now = os.stat(f"{scene.canary}/file")
    assert (now.st_mode, now.st_mtime_ns, now.st_size) == (status.st_mode, status.st_mtime_ns, status.st_size)
    assert Path(scene.canary, "file").read_bytes() == content
    assert [name for name in os.listdir(f"{scene.rootfs}/etc") if "gpuhook" in name] == []


def test_a_folder_in_its_place_is_refused(scene: Scene) -> None:
    """It is not removed with what is in it; no temporary file stays."""
    os.makedirs(f"{scene.rootfs}/etc/ld.so.cache/x")
    with Init(scene.rootfs) as init:
        files, mounts = scene.files(), init.mounts
        outcome = perform(init, scene.host, *scene.usual(), MERGE)
        assert outcome.error.startswith("gpuhook: ")
        assert "/etc/ld.so.cache" in outcome.error.splitlines()[0]
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts


def test_etc_may_be_a_link_inside_the_image(scene: Scene) -> None:
    """/etc -> /private/etc: the cache is written there, inside the tree."""
    os.makedirs(f"{scene.rootfs}/private")
    os.rename(f"{scene.rootfs}/etc", f"{scene.rootfs}/private/etc")
    os.symlink("/private/etc", f"{scene.rootfs}/etc")
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, MERGE).error == ""
    assert os.path.exists(f"{scene.rootfs}/private/etc/ld.so.cache")


def test_etc_may_not_lead_through_another_process(scene: Scene) -> None:
    """/etc -> /proc/1/root/…: while the runtime works, process 1 of the container still has the host's root."""
    os.rename(f"{scene.rootfs}/etc", f"{scene.rootfs}/etc.old")
    os.symlink(f"/proc/1/root{scene.canary}", f"{scene.rootfs}/etc")
    with Init(scene.rootfs) as init:
        files = scene.files()
        assert perform(init, scene.host, *scene.usual()[1:], MERGE).slug == "image-has-driver-files"
        assert files.differences(scene.files()) == []


def test_the_same_cache_is_not_written_again(scene: Scene) -> None:
    """Nothing to add: the file stays the same one."""
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, MERGE).error == ""
        inode = os.stat(f"{scene.rootfs}/etc/ld.so.cache").st_ino
        outcome = perform(init, scene.host, MERGE)
    assert (outcome.error, os.stat(f"{scene.rootfs}/etc/ld.so.cache").st_ino) == ("", inode)
    assert "right already" in outcome.notes


# --- a root filesystem that cannot be written ---


def test_a_read_only_root_without_a_cache_is_refused(scene: Scene) -> None:
    """There is nothing to cover: refused with what to do, nothing changed."""
    with Init(scene.rootfs, readonly=True) as init:
        files, mounts = scene.files(), init.mounts
        outcome = perform(init, scene.host, MERGE)
        assert outcome.slug == "rootfs-readonly"
        assert "/etc/ld.so.cache" in outcome.error.splitlines()[0]
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts


@pytest.mark.parametrize("op", range(5))
def test_a_read_only_root_without_the_targets_is_refused(scene: Scene, op: int) -> None:
    """A folder, a mount point or a link would have to be made: refused and named, nothing remounted."""
    with Init(scene.rootfs, readonly=True) as init:
        files, mounts = scene.files(), init.mounts
        outcome = perform(init, scene.host, scene.usual()[op])
        assert outcome.slug == "rootfs-readonly"
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts


def test_a_read_only_root_with_all_targets_works(scene: Scene) -> None:
    """Mount points, links and a cache that are there already are enough: nothing is created, all is in place."""
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, *scene.usual()).error == ""
    Path(f"{scene.rootfs}/etc/ld.so.cache").write_bytes(b"old")
    with Init(scene.rootfs, readonly=True) as init:
        files = scene.files()
        outcome = perform(init, scene.host, *scene.usual(), MERGE)
        assert outcome.error == ""
        assert init.run("/bin/cat", PATH).stdout == "the host's liba.so"
        assert PATH in init.run("/bin/cat", "/etc/ld.so.cache").stdout
        assert {"ro", "nosuid", "nodev", "noexec"} <= set(init.mount_points["/etc/ld.so.cache"].split(","))
        assert init.mount_points["/"].split(",")[0] == "ro"
        assert files.differences(scene.files()) == []


@pytest.mark.parametrize("found", ["a link to the host", "a FIFO", "a device"])
def test_on_a_read_only_root_only_a_regular_cache_is_covered(scene: Scene, found: str) -> None:
    """Anything else in its place: refused, nothing mounted."""
    FOUND[found](f"{scene.rootfs}/etc/ld.so.cache", scene)
    with Init(scene.rootfs, readonly=True) as init:
        mounts = init.mounts
        assert perform(init, scene.host, MERGE).slug == "rootfs-readonly"
        assert init.mounts == mounts
