"""A container under runc with the driver's nodes in it, seen from outside while it runs."""

from __future__ import annotations

import os
import signal
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpuhook.doctor.node import Node as Machine
from gpuhook.kernel import bpf
from gpuhook.kernel.cgroup import folders, group_paths
from gpuhook.kernel.mounts import parse_mountinfo
from gpuhook.ps.devices import open_files
from gpuhook.ps.look import look
from gpuhook.ps.model import Container as Seen
from tests.rig.container import GROUP, Container
from tests.rig.needs import need, unified_host
from tests.runtime.node import GPUS, Node, make_node

pytestmark = pytest.mark.runtime

CGROUPS = ("v2",) if unified_host() else ("v1", "v2")
ID = f"{os.getpid():064x}"


def name_as_docker_does(spec: dict[str, Any]) -> None:
    spec["linux"]["cgroupsPath"] = f"/{GROUP}/docker-{ID}.scope"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need("runc")
    return make_node(str(tmp_path_factory.mktemp("node")))


def found() -> Seen | None:
    return next((one for one in look(Machine()).containers if one.id == ID), None)


@contextmanager
def running(node: Node, cgroup: str) -> Iterator[Seen]:
    """The container as `gpuhook ps` sees it. It asks for GPU 1, whose minor is 0."""
    hooks = {"prestart": [node.hook()]}
    with Container(
        args=("/bin/sleep", "60"),
        env=("NVIDIA_VISIBLE_DEVICES=1",),
        hooks=hooks,
        edit=name_as_docker_does,
        cgroup=cgroup,
    ) as container:
        results: list[object] = []
        thread = threading.Thread(target=lambda: results.append(container.run()))
        thread.start()
        seen = None
        try:
            for _ in range(100):
                seen = found()
                if (seen and seen.asked) or results:
                    break
                time.sleep(0.1)
            assert seen is not None, results
            yield seen
        finally:
            if seen is not None:
                with suppress(ProcessLookupError):
                    os.kill(seen.pid, signal.SIGKILL)
            thread.join(60)


def no_to_all(folder: str) -> None:
    """Attach a second program to a v2 group that allows nothing: what it did allow is lost."""
    group = os.open(folder, os.O_RDONLY)
    program = bpf.load(struct.pack("<BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0))
    try:
        bpf.attach(group, program, bpf.ALLOW_MULTI)
    finally:
        os.close(program)
        os.close(group)


@pytest.mark.parametrize("cgroup", CGROUPS)
def test_a_running_container(node: Node, cgroup: str) -> None:
    """Its engine, its id, what it asked for, the one GPU that it was given; marked once its rules forbid that.

    The rules are changed as a reload of systemd does it.
    """
    name = f"/dev/nvidia{GPUS[1]['minor']}"
    with running(node, cgroup) as seen:
        assert (seen.engine, seen.asked, seen.lost) == ("docker", "1", [])
        assert [(one.node, one.allowed) for one in seen.may_use] == [(name, True)]
        for version, path in group_paths(Path(f"/proc/{seen.pid}/cgroup").read_bytes()).items():
            table = parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())
            (_, folder), *_ = folders(version, path, table)
            if cgroup == f"v{version}" == "v1":
                Path(folder, "devices.deny").write_text(f"c 195:{GPUS[1]['minor']} rwm")
            elif cgroup == f"v{version}":
                no_to_all(folder)
        now = found()
        assert now is not None
        assert now.lost == [name]


def test_a_name_makes_no_gpu(tmp_path: Path) -> None:
    """A file that only has a node's name is none; a node of another name, on any local filesystem, is one."""
    (tmp_path / "dev").mkdir()
    named, node = tmp_path / "dev/nvidia0", tmp_path / "dev/nvidia7"
    named.write_text("")
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(195, 3))
    with named.open():
        opened = os.open(node, os.O_PATH)
        try:
            assert open_files(Machine(), os.getpid()) == ["/dev/nvidia3"]
        finally:
            os.close(opened)
