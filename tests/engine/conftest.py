"""What the tests of the engine share: a node, and a small scene of host, container tree and canary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuhook.plan.ops import Bind, Link, Op, Tmpfs
from tests.rig.needs import need
from tests.rig.rootfs import give_to, make_rootfs
from tests.rig.snapshot import Snapshot
from tests.runtime.node import Node, make_node, state_of

LIBDIR = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = ("liba.so", "libb.so")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need()
    return make_node(str(tmp_path_factory.mktemp("node")))


@dataclass(frozen=True)
class Scene:
    """host: a small driver root; rootfs: the container's tree; canary: what nobody may touch."""

    host: str
    rootfs: str
    canary: str

    def files(self) -> Snapshot:
        """All three now."""
        return state_of(self.host, self.rootfs, self.canary)

    def bind(self, name: str, target: str = "") -> Bind:
        """A library of the host at its place, or elsewhere."""
        return Bind(source=f"{self.host}/{name}", target=target or f"{LIBDIR}/{name}")

    def usual(self) -> tuple[Op, ...]:
        """Some of everything, which succeeds; then the last operation of a test."""
        return (
            Tmpfs(target="/etc/nvidia/profiles", files=(("one", b"1", 0o444),)),
            self.bind("tool", "/usr/bin/tool"),
            self.bind("liba.so"),
            Link(target=f"{LIBDIR}/liba.so.1", to="liba.so"),
            Bind(source=f"{self.host}/pipes", target="/run/deep/pipes", kind="folder", flags=("nosuid", "nodev")),
        )


def make_scene(folder: Path) -> Scene:
    """A scene in this folder, which exists."""
    need()
    host, canary = folder / "host", folder / "canary"
    for name in ("liba.so", "libb.so", "tool", "pipes/in"):
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text(f"the host's {name}")
    (canary / "folder").mkdir(parents=True)
    (canary / "file").write_text("canary")
    return Scene(str(host), make_rootfs(str(folder / "rootfs")), str(canary))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)


@pytest.fixture
def mapped_scene() -> Iterator[Scene]:
    """A scene whose tree belongs to uid 100000, which can reach it (pytest's own folders are root's alone)."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        scene = make_scene(Path(folder))
        give_to(scene.rootfs, 100000)
        yield scene
