"""Mounts that are not the container's own: a user's volume, the host's /etc, a shared mount, a procfs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.plan.ops import Bind, CacheEntry, MergeCache, Tmpfs
from tests.engine.conftest import LIBDIR, Scene
from tests.engine.perform import perform
from tests.rig.init import Init
from tests.rig.rootfs import put

pytestmark = pytest.mark.engine


@pytest.fixture
def volume(tmp_path: Path) -> str:
    (tmp_path / "volume/sub").mkdir(parents=True)
    (tmp_path / "volume/theirs").write_text("theirs")
    return str(tmp_path / "volume")


@pytest.mark.parametrize("covered", [LIBDIR, "/usr/lib", "/usr"])
def test_a_volume_over_a_target_folder_is_refused(scene: Scene, volume: str, covered: str) -> None:
    """The volume is named, nothing is left in it, nothing of the earlier steps stays."""
    os.makedirs(f"{scene.rootfs}{LIBDIR}", exist_ok=True)
    os.makedirs(f"{volume}{LIBDIR.removeprefix(covered)}", exist_ok=True)
    with Init(scene.rootfs, binds=[(volume, covered)]) as init:
        before, mounts, files = sorted(os.walk(volume)), init.mounts, scene.files()
        outcome = perform(init, scene.host, *scene.usual()[:1], scene.bind("liba.so"))
        assert outcome.slug == "socket-mount-conflict"
        assert f"the volume {covered} of the host" in outcome.error.splitlines()[0]
        assert "write-into-volumes" in outcome.error
        assert sorted(os.walk(volume)) == before
        assert init.mounts == mounts
        assert files.differences(scene.files()) == []


def test_a_volume_can_be_allowed(scene: Scene, volume: str) -> None:
    """write-into-volumes: the mount point is made in the volume, and taken back with the rest."""
    os.makedirs(f"{scene.rootfs}{LIBDIR}")
    with Init(scene.rootfs, binds=[(volume, LIBDIR)]) as init:
        outcome = perform(init, scene.host, scene.bind("liba.so"), write_into_volumes=True)
        assert outcome.error == ""
        assert init.run("/bin/cat", f"{LIBDIR}/liba.so").stdout == "the host's liba.so"
        assert os.path.getsize(f"{volume}/liba.so") == 0
    os.unlink(f"{volume}/liba.so")
    with Init(scene.rootfs, binds=[(volume, LIBDIR)]) as init:
        outcome = perform(init, scene.host, scene.bind("liba.so"), write_into_volumes=True, takes_back=True)
    assert (outcome.error, sorted(os.listdir(volume))) == ("", ["sub", "theirs"])


def test_a_target_that_a_volume_has_already_is_not_made(scene: Scene, volume: str) -> None:
    """Even an existing file of a volume is not covered: the mount would lie in the user's folder."""
    Path(volume, "liba.so").write_text("theirs")
    os.makedirs(f"{scene.rootfs}{LIBDIR}")
    with Init(scene.rootfs, binds=[(volume, LIBDIR)]) as init:
        mounts = init.mounts
        assert perform(init, scene.host, scene.bind("liba.so")).slug == "socket-mount-conflict"
        assert init.mounts == mounts


def test_a_tmpfs_of_the_container_is_its_own(scene: Scene) -> None:
    """/run on a fresh tmpfs, as engines give it, is no volume of the host."""
    op = Bind(source=f"{scene.host}/pipes", target="/run/deep/pipes", kind="folder")
    with Init(scene.rootfs, tmpfs=["/run"]) as init:
        assert perform(init, scene.host, op).error == ""
        assert init.run("/bin/ls", "/run/deep/pipes").stdout == "in\n"


ENTRY = MergeCache(entries=(CacheEntry(soname="liba.so.1", path=f"{LIBDIR}/liba.so", bits=64),))


def test_a_foreign_etc_is_left_alone(scene: Scene, volume: str) -> None:
    """The host's /etc as a volume: no cache is written there, the container starts, and a note says it."""
    put(volume, {"ld.so.cache": b"the host's cache", "ld.so.conf": "/usr/lib\n"})
    with Init(scene.rootfs, binds=[(volume, "/etc")]) as init:
        outcome = perform(init, scene.host, scene.bind("liba.so"), ENTRY)
        assert outcome.error == ""
        assert "cache is not updated" in outcome.notes
        assert "/etc" in outcome.notes
    assert sorted(os.listdir(volume)) == ["ld.so.cache", "ld.so.conf", "sub", "theirs"]
    assert Path(volume, "ld.so.cache").read_bytes() == b"the host's cache"


