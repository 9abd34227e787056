"""The device nodes that a request brings on a machine with a driver, and the specification with them in it."""

from __future__ import annotations

import glob
import os
import re
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from tests.replay_rules import wanted
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.shim import Shim

ROOT = "/"  # of the driver to which the recorded cases lead
# The nodes that are no GPU's, and the capabilities that bring them; None: always.
CONTROL = {
    "nvidiactl": None,
    "nvidia-uvm": {"compute", "video"},
    "nvidia-uvm-tools": {"compute", "video"},
    "nvidia-modeset": {"display"},
}


@dataclass(frozen=True)
class HostGpu:
    """A GPU as the kernel shows it."""

    uuid: str
    minor: int


def host_gpus(root: str = ROOT) -> list[HostGpu]:
    """The GPUs of a machine, in the order of their addresses."""
    found = []
    for file in sorted(glob.glob(f"{root}/proc/driver/nvidia/gpus/*/information")):
        with open(file, encoding="utf-8") as text:
            fields = dict(re.findall(r"^(.+?):[ \t]+(.*)$", text.read(), re.MULTILINE))
        found.append(HostGpu(fields["GPU UUID"], int(fields["Device Minor"])))
    return found


def host_devices(shim: Shim, root: str = ROOT) -> list[str]:
    """The nodes that this container gets; none where there is no driver, or where the hook will refuse it."""
    gpus, names = host_gpus(root), wanted.devices(shim.hook) or []
    chosen = gpus if names == ["all"] else [gpu for name in names for gpu in _named(name, gpus)]
    if not gpus or len(chosen) < (0 if names == ["all"] else len(names)):
        return []
    words = set(wanted.capabilities(shim.hook))
    control = [name for name, bringing in CONTROL.items() if bringing is None or bringing & words]
    there = [name for name in control if os.path.exists(f"{root}/dev/{name}")]
    # Each once, in the order in which they are asked for.
    return [f"/dev/{name}" for name in dict.fromkeys((*there, *(f"nvidia{gpu.minor}" for gpu in chosen)))]


def _named(name: str, gpus: list[HostGpu]) -> list[HostGpu]:
    if name.isdigit():
        return gpus[int(name) : int(name) + 1]
    return [gpu for gpu in gpus if gpu.uuid.startswith(name)]


def has_systemd(shim: Shim) -> bool:
    """Whether systemd manages cgroups, or the runtime is told so."""
    return "--systemd-cgroup" in shim.args or os.path.isdir("/run/systemd/system")


def with_devices(shim: Shim, outcome: Outcome, root: str = ROOT) -> Outcome:
    """The outcome with this machine's nodes, and their rules, in the specification."""
    if not isinstance(outcome.spec, dict):
        return outcome
    spec = deepcopy(outcome.spec)
    nodes = [(path, os.stat(f"{root}{path}")) for path in host_devices(shim, root)]
    linux = spec["linux"] = spec.get("linux") or {}
    linux["devices"] = [*(linux.get("devices") or []), *(_node(path, status) for path, status in nodes)]
    resources = linux["resources"] = linux.get("resources") or {}
    rules = ({"allow": True, "type": "c", **_number(status), "access": "rw"} for _, status in nodes)
    resources["devices"] = [*(resources.get("devices") or []), *rules]
    return replace(outcome, spec=spec)


def _number(status: os.stat_result) -> dict[str, int]:
    return {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}


def _node(path: str, status: os.stat_result) -> dict[str, Any]:
    owner = {"fileMode": status.st_mode & 0o777, "uid": status.st_uid, "gid": status.st_gid}
    return {"path": path, "type": "c", **_number(status), **owner}
