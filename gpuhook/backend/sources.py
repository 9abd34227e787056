"""What comes from the host: each source opened once inside the driver root, judged, and cloned as a detached mount.

This happens in the host's mount namespace, before the container is entered; from then on only descriptors exist.
"""

from __future__ import annotations

import posix

from gpuhook.kernel import libc
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.child import RIGHTS
from gpuhook.kernel.files import FORMAT, kind
from gpuhook.note import note
from gpuhook.plan.ops import Bind, Plan
from gpuhook.refusals import ApplyFailed, NodeMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

    Sources = dict[str, list["Source"]]

ATTRIBUTES = {
    "ro": libc.MOUNT_ATTR_RDONLY,
    "nosuid": libc.MOUNT_ATTR_NOSUID,
    "nodev": libc.MOUNT_ATTR_NODEV,
    "noexec": libc.MOUNT_ATTR_NOEXEC,
}
CHANGED = "the driver's files changed while the container was started; start it again"
FORMATS = {"file": 0o100000, "folder": 0o040000, "socket": 0o140000, "device": 0o020000}


class Source:
    """A detached mount of one file of the host, private and with its final flags; status: of the file."""

    def __init__(self, mount: int, status: stat_result) -> None:
        self.mount, self.status = mount, status


def open_sources(plan: Plan, driver_root: str) -> Sources:
    """For each bind of the plan a Source by its host path; an optional one that does not exist is left out.

    A path that is bound at several places has as many Sources, since a mount can be attached once only.
    Raises NodeMissing or ApplyFailed.
    """
    found: Sources = {}
    with Root(driver_root) as root:
        for op in plan.ops:
            source = _open(root, op, driver_root) if isinstance(op, Bind) else None
            if isinstance(op, Bind) and source is not None:
                found.setdefault(op.source, []).append(source)
    return found


def attributes(flags: tuple[str, ...]) -> int:
    """The mount attributes of these words."""
    bits = 0
    for flag in flags:
        bits |= ATTRIBUTES[flag]
    return bits


def _open(root: Root, op: Bind, driver_root: str) -> Source | None:
    error = NodeMissing if op.kind == "device" else ApplyFailed
    try:
        # The inventory has resolved the path; a link that stands there now was put there since.
        fd = root.open(op.source.removeprefix(driver_root.rstrip("/")), follow=False)
    except OSError as fault:
        if op.dispensable or (op.optional and fault.errno == 2):
            note(f"left out, {fault.strerror}: {op.source}")
            return None
        raise error(f"cannot open {op.source}: {fault.strerror}", where=op.source, hint=_hint(op)) from fault
    try:
        status = posix.fstat(fd)
        _judge(op, status, error)
        mount = libc.open_tree(fd, op.source)
        libc.mount_setattr(mount, attributes(op.flags), op.source)
    except OSError as fault:
        text = f"cannot take {op.source} from the host: {fault.strerror}"
        raise ApplyFailed(text, where=op.source, hint=RIGHTS) from fault
    finally:
        posix.close(fd)
    return Source(mount, status)


def _judge(op: Bind, status: stat_result, error: type[NodeMissing | ApplyFailed]) -> None:
    if status.st_mode & FORMAT != FORMATS[op.kind]:
        raise error(f"{op.source} is {kind(status.st_mode)}, wanted: a {op.kind}", where=op.source, hint=_hint(op))
    number = (posix.major(status.st_rdev), posix.minor(status.st_rdev))
    if op.device is not None and number != op.device:
        raise error(
            f"{op.source} is device {number[0]}:{number[1]}, wanted: {op.device[0]}:{op.device[1]}",
            where=op.source,
            hint=_hint(op),
        )


def _hint(op: Bind) -> str:
    if op.kind == "device":
        return "nvidia-modprobe makes the driver's device nodes; details: nvidia-smi on the host"
    return CHANGED
