"""One container: which GPUs stand in it, which of them its rules allow, what it asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.doctor.node import Unreadable
from gpuhook.driver.nodes import NVIDIA_MAJOR
from gpuhook.ps import devices
from gpuhook.ps.model import Access, Container, Process
from gpuhook.ps.owner import Owner
from gpuhook.ps.rules import Rules, rules_of
from gpuhook.ps.sight import Sight

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NOTHING = (None, "", "void", "none")  # values that ask for no GPU


@dataclass
class Group:
    """The processes of one container. cgroup: the text of one's /proc/PID/cgroup."""

    owner: Owner
    cgroup: str
    pids: list[int] = field(default_factory=list)


def container_of(sight: Sight, group: Group, processes: list[Process]) -> Container | None:
    """What is known of a container without its engine, or None where it has nothing to do with GPUs."""
    first = min(group.pids, key=lambda pid: (sight.started(pid), pid))
    using = [process.pid for process in processes if process.container == group.owner.id]
    asked = variable(sight.read(first, "environ", "environment"))
    there = _nodes(sight, first)
    if not there and not using and asked in NOTHING:
        return None
    rules = _rules(sight, first, group.cgroup) if there else None
    may_use = [Access(node=name, path=path, allowed=_allowed(rules, name)) for path, name in there.items()]
    return Container(
        engine=group.owner.engine,
        id=group.owner.id,
        pod=group.owner.pod,
        pid=first,
        asked=asked,
        may_use=may_use,
        lost=[access.node for access in may_use if access.allowed is False],
        processes=using,
    )


def variable(environ: str) -> str | None:
    """The value of NVIDIA_VISIBLE_DEVICES in /proc/PID/environ; the last one counts."""
    values = [entry.partition("=")[2] for entry in environ.split("\0") if entry.startswith(f"{VARIABLE}=")]
    return values[-1] if values else None


def _nodes(sight: Sight, pid: int) -> dict[str, str]:
    mounts = sight.mounts(pid)
    try:
        return devices.in_container(sight.node, pid, mounts)
    except Unreadable:
        sight.miss(pid, "device nodes")
        return devices.bound(mounts)


def _rules(sight: Sight, pid: int, cgroup: str) -> Rules:
    rules = rules_of(sight.node, cgroup)
    if not rules.complete:
        sight.miss(pid, "device rules")
    return rules


def _allowed(rules: Rules | None, name: str) -> bool | None:
    minor = devices.minor_of(name)
    return None if rules is None or minor is None else rules.allows(NVIDIA_MAJOR, minor)
