"""What surrounds the engine: SELinux, AppArmor, /proc, an outer container, limits, a user's own engine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuhook.doctor.engines import HOOK, daemon_settings, docker_info, dockerds, kubelets
from gpuhook.doctor.facts import driver_runs, has_gpu, kernel_log, place_of, settings_of
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.doctor.registry import check

BOOLEANS = ("container_use_devices", "container_use_xserver_devices")
ALLOWED = ("container_file_t", "container_device_t")  # types that containers may use without a boolean
OUTER = ("lxc", "lxc-libvirt", "lxd", "incus")
LIMIT = 10_000_000  # open files
ENGINES = ("dockerd", "containerd", "crio")


@check("selinux", family="host")
def selinux(node: Node) -> Iterator[Finding]:
    """SELinux lets containers use the device nodes."""
    if node.read("/sys/fs/selinux/enforce", "0").strip() != "1" or not driver_runs(node) or not _confines(node):
        return
    label = node.label("/dev/nvidiactl")
    kind = label.split(":")[2] if label.count(":") >= 2 else ""
    values = {name: node.read(f"/sys/fs/selinux/booleans/{name}", "").strip()[:1] for name in BOOLEANS}
    if kind in ALLOWED or "1" in values.values():
        return
    boolean = BOOLEANS[1] if values[BOOLEANS[1]] and kind.startswith("xserver") else BOOLEANS[0]
    yield tell(
        "selinux",
        "warning",
        f"SELinux keeps containers from /dev/nvidia*{f' ({kind})' if kind else ''}",
        ("/sys/fs/selinux/enforce", "1"),
        *((f"/sys/fs/selinux/booleans/{name}", value or "absent", "1") for name, value in values.items()),
        advice=(
            f"`setsebool -P {boolean} 1`, or start containers with --security-opt label=disable",
            "wrong labels of libraries: `restorecon -v` on them; do not use chcon, which is lost at reboot",
        ),
    )


def _confines(node: Node) -> bool:
    """Whether an engine here labels its containers; Docker does so only when it is told to."""
    told = daemon_settings(node).get("selinux-enabled") is True
    told = told or any("--selinux-enabled" in daemon.argv for daemon in dockerds(node))
    return told or bool(node.which("podman") or node.which("crio") or kubelets(node))


@check("apparmor", family="host")
def apparmor(node: Node) -> Iterator[Finding]:
    """AppArmor denied nothing to the programs that start GPU containers."""
    if node.read("/sys/module/apparmor/parameters/enabled", "N").strip() != "Y" or not has_gpu(node):
        return
    lines = [line for line in kernel_log(node, 'apparmor="DENIED"') if re.search(r"runc|nvidia|gpuhook|docker", line)]
    if lines:
        words = dict(re.findall(r'(\w+)="([^"]*)"', lines[-1]))
        yield tell(
            "apparmor",
            "warning",
            f"AppArmor denied {words.get('operation', 'something')} by the profile {words.get('profile', '?')}",
            ("dmesg", lines[-1]),
            advice="update the package apparmor, or adjust the profile",
        )


@check("hidepid", family="host")
def hidepid(node: Node) -> Iterator[Finding]:
    """/proc shows processes to the unprivileged child of nvidia-container-cli."""
    for line in node.lines("/proc/mounts"):
        words = line.split()
        found = re.search(r"\bhidepid=(\w+)", words[3]) if len(words) > 3 and words[1] == "/proc" else None
        if found and found[1] not in ("0", "off") and settings_of(node).cli_user != "root:root":
            yield tell(
                "hidepid",
                "warning" if node.which("nvidia-container-cli") else "note",
                f"/proc is mounted with hidepid={found[1]}: nvidia-container-cli cannot see the container's process",
                ("/proc/mounts", words[3]),
                (place_of(node, "nvidia-container-cli.user"), settings_of(node).cli_user or "not set", "root:root"),
                advice='user = "root:root" under [nvidia-container-cli] of config.toml; gpuhook\'s own engine needs '
                "nothing",
            )


@check("nested-lxc", family="host")
def nested(node: Node) -> Iterator[Finding]:
    """No container of LXC, LXD, Incus or Proxmox surrounds us; or if so, the GPU's nodes were given to it."""
    outer = node.read("/run/systemd/container", "").strip()
    if not outer and not node.exists("/run/systemd/system"):
        try:
            found = re.search(r"(?:^|\0)container=([\w-]+)", node.read("/proc/1/environ", ""))
        except Unreadable:
            found = None
        outer = found[1] if found else ""
    if outer not in OUTER or not has_gpu(node):
        return
    usable = node.device("/dev/nvidiactl") is not None
    yield tell(
        "nested-lxc",
        "note" if usable else "failure",
        f"this is a container of {outer}: device rules belong to the outer one"
        + ("" if usable else ", which did not give the GPU to it"),
        ("/run/systemd/container", outer),
        *([] if usable else [("/dev/nvidiactl", "absent")]),
        advice="outside, allow the majors of nvidia, nvidia-uvm and nvidia-caps (/proc/devices) and bind /dev/nvidia*"
        if not usable
        else "with nvidia-container-cli: no-cgroups = true under [nvidia-container-cli] of config.toml",
    )


@check("nofile-huge", family="host")
def open_files(node: Node) -> Iterator[Finding]:
    """Containers do not get a limit of open files over which programs loop."""
    for process in node.processes(*ENGINES):
        line = next((one for one in node.lines(f"/proc/{process.pid}/limits") if one.startswith("Max open files")), "")
        words = line.removeprefix("Max open files").split()
        if words and (words[0] == "unlimited" or int(words[0]) > LIMIT):
            yield tell(
                "nofile-huge",
                "warning",
                f"{process.name} has a limit of {words[0]} open files, which its containers inherit: starts are slow",
                (f"/proc/{process.pid}/limits", words[0], "1048576"),
                advice="LimitNOFILE=1048576 in a drop-in of its unit, or `--ulimit nofile=1048576` for the container",
            )


@check("rootless-cgroup", family="host")
def rootless(node: Node) -> Iterator[Finding]:
    """Where users have engines of their own, device rules are left alone, and need not be written."""
    sockets = [
        path
        for user in _listed(node, "/run/user")
        for name in ("docker.sock", "podman/podman.sock")
        if _exists(node, path := f"/run/user/{user}/{name}")
    ]
    options: object = []
    try:
        options = docker_info(node).get("SecurityOptions")
    except Unreadable:
        options = []
    told = ["docker info"] if isinstance(options, list) and any("rootless" in str(one) for one in options) else []
    if not (sockets or told) or not has_gpu(node):
        return
    advice = ["nothing has to change: device rules are skipped there, and are not needed"]
    if node.which("nvidia-container-cli") and node.which(HOOK):
        advice.append(
            "if it fails with nvidia-container-cli: no-cgroups = true in the user's own "
            "~/.config/nvidia-container-runtime/config.toml, not in /etc"
        )
    yield tell(
        "rootless-cgroup",
        "note",
        "a rootless engine is here",
        *((where,) for where in (*sockets, *told)),
        advice=tuple(advice),
    )


def _listed(node: Node, folder: str) -> list[str]:
    try:
        return node.listdir(folder)
    except Unreadable:
        return []


def _exists(node: Node, path: str) -> bool:
    try:
        return node.exists(path)
    except Unreadable:  # another user's folder
        return False