def test_shared_mounts_are_refused(scene: Scene) -> None:
    """What is mounted on a shared mount would show up in its peers: refused, with what to change."""
    with Init(scene.rootfs, shared=True) as init:
        files, mounts = scene.files(), init.mounts
        outcome = perform(init, scene.host, scene.bind("liba.so"))
        assert outcome.slug == "socket-mount-conflict"
        assert "shared" in outcome.error.splitlines()[0]
        assert "rprivate" in outcome.error
        assert files.differences(scene.files()) == []
        assert init.mounts == mounts


def test_allowing_volumes_allows_no_shared_mount(scene: Scene) -> None:
    """write-into-volumes does not let mounts spread."""
    with Init(scene.rootfs, shared=True) as init:
        assert perform(init, scene.host, scene.bind("liba.so"), write_into_volumes=True).slug != ""


# --- the driver's folder in procfs; on a node without the driver another folder stands for it ---

PARAMS = b"ModifyDeviceFiles: 0\n"
FLAGS = ("ro", "nosuid", "nodev", "noexec")


def mask(target: str) -> Tmpfs:
    return Tmpfs(
        target=target, files=(("params", PARAMS, 0o444),), folders=("gpus", "gpus/0000:3b:00.0"), flags=FLAGS,
        filesystem="proc", optional=True,
    )  # fmt: skip


def gpu_folder(scene: Scene, target: str) -> Bind:
    return Bind(
        source=f"{scene.host}/pipes", target=f"{target}/gpus/0000:3b:00.0", kind="folder", flags=FLAGS, optional=True
    )


def test_the_drivers_folder_in_procfs_is_covered(scene: Scene) -> None:
    """It shows our files and this container's GPU only, cannot be written, and hides what was there."""
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, mask("/proc/fs"), gpu_folder(scene, "/proc/fs")).error == ""
        assert init.run("/bin/ls", "/proc/fs", "/proc/fs/gpus/0000:3b:00.0").stdout.split() == [
            "/proc/fs:", "gpus", "params", "/proc/fs/gpus/0000:3b:00.0:", "in",
        ]  # fmt: skip
        assert init.run("/bin/cat", "/proc/fs/params").stdout.encode() == PARAMS
        assert "Read-only" in init.run("/bin/busybox", "touch", "/proc/fs/x").stderr
        assert "Read-only" in init.run("/bin/busybox", "chmod", "777", "/proc/fs/params").stderr
        flags = init.mount_points
    for path in ("/proc/fs", "/proc/fs/gpus/0000:3b:00.0"):
        assert set(FLAGS) <= set(flags[path].split(","))


def test_in_a_user_namespace_the_cover_is_its_roots(mapped_scene: Scene) -> None:
    """The files of the cover belong to the container's root."""
    with Init(mapped_scene.rootfs, user_from=100000) as init:
        outcome = perform(init, mapped_scene.host, mask("/proc/fs"))
        owners = init.run("/bin/busybox", "stat", "-c", "%u:%g", "/proc/fs/params", "/proc/fs/gpus").stdout
    assert (outcome.error, owners.split()) == ("", ["0:0", "0:0"])


def test_a_second_cover_is_not_stacked(scene: Scene) -> None:
    """Covered already: left, with a note."""
    with Init(scene.rootfs) as init:
        assert perform(init, scene.host, mask("/proc/fs")).error == ""
        mounts = init.mounts
        outcome = perform(init, scene.host, mask("/proc/fs"))
        assert (outcome.error, init.mounts) == ("", mounts)
        assert "not covered" in outcome.notes


@pytest.mark.parametrize("there", ["nothing", "folder", "file", "link"])
def test_a_folder_that_is_no_procfs_is_not_covered(scene: Scene, there: str) -> None:
    """Without a procfs, whatever the image has there: no mount, no file, no error, a note."""
    place = f"{scene.rootfs}/proc/driver/nvidia"
    if there in ("folder", "file"):
        put(scene.rootfs, {"proc/driver/nvidia/gpus/x" if there == "folder" else "proc/driver/nvidia": "image"})
    elif there == "link":
        os.makedirs(os.path.dirname(place))
        os.symlink(f"{scene.canary}/folder", place)
    with Init(scene.rootfs, proc=False) as init:
        files, mounts = scene.files(), init.mounts
        target = "/proc/driver/nvidia"
        outcome = perform(init, scene.host, mask(target), gpu_folder(scene, target))
        assert (outcome.error, init.mounts) == ("", mounts)
        assert "not covered" in outcome.notes
        assert files.differences(scene.files()) == []


def test_a_failure_uncovers_procfs_again(scene: Scene) -> None:
    """A cover goes with the rest when a later step fails."""
    put(scene.rootfs, {"opt": "a file"})
    with Init(scene.rootfs) as init:
        mounts = init.mounts
        outcome = perform(init, scene.host, mask("/proc/fs"), scene.bind("liba.so", "/opt/liba.so"))
        assert outcome.slug == "image-has-driver-files"
        assert init.mounts == mounts
