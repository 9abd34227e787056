"""A container's device rules: lines of cgroup v1, programs of cgroup v2 that we run over the question ourselves."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.errors import GpuhookError
from gpuhook.kernel.cgroup import folders, group_paths
from gpuhook.kernel.mounts import MountPoint, parse_mountinfo
from gpuhook.kernel.undo import Undo

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Rules:
    """All that decides about a container's devices; each hierarchy and each program has a veto.

    lines: of cgroup v1's devices.list, one of which must allow; programs: of the v2 group and those above it; None
    where there is no such hierarchy; complete: whether all could be seen.
    """

    lines: tuple[str, ...] | None = None
    programs: tuple[bytes, ...] | None = None
    complete: bool = True

    def allows(self, major: int, minor: int) -> bool | None:
        """Whether a character device may be read and written; None where what decides was not seen or understood."""
        answers: list[bool | None] = [] if self.complete else [None]
        if self.lines is not None:
            answers.append(any(_covers(line, major, minor) for line in self.lines))
        if self.programs:
            from gpuhook.kernel.devprog import allows

            answers += [allows(program, major, minor) for program in self.programs]
        return False if False in answers else None if None in answers else True


def _covers(line: str, major: int, minor: int) -> bool:
    """Whether one line of devices.list allows it ("a *:* rwm", "c 195:0 rw"): the kernel never adds two up."""
    fields = line.replace(":", " ").split()
    if len(fields) != 4 or fields[0] not in ("a", "c"):
        return False
    fits = fields[1] in ("*", str(major)) and fields[2] in ("*", str(minor))
    return fits and {"r", "w"} <= set(fields[3])


def rules_of(node: Node, cgroup: str) -> Rules:
    """The rules for a process. cgroup: the text of its /proc/PID/cgroup. Raises nothing of ours."""
    table = parse_mountinfo(node.read("/proc/self/mountinfo", "").encode())
    rules = Rules()
    for version, path in sorted(group_paths(cgroup.encode()).items()):
        rules = _with_hierarchy(rules, node, version, path, table)
    return rules if rules != Rules() else Rules(complete=False)  # nothing that decides is mounted here


def _with_hierarchy(rules: Rules, node: Node, version: int, path: str, table: tuple[MountPoint, ...]) -> Rules:
    """The rules with those of one hierarchy, if that is mounted here; path: of the group in it."""
    try:
        found = [folder for _, folder in folders(version, path, table)]
        if found and version == 1:
            return replace(rules, lines=tuple(node.read(f"{found[0]}/devices.list").splitlines()))
        return replace(rules, programs=_programs(node, found[0])) if found else rules
    except (GpuhookError, FileNotFoundError, Unreadable):
        return replace(rules, complete=False)


def _programs(node: Node, folder: str) -> tuple[bytes, ...]:
    if not node.is_real:
        raise Unreadable("the device rules: programs of cgroup v2 are in the kernel, not in files")
    from gpuhook.kernel import bpf

    undo = Undo()
    try:
        group = undo.keep(os.open(folder, FOLDER))
        numbers, _ = bpf.query(group, effective=True)
        return tuple(bpf.instructions(undo.keep(bpf.open_program(number))) for number in numbers)
    except OSError as error:
        raise Unreadable(f"the device rules: {error.strerror}") from error
    finally:
        undo.close()
