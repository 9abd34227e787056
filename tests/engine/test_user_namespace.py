"""A container whose ids are mapped: everything that is made in its tree belongs to its root, also on its own tmpfs."""

from __future__ import annotations

import os

import pytest

from gpuhook.plan.ops import Bind
from tests.engine.conftest import LIBDIR, Scene
from tests.engine.perform import perform
from tests.engine.test_cache import MERGE
from tests.rig.init import Init

pytestmark = pytest.mark.engine

FIRST = 100000


def new_entries(scene: Scene, *ops: object, **options: object) -> dict[str, tuple[int, int]]:
    """Owner of everything that is new in the tree after these operations."""
    before = scene.files().entries
    with Init(scene.rootfs, user_from=FIRST) as init:
        outcome = perform(init, scene.host, *ops)  # type: ignore[arg-type]
        assert outcome.error == ""
    after = scene.files().entries
    return {path: (entry.uid, entry.gid) for path, entry in after.items() if path not in before}


def test_what_is_made_belongs_to_the_containers_root(mapped_scene: Scene) -> None:
    """Folders, mount points, links and the cache have its owner on the host."""
    made = new_entries(mapped_scene, *mapped_scene.usual(), MERGE)
    assert {
        f"{mapped_scene.rootfs}{name}" for name in (f"{LIBDIR}/liba.so.1", "/etc/ld.so.cache", "/run/deep")
    } <= set(made)
    assert set(made.values()) == {(FIRST, FIRST)}


def test_a_folder_of_another_owner_on_the_way(mapped_scene: Scene) -> None:
    """A folder of the host's root in the tree is passed, and stays whose it is."""
    os.mkdir(f"{mapped_scene.rootfs}{LIBDIR}", 0o755)
    made = new_entries(mapped_scene, mapped_scene.bind("liba.so"))
    assert made == {f"{mapped_scene.rootfs}{LIBDIR}/liba.so": (FIRST, FIRST)}
    assert os.stat(f"{mapped_scene.rootfs}{LIBDIR}").st_uid == 0


def test_nodes_on_the_containers_own_dev(mapped_scene: Scene) -> None:
    """/dev is a tmpfs of the user namespace, which takes no file of the host's root: the node is there, its root's."""
    os.mknod(f"{mapped_scene.host}/gpu", 0o020666, os.makedev(195, 0))
    source = f"{mapped_scene.host}/gpu"
    op = Bind(source=source, target="/dev/deep/gpu", kind="device", flags=("ro", "nosuid", "noexec"), device=(195, 0))
    with Init(mapped_scene.rootfs, user_from=FIRST) as init:
        assert perform(init, mapped_scene.host, op).error == ""
        said = init.run("/bin/busybox", "stat", "-c", "%u %t:%T", "/dev/deep", "/dev/deep/gpu").stdout
    assert said.split() == ["0", "0:0", "65534", "c3:0"]
