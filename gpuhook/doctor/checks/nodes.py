"""The GPUs one by one: whether each answers, its device nodes, the services that the driver needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuhook.doctor.facts import (
    driver_runs,
    gpu_information,
    kernel_log,
    major_of,
    module_version,
    nvidia_gpus,
    pci_devices,
    settings_of,
    unit_state,
)
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node
from gpuhook.doctor.registry import check

PARAMS = "/proc/driver/nvidia/params"
PERSISTENCED = "/run/nvidia-persistenced/socket"
NVIDIA = "0x10de"
BRIDGE = "0x0680"  # PCI class of an NVSwitch
LOST = re.compile(r"NVRM:.*(?:Xid.*: 79|RmInitAdapter failed|fallen off the bus)")
MANY = 4  # GPUs from which on starting the driver for each container is slow enough to hurt


@check("gpu-lost", family="nodes")
def lost(node: Node) -> Iterator[Finding]:
    """Every GPU on the bus answers the driver."""
    if not driver_runs(node):
        return
    bus = [gpu.address for gpu in nvidia_gpus(node) if gpu.driver == "nvidia"]
    known = gpu_information(node)
    gone = [address for address in bus if address not in known]
    healthy = [f"{known[address].get('GPU UUID', address)}" for address in bus if address in known]
    for address in gone:
        yield tell(
            "gpu-lost",
            "warning" if healthy else "failure",
            f"GPU {address} is on the bus and does not answer the driver",
            (f"/proc/driver/nvidia/gpus/{address}", "absent"),
            advice=_recover(healthy),
        )
    lines = [line for line in kernel_log(node, "NVRM:") if LOST.search(line)]
    if lines and not gone:
        yield tell(
            "gpu-lost",
            "warning",
            "the kernel reports a GPU that fell off the bus or could not be started",
            ("dmesg", lines[-1]),
            advice=_recover(healthy),
        )
    elif not gone:
        yield tell("gpu-lost", "ok", f"all {len(bus)} GPU(s) answer the driver")


def _recover(healthy: list[str]) -> tuple[str, ...]:
    others = (f"the others stay usable, ask for them by UUID: {', '.join(healthy)}",) if healthy else ()
    return (*others, "power-cycle the host (a reboot may not be enough); if it comes back, look at power and risers")


@check("uvm-missing", family="nodes")
def missing_nodes(node: Node) -> Iterator[Finding]:
    """The driver's device nodes are there, with the numbers that the kernel has now."""
    if not driver_runs(node):
        return
    if not node.exists("/sys/module/nvidia_uvm"):
        yield tell(
            "uvm-missing",
            "note" if settings_of(node).load_kmods else "warning",
            "the module nvidia-uvm is not loaded: CUDA needs it",
            ("/sys/module/nvidia_uvm", "absent"),
            advice=("`nvidia-modprobe -c0 -u` loads it", _AT_BOOT),
        )
        return
    minors = [info.get("Device Minor", "") for info in gpu_information(node).values()]
    wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{minor}" for minor in minors if minor.isdigit())]
    absent = [path for path in wanted if node.device(path) is None]
    if absent:
        yield tell(
            "uvm-missing",
            "warning",
            f"device nodes are missing: {', '.join(absent)}",
            *((path, "absent") for path in absent),
            advice=("create them: `nvidia-modprobe -c0 -u`", _AT_BOOT),
        )
        return
    found, major = node.device("/dev/nvidia-uvm"), major_of(node, "nvidia-uvm")
    if found and major is not None and found[0] != major:
        yield tell(
            "uvm-missing",
            "warning",
            f"/dev/nvidia-uvm has the major number {found[0]}, the kernel's is {major}",
            ("/dev/nvidia-uvm", str(found[0]), str(major)),
            advice="remove the node and create it anew: `rm /dev/nvidia-uvm*; nvidia-modprobe -c0 -u`",
        )
        return
    yield tell("uvm-missing", "ok", f"the {len(wanted)} device nodes are there")


_AT_BOOT = "for every boot: `systemctl enable --now nvidia-persistenced`, or nvidia-uvm in /etc/modules-load.d"


@check("device-node-perms", family="nodes")
def permissions(node: Node) -> Iterator[Finding]:
    """Everyone may open the device nodes."""
    if not driver_runs(node):
        return
    names = [name for name in node.listdir("/dev") if re.fullmatch(r"nvidia(ctl|-uvm|-uvm-tools|\d+)", name)]
    closed = []
    for name in names:
        found = node.device(f"/dev/{name}")
        if found and found[2] & 0o006 != 0o006:
            closed.append((f"/dev/{name}", f"{found[2]:04o} {found[3]}:{found[4]}", "0666"))
    if not closed:
        return
    group = closed[0][1].rpartition(":")[2]
    yield tell(
        "device-node-perms",
        "warning",
        f"not everyone may open the GPUs' device nodes: {closed[0][0]} is {closed[0][1]}",
        *closed,
        *_policy(node),
        advice=(
            f"users of rootless engines: join group {group}; with Podman also --group-add keep-groups",
            f'with nvidia-container-cli: user = "root:{group}" under [nvidia-container-cli] of config.toml',
            "to open them for all: `options nvidia NVreg_DeviceFileMode=0666` in /etc/modprobe.d, reload the module",
        ),
    )


