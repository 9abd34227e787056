"""Looks at every process of a node and puts together who uses, and who may use, which GPU."""

from __future__ import annotations

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.ps import devices, model
from gpuhook.ps.container import Group, container_of
from gpuhook.ps.facts import gpus, hidden, users
from gpuhook.ps.names import names
from gpuhook.ps.owner import Owner, last_name, owner_of
from gpuhook.ps.sight import Sight

LONGEST = 200  # characters of a command


def look(node: Node) -> model.Usage:
    """Everything at this moment. Raises nothing of ours: what cannot be seen is said."""
    sight = Sight(node)
    groups = grouped(sight)
    homes = {pid: group.owner.id for group in groups for pid in group.pids}
    found = list(processes(sight, homes))
    shown = {group.owner: told for group in groups if (told := container_of(sight, group, found))}
    named, unasked = names(node, shown)
    containers = [
        told.model_copy(update=vars(named[owner.id]) if owner.id in named else {}) for owner, told in shown.items()
    ]
    return model.Usage(
        gpus=list(gpus(node)),
        containers=sorted(containers, key=lambda one: (one.engine, one.name, one.id)),
        processes=found,
        unseen=[*hidden(node), *sight.missed(), *unasked],
    )


def grouped(sight: Sight) -> list[Group]:
    """The processes of each container."""
    groups: dict[Owner, Group] = {}
    strangers: dict[str, Owner | None] = {}
    mine = sight.node.link("/proc/self/ns/mnt")
    for pid in sight.pids:
        cgroup = sight.read(pid, "cgroup", "cgroup")
        owner = owner_of(cgroup)
        space = "" if owner else sight.node.link(f"/proc/{pid}/ns/mnt")
        if space and space != mine:
            if space not in strangers:
                strangers[space] = _stranger(sight, pid, last_name(cgroup) or space)
            owner = strangers[space]
        if owner:
            groups.setdefault(owner, Group(owner, cgroup)).pids.append(pid)
    return list(groups.values())


def _stranger(sight: Sight, pid: int, name: str) -> Owner | None:
    """A container of an engine that we do not know: another mount namespace, with GPUs mounted into it."""
    return Owner("unknown", name) if devices.bound(sight.mounts(pid)) else None


def processes(sight: Sight, homes: dict[int, str]) -> list[model.Process]:
    """The processes that have the driver's files open. homes: process → its container's id."""
    known = users(sight.node)
    found = []
    for pid in sight.pids:
        try:
            files = devices.open_files(sight.node, pid)
        except Unreadable:
            sight.miss(pid, "open files")
            continue
        if files:
            uid = sight.uid(pid)
            told = model.Process(
                pid=pid,
                user=known.get(uid, str(uid)),
                command=_command(sight, pid),
                container=homes.get(pid, ""),
                open=[name.removeprefix("/dev/") for name in files],
                gpus=[name for name in files if devices.minor_of(name) is not None],
            )
            found.append(told)
    return found


def _command(sight: Sight, pid: int) -> str:
    line = sight.read(pid, "cmdline", "command line").replace("\0", " ").strip()
    return (line or f"[{sight.read(pid, 'comm', 'name').strip()}]")[:LONGEST]
