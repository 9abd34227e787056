"""A process in a cgroup which tells what it may do, and device programs as runtimes write them."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.kernel.mounts import parse_mountinfo

GPU, NULL, FUSE = (195, 0), (1, 3), (10, 229)

SCRIPT = """
import errno, os, sys
for line in sys.stdin:
    verb, path, major, minor, flags = line.split()
    try:
        if verb == "open":
            os.close(os.open(path, int(flags) | os.O_NONBLOCK | os.O_NOCTTY))
        else:
            os.mknod(path, 0o020600, os.makedev(int(major), int(minor)))
            os.unlink(path)
        print("ok", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""


class Probe:
    """A process that is moved into a cgroup and asked there; the nodes that it opens are made outside."""

    def __init__(self, group: Path, nodes: Path) -> None:
        self.nodes = nodes
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        (group / "cgroup.procs").write_text(str(self.pid))

    def open(self, device: tuple[int, int], flags: int = os.O_RDWR, *, block: bool = False) -> str:
        """`denied`, or `allowed` (with or without a driver behind the number)."""
        node = self.nodes / f"{device[0]}-{device[1]}{'-block' * block}"
        if not node.exists():
            os.mknod(node, 0o060600 if block else 0o020600, os.makedev(*device))
        return "denied" if self._ask("open", node, device, flags) == "EPERM" else "allowed"

    def mknod(self, device: tuple[int, int]) -> str:
        answer = self._ask("mknod", self.nodes / "new", device, 0)
        return {"EPERM": "denied", "ok": "allowed"}[answer]

    def _ask(self, verb: str, path: Path, device: tuple[int, int], flags: int) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{verb} {path} {device[0]} {device[1]} {flags}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate()


def root_only() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def mounted(filesystem: str, option: str, where: Path) -> Path:
    """A mount of this cgroup hierarchy: the host's if it has one, else one of our own at `where`."""
    for point in parse_mountinfo(Path("/proc/self/mountinfo").read_bytes()):
        if point.filesystem == filesystem and option in point.options and Path(point.point, "cgroup.procs").exists():
            return Path(point.point)
    where.mkdir()
    made = subprocess.run(["mount", "-t", filesystem, "-o", option, "none", str(where)], check=False)
    return where if made.returncode == 0 else pytest.skip(f"no {filesystem} with {option} here")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def insn(opcode: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", opcode, source << 4 | target, offset, value)


DENY_ALL = insn(0xB7) + insn(0x95)
ALLOW_ALL = insn(0xB7, value=1) + insn(0x95)

# What runc gives every container: type (1 block, 2 char), major, minor (None: any), access (mknod 1, read 2, write 4).
RUNC_RULES: tuple[tuple[int, int | None, int | None, int], ...] = (
    (2, 10, 200, 7),
    (2, 5, 2, 7),
    (2, 136, None, 7),
    (2, 5, 0, 7),
    (2, 1, 9, 7),
    (2, 1, 8, 7),
    (2, 1, 7, 7),
    (2, 1, 5, 7),
    (2, 1, 3, 7),
    (1, None, None, 1),
    (2, None, None, 1),
)


def runc_like(rules: tuple[tuple[int, int | None, int | None, int], ...] = RUNC_RULES) -> bytes:
    """A filter in the form that runc and crun write: the words taken apart, a block a rule, no by default."""
    program = insn(0x61, 2, 1) + insn(0x54, 2, value=0xFFFF)
    program += insn(0x61, 3, 1) + insn(0x74, 3, value=16)
    program += insn(0x61, 4, 1, 4) + insn(0x61, 5, 1, 8)
    for kind, major, minor, access in rules:
        tests = [(2, kind), (4, major), (5, minor)]
        wanted = [(register, value) for register, value in tests if value is not None]
        left = len(wanted) + (3 if access != 7 else 0) + 2
        block = b""
        for register, value in wanted:
            left -= 1
            block += insn(0x55, register, offset=left, value=value)
        if access != 7:
            left -= 3
            block += insn(0xBC, 1, 3) + insn(0x54, 1, value=access) + insn(0x5D, 1, 3, offset=left)
        program += block + insn(0xB7, value=1) + insn(0x95)
    return program + DENY_ALL
