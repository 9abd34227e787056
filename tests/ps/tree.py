"""A made-up /proc below a root, with what `gpuhook ps` reads of it."""

from __future__ import annotations

import json
from pathlib import Path

from gpuhook.doctor.node import Node
from gpuhook.ps.look import look
from gpuhook.ps.model import Usage

SELF = "30 25 0:28 / /sys/fs/cgroup/devices rw shared:9 - cgroup cgroup rw,devices\n"
DEV = "90 80 0:50 / /dev rw,nosuid - tmpfs tmpfs rw,mode=755\n"


def bind(name: str, path: str = "") -> str:
    """A line of mountinfo for a node of the host that is mounted in a container."""
    return f"95 90 0:6 /{name} {path or f'/dev/{name}'} rw,nosuid - devtmpfs udev rw\n"


class Tree:
    """root: the machine's files; what commands say stands beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.write("proc/self/mountinfo", SELF)
        self.link("proc/self/ns/mnt", "mnt:[1]")
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n")
        self.said: dict[str, dict[str, object]] = {}

    def write(self, path: str, text: str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", errors="surrogateescape")
        return place

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def process(
        self,
        pid: int,
        cgroup: str = "/",
        *,
        started: int = 0,
        command: str = "python\0train.py\0",
        fds: tuple[str, ...] = (),
        env: str = "",
        mounts: str = "",
        nodes: tuple[str, ...] = (),
        space: str = "mnt:[1]",
    ) -> None:
        """A process. fds: what they lead to; nodes: in its root's /dev; space: its mount namespace."""
        here = f"proc/{pid}"
        self.write(f"{here}/cgroup", f"5:devices:{cgroup}\n0::{cgroup}\n")
        self.write(f"{here}/cmdline", command)
        self.write(f"{here}/comm", "name\n")
        self.write(f"{here}/stat", f"{pid} (a) b) S {' '.join(['1'] * 18)} {started or pid} 0\n")
        self.write(f"{here}/environ", env)
        self.write(f"{here}/mountinfo", mounts)
        self.link(f"{here}/ns/mnt", space)
        for number, target in enumerate(fds):
            self.link(f"{here}/fd/{number}", target)
        for name in nodes:
            self.write(f"{here}/root/dev/{name}")

    def rules(self, cgroup: str, text: str) -> None:
        self.write(f"sys/fs/cgroup/devices{cgroup}/devices.list", text)

    def gpu(self, minor: int, bus_id: str) -> None:
        lines = {"Model": "NVIDIA A100", "GPU UUID": f"GPU-{minor:08}", "Bus Location": bus_id, "Device Minor": minor}
        text = "".join(f"{name}: \t {value}\n" for name, value in lines.items())
        self.write(f"proc/driver/nvidia/gpus/{bus_id}/information", text)

    def says(self, command: str, rows: object, status: int = 0, stderr: str = "") -> None:
        self.said[command] = {"status": status, "stdout": json.dumps(rows), "stderr": stderr}

    def node(self) -> Node:
        (self.folder / "commands.json").write_text(json.dumps(self.said))
        return Node(str(self.root))

    def look(self) -> Usage:
        return look(self.node())
