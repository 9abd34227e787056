"""A node for all attacks, a lab for each; the kernel's own protections of links and FIFOs are off meanwhile."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack import markers
from tests.attack.direct import Scene
from tests.attack.oracle import DEVICES, make_canary, remove
from tests.attack.rig import RULES, Lab
from tests.rig.container import Container
from tests.rig.init import Init
from tests.rig.needs import need, unified_host
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import Node, make_node

PROTECTIONS = ("protected_hardlinks", "protected_symlinks", "protected_fifos", "protected_regular")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need("runc")
    return make_node(str(tmp_path_factory.mktemp("node")))


@pytest.fixture(scope="session")
def base_rules() -> frozenset[str]:
    """The device rules that the runtime gives to every container, as its own group shows them."""
    need("runc")
    if unified_host():
        return frozenset()
    with Container(args=("/bin/probe", f"read:{RULES}")) as container:
        return frozenset((container.run().seen.content(RULES) or "").splitlines())


@pytest.fixture(scope="session", autouse=True)
def bystander() -> Iterator[None]:
    """A device group of somebody else, whose rules no hook may change."""
    need()
    path = f"{DEVICES}/gpuhook-bystander-{os.getpid()}"
    if not os.path.exists(f"{DEVICES}/devices.list"):
        yield
        return
    os.mkdir(path)
    Path(path, "devices.deny").write_text("a")
    Path(path, "devices.allow").write_text("c 1:3 rwm")
    yield
    os.rmdir(path)


@pytest.fixture(autouse=True)
def unprotected() -> Iterator[None]:
    """The fs.protected_* settings are 0, so that what holds is ours; one test of the machine at a time has them so.

    What they were is kept in a file meanwhile: after a run that was killed, the next one restores them.
    """
    need()
    kept = Path(tempfile.gettempdir(), "gpuhook-attack.settings")
    with open(f"{kept}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(" ".join(map(_setting, PROTECTIONS)))
        try:
            for name in PROTECTIONS:
                _setting(name, "0")
            yield
        finally:
            for name, value in zip(PROTECTIONS, kept.read_text().split(), strict=True):
                _setting(name, value)
            kept.unlink()


def _setting(name: str, value: str = "") -> str:
    """The setting as it is; it becomes the value, if there is one."""
    path = Path("/proc/sys/fs", name)
    found = path.read_text().strip()
    if value and value != found:
        path.write_text(value)
    return found


@pytest.fixture
def lab(node: Node, base_rules: frozenset[str]) -> Iterator[Lab]:
    """A lab whose folder lies on the same file system as the containers' trees."""
    folder = tempfile.mkdtemp(prefix="gpuhook-attack-")
    os.chmod(folder, 0o711)
    make_canary(f"{folder}/canary")
    os.mkdir(f"{folder}/marks")
    os.chmod(f"{folder}/marks", 0o777)
    try:
        yield Lab(node, folder, base_rules)
    finally:
        remove(folder)


@pytest.fixture
def scene(lab: Lab) -> Iterator[Scene]:
    """A process that waits for its hook, with marker programs in its tree; nothing changes on the host meanwhile."""
    bundle = f"{lab.folder}/bundle"
    os.mkdir(bundle, 0o711)
    rootfs = make_rootfs(f"{bundle}/rootfs")
    markers.plant(rootfs, lab.marks)
    with Init(rootfs) as init, lab.guard():
        yield Scene(lab, init, bundle)
