"""The mount table of a process: /proc/PID/mountinfo, split by the documented fields only (proc_pid_mountinfo(5))."""

from __future__ import annotations

from gpuhook.value import Value


class MountPoint(Value):
    """A line of mountinfo. id: as statx(2) has it; device: "major:minor"; root: of the mount in its filesystem.

    shared: in a peer group, so that what is mounted below it shows up elsewhere; options: of the superblock.
    """

    id: int
    device: str
    root: str
    point: str
    shared: bool
    filesystem: str
    options: tuple[str, ...]


def parse_mountinfo(data: bytes) -> tuple[MountPoint, ...]:
    """All lines that have the documented form, in their order; names may hold any byte but NUL."""
    return tuple(point for line in data.split(b"\n") if (point := _line(line.decode("utf-8", "surrogateescape"))))


def _line(line: str) -> MountPoint | None:
    fields = line.split(" ")
    if "-" not in fields[6:]:
        return None
    dash = fields.index("-", 6)
    if len(fields) < dash + 4 or not fields[0].isdecimal():
        return None
    return MountPoint(
        id=int(fields[0]),
        device=fields[2],
        root=unescape(fields[3]),
        point=unescape(fields[4]),
        shared=any(field.startswith("shared:") for field in fields[6:dash]),
        filesystem=fields[dash + 1],
        options=tuple(fields[dash + 3].split(",")),
    )


def unescape(text: str) -> str:
    """The name that mountinfo writes with octal escapes for blank, tab, newline and backslash."""
    first, *rest = text.split("\\")
    parts = [first]
    for piece in rest:
        digits = piece[:3]
        if len(digits) == 3 and all(c in "01234567" for c in digits) and int(digits, 8) < 128:
            parts.append(chr(int(digits, 8)) + piece[3:])
        else:
            parts.append("\\" + piece)
    return "".join(parts)
