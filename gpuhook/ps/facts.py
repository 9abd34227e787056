"""Facts about the node itself: its GPUs, its users, and whether it hides processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.kernel.mounts import parse_mountinfo
from gpuhook.ps.model import Gpu

GPUS = "/proc/driver/nvidia/gpus"
OPEN_TO_ALL = ("hidepid=0", "hidepid=off", "hidepid=1", "hidepid=noaccess")


def gpus(node: Node) -> Iterator[Gpu]:
    """The GPUs of the driver, by their addresses, which is nvidia-smi's order too."""
    try:
        folders = node.listdir(GPUS)
    except Unreadable:
        return
    for bus_id in folders:
        try:
            lines = node.lines(f"{GPUS}/{bus_id}/information")
        except Unreadable:
            continue
        said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if minor := said.get("Device Minor", ""):
            uuid, model = said.get("GPU UUID", ""), said.get("Model", "")
            yield Gpu(node=f"/dev/nvidia{minor}", uuid=uuid, model=model, bus_id=bus_id)


def users(node: Node) -> dict[int, str]:
    """The names of local users; no network service is asked."""
    try:
        rows = [line.split(":") for line in node.lines("/etc/passwd")]
    except Unreadable:
        return {}
    return {int(row[2]): row[0] for row in rows if len(row) > 2 and row[2].isdecimal()}


def hidden(node: Node) -> Iterator[str]:
    """Whether /proc shows only this user's processes (proc(5), hidepid)."""
    if os.geteuid() == 0:
        return
    for mount in parse_mountinfo(node.read("/proc/self/mountinfo", "").encode()):
        options = [option for option in mount.options if option.startswith("hidepid=")]
        if mount.point == "/proc" and options and options[0] not in OPEN_TO_ALL:
            yield f"processes of other users (/proc is mounted with {options[0]})"