def _policy(node: Node) -> Iterator[tuple[str, ...]]:
    mode = next((line for line in node.lines(PARAMS) if line.startswith("DeviceFileMode:")), "")
    if mode and mode.split()[-1].isdigit() and int(mode.split()[-1]) != 0o666:
        yield (PARAMS, f"DeviceFileMode {int(mode.split()[-1]):04o}", "0666")
    for folder in ("/etc/modprobe.d", "/usr/lib/modprobe.d"):
        for path in node.glob(folder, "*.conf"):
            for number, line in enumerate(node.lines(path), 1):
                if "NVreg_DeviceFile" in line or "NVreg_ModifyDeviceFiles" in line:
                    yield (f"{path}:{number}", line.strip())


@check("fabricmanager", family="nodes")
def fabric(node: Node) -> Iterator[Finding]:
    """Where there are NVSwitches, the fabric manager of the driver's version runs."""
    if not driver_runs(node):
        return
    state = "active" if node.processes("nv-fabricmanager") else unit_state(node, "nvidia-fabricmanager")
    if not _has_switch(node):
        if state == "failed":
            yield tell(
                "fabricmanager",
                "note",
                "nvidia-fabricmanager failed, and there is no NVSwitch here: it is not needed",
                ("systemctl is-active nvidia-fabricmanager", state),
                advice="`systemctl disable nvidia-fabricmanager`",
            )
        return
    version = module_version(node)
    said = node.run("nv-fabricmanager", "--version")
    found = re.search(r"(\d+\.\d+[.\d]*)", said[1]) if said else None
    install = f"install nvidia-fabricmanager {version} and `systemctl enable --now nvidia-fabricmanager`"
    if state != "active":
        yield tell(
            "fabricmanager",
            "failure",
            f"there are NVSwitches, and nvidia-fabricmanager is {state or 'not installed'}: CUDA fails (error 802)",
            ("systemctl is-active nvidia-fabricmanager", state or "unknown", "active"),
            advice=(install, "nothing has to change in the containers"),
        )
    elif found and found[1] != version:
        yield tell(
            "fabricmanager",
            "failure",
            f"nvidia-fabricmanager is {found[1]}, the driver is {version}: they must be the same version",
            ("nv-fabricmanager --version", found[1], version),
            advice=install,
        )
    else:
        yield tell("fabricmanager", "ok", "NVSwitches, and their fabric manager runs")


def _has_switch(node: Node) -> bool:
    return (
        bool(node.listdir("/proc/driver/nvidia-nvswitch/devices"))
        or bool(node.glob("/dev", "nvidia-nvswitch[0-9]*"))
        or any(one.vendor == NVIDIA and one.kind.startswith(BRIDGE) for one in pci_devices(node))
    )


@check("slow-start", family="nodes")
def persistence(node: Node) -> Iterator[Finding]:
    """The driver stays initialised between containers."""
    if not driver_runs(node) or node.exists(PERSISTENCED):
        return
    if unit_state(node, "nvidia-persistenced") == "active":
        return
    query = ("nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader")
    said = node.run(*query, seconds=2.0)
    modes = [mode for mode in said[1].split() if mode in ("Enabled", "Disabled")] if said else []
    if modes and "Disabled" not in modes:
        return
    count = len(nvidia_gpus(node))
    yield tell(
        "slow-start",
        "warning" if count >= MANY else "note",
        f"persistence mode is off: the driver starts {count} GPU(s) anew for every container",
        (PERSISTENCED, "absent"),
        *([(" ".join(query), "Disabled")] if modes else []),
        advice="`systemctl enable --now nvidia-persistenced`, or `nvidia-smi -pm 1`",
    )


@check("uvm-after-suspend", family="nodes")
def after_suspend(node: Node) -> Iterator[Finding]:
    """The UVM module was loaded since the host slept last, or the driver keeps what it needs over a sleep."""
    if not driver_runs(node) or not node.exists("/sys/module/nvidia_uvm"):
        return
    slept = node.read("/sys/power/suspend_stats/success", "0").strip()
    kept = any(line.split() == ["PreserveVideoMemoryAllocations:", "1"] for line in node.lines(PARAMS))
    if slept in ("", "0") or kept:
        return
    lines = [*kernel_log(node, "PM: suspend exit"), *kernel_log(node, "nvidia-uvm: Loaded")]
    if lines and "nvidia-uvm" in max(lines, key=_seconds):
        return
    users = node.read("/sys/module/nvidia_uvm/refcnt", "?").strip()
    yield tell(
        "uvm-after-suspend",
        "warning",
        f"this host slept {slept} time(s) since nvidia-uvm was loaded: CUDA may fail with error 999",
        ("/sys/power/suspend_stats/success", slept),
        ("/sys/module/nvidia_uvm/refcnt", f"{users} users"),
        (PARAMS, "PreserveVideoMemoryAllocations: 0", "1"),
        advice=(
            "stop GPU containers, `modprobe -r nvidia_uvm && modprobe nvidia_uvm`, start them again",
            (
                "to avoid it: `options nvidia NVreg_PreserveVideoMemoryAllocations=1` in /etc/modprobe.d, and enable "
                "nvidia-suspend, nvidia-resume, nvidia-hibernate"
            ),
        ),
    )


def _seconds(line: str) -> float:
    found = re.match(r"\[\s*(\d+\.\d+)\]", line)
    return float(found[1]) if found else 0.0
