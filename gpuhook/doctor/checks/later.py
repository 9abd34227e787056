"""What works now and will break: at the next reload of systemd, at the next boot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuhook.doctor.engines import (
    daemon_settings,
    docker_info,
    dockerds,
    has_systemd,
    kubelet_setting,
    kubelets,
)
from gpuhook.doctor.facts import driver_runs, settings_of, unit_state
from gpuhook.doctor.model import Finding, Level, tell
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.doctor.registry import check

RULES = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
UNITS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def unlinked(node: Node) -> list[tuple[str, str]]:
    """The driver's device nodes without a link in /dev/char, and that link."""
    folders = {"/dev": r"nvidia(ctl|-uvm|-uvm-tools|-modeset|\d+)", "/dev/nvidia-caps": r"nvidia-cap\d+"}
    found = []
    for folder, pattern in folders.items():
        for name in node.listdir(folder):
            path = f"{folder}/{name}"
            numbers = node.device(path) if re.fullmatch(pattern, name) else None
            link = f"/dev/char/{numbers[0]}:{numbers[1]}" if numbers else ""
            if link and not node.link(link):
                found.append((path, link))
    return found


@check("systemd-reload-loses-gpu", family="later")
def reload(node: Node) -> Iterator[Finding]:
    """Running containers keep their GPUs when systemd reloads its units."""
    if not has_systemd(node) or not driver_runs(node):
        return
    missing, engine = unlinked(node), _uses_systemd(node)
    if not missing or not engine:
        return
    rule = any("/dev/char" in node.read(path, "") for folder in RULES for path in node.glob(folder, "*nvidia*"))
    yield tell(
        "systemd-reload-loses-gpu",
        "warning",
        f"containers of {engine} lose their GPUs at the next `systemctl daemon-reload`: "
        f"{len(missing)} device nodes have no link in /dev/char",
        *((link, "absent", path) for path, link in missing[:3]),
        advice=(
            "`gpuhook doctor --fix --only systemd-reload-loses-gpu` makes the links"
            + ("" if rule else ", now and at every boot"),
            (
                "or use the runtime nvidia of `gpuhook install`, which puts the devices into the container's "
                "specification; that also serves nvidia-uvm, whose number is another one at every boot"
            ),
        ),
    )


def _uses_systemd(node: Node) -> str:
    """The engine that lets systemd manage its containers' cgroups, "" for none. Raises Unreadable."""
    options = daemon_settings(node).get("exec-opts")
    if dockerds(node):
        said = ""
        try:
            said = str(docker_info(node).get("CgroupDriver", ""))
        except Unreadable:
            said = "systemd" if "native.cgroupdriver=systemd" in str(options) else ""
            if not said:
                raise
        if said == "systemd":
            return "Docker"
    if kubelets(node) and kubelet_setting(node, "cgroupDriver") == "systemd":
        return "Kubernetes"
    return "Podman or CRI-O" if node.which("podman") or node.which("crio") else ""


@check("boot-order", family="later")
def boot(node: Node) -> Iterator[Finding]:
    """At boot the device nodes are made before containers are started."""
    if not has_systemd(node) or not driver_runs(node) or not (dockerds(node) or kubelets(node)):
        return
    if unit_state(node, "nvidia-persistenced") == "active":
        return
    rules = (path for folder in RULES for path in node.glob(folder, "*nvidia*"))
    if any("nvidia" in node.read(path, "") for path in rules):
        return
    units = [path for folder in UNITS for path in node.glob(folder, "*nvidia*.service")]
    if any(
        re.search(r"^Before=.*\b(?:docker|containerd|crio)\b", node.read(path, ""), re.MULTILINE) for path in units
    ):
        return
    level: Level = "note" if settings_of(node).load_kmods else "warning"
    yield tell(
        "boot-order",
        level,
        "nothing makes the device nodes at boot: containers that start by themselves may be earlier than the driver",
        ("systemctl is-active nvidia-persistenced", unit_state(node, "nvidia-persistenced") or "unknown", "active"),
        (f"{RULES[0]}, {RULES[2]}", "no rule for nvidia"),
        advice="`systemctl enable --now nvidia-persistenced`, ordered before docker.service and containerd.service",
    )
