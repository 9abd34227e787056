"""Where the hook puts things: every target of a plan, and what becomes of a start when something stands there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuhook.plan.ops import Bind, Link, Op, Tmpfs
from tests.attack.rig import Lab
from tests.attack.rounds import Plant, plan_of, rounds
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs, put

CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES=all"
CACHE = "/etc/ld.so.cache"


@dataclass(frozen=True)
class Targets:
    """Absolute paths in a Debian-like container, in plan order: files, sockets and nodes; folders; links of ours.

    dispensable: those that are left out with a note where the container has no place for them (graphics extras).
    """

    ops: tuple[Op, ...]
    files: tuple[str, ...]
    folders: tuple[str, ...]
    links: tuple[str, ...]
    dispensable: frozenset[str]


def targets_of(lab: Lab) -> Targets:
    """What a start with all capabilities puts in; procfs is the kernel's, so nobody can put anything there."""
    ops = tuple(op for op in plan_of(lab.node.driver.root) if not getattr(op, "target", "").startswith("/proc/"))
    binds = [op for op in ops if isinstance(op, Bind)]
    return Targets(
        ops,
        tuple(op.target for op in binds if op.kind != "folder"),
        tuple(op.target for op in ops if isinstance(op, Tmpfs) or (isinstance(op, Bind) and op.kind == "folder")),
        tuple(op.target for op in ops if isinstance(op, Link)),
        frozenset(op.target for op in ops if isinstance(op, (Bind, Link)) and op.dispensable),
    )


def outcomes(lab: Lab, targets: Targets, plants: Iterable[Plant], rootfs: str = "") -> dict[Plant, str]:
    """For each plant in turn the error of a start, "" for success; nothing changes on the host, all is undone."""
    rootfs = rootfs or make_rootfs(f"{lab.folder}/rootfs")
    put(rootfs, {"etc/debian_version": "12.5\n"})
    plants = tuple(plants)
    with lab.guard(), Init(rootfs, dev=False) as init:
        mounts = init.mounts
        errors = rounds(init, lab.node.driver.root, targets.ops, plants=plants)
        assert init.mounts == mounts
    return dict(zip(plants, errors, strict=True))


def unexpected(targets: Targets, errors: dict[Plant, str], slug: str) -> list[str]:
    """What is not as it should be: refused with this slug and the target named, or, if dispensable, left out."""
    wrong = []
    for plant, error in errors.items():
        first = error.split("\n")[0]
        refused = first.startswith(f"gpuhook: {slug}: ") and plant.target in first
        if not (error == "" if plant.target in targets.dispensable else refused):
            wrong.append(f"{plant}: {first or 'it succeeded'}")
    return wrong
