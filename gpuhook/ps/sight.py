"""What we may see of the processes of a node, and a count of what we may not."""

from __future__ import annotations

import os
from collections import Counter
from functools import cached_property

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.kernel.mounts import MountPoint, parse_mountinfo


class Sight:
    """One look at /proc. pids: all processes at its beginning; some may be gone when they are asked for."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._missed: Counter[str] = Counter()

    @cached_property
    def pids(self) -> list[int]:
        """Every process that is shown to us."""
        return sorted(int(name) for name in self.node.listdir("/proc") if name.isdecimal())

    def read(self, pid: int, name: str, what: str) -> str:
        """A file below /proc/PID, "" where it cannot be read, which is counted."""
        try:
            return self.node.read(f"/proc/{pid}/{name}", "")
        except Unreadable:
            self.miss(pid, what)
            return ""

    def mounts(self, pid: int) -> tuple[MountPoint, ...]:
        """A process's mount table."""
        return parse_mountinfo(self.read(pid, "mountinfo", "mounts").encode())

    def uid(self, pid: int) -> int:
        """Whose process it is."""
        status = self.node.status(f"/proc/{pid}")
        return status.st_uid if status else -1

    def started(self, pid: int) -> int:
        """When it began, in ticks since the boot (proc_pid_stat(5), field 22)."""
        fields = self.read(pid, "stat", "state").rpartition(")")[2].split()
        return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else 0

    def miss(self, pid: int, what: str) -> None:
        """Count something that could not be seen of a process, unless it has ended."""
        if self.node.status(f"/proc/{pid}"):
            self._missed[what] += 1

    def missed(self) -> list[str]:
        """What could not be seen, a line for each kind."""
        advice = "" if os.geteuid() == 0 else " (root may)"
        return [f"{what} of {n} process{'es' * (n > 1)}{advice}" for what, n in sorted(self._missed.items())]
