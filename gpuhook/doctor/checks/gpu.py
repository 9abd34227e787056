"""Whether there is a GPU at all."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gpuhook.doctor.engines import present, registered
from gpuhook.doctor.facts import is_tegra, is_wsl, nvidia_gpus
from gpuhook.doctor.model import Evidence, Finding
from gpuhook.doctor.node import Node
from gpuhook.doctor.registry import check
from gpuhook.install.engine import Registered
from gpuhook.install.engines import ENGINES


@check("no-gpu-present", family="gpu")
def gpu_on_the_bus(node: Node) -> Iterator[Finding]:
    """An NVIDIA GPU on the PCI bus, and not lent to a virtual machine."""
    if is_wsl(node) or is_tegra(node):
        return
    gpus = nvidia_gpus(node)
    if not gpus:
        yield Finding(
            slug="no-gpu-present",
            level="failure",
            text="no NVIDIA GPU is on the PCI bus",
            evidence=(Evidence(where="/sys/bus/pci/devices/*/vendor", wanted="0x10de, class 0x0300 or 0x0302"),),
            advice=("start containers on this node without asking for a GPU",),
        )
        return
    lent = [gpu for gpu in gpus if gpu.driver == "vfio-pci"]
    for gpu in lent:
        yield Finding(
            slug="no-gpu-present",
            level="failure" if len(lent) == len(gpus) else "note",
            text=f"GPU {gpu.address} is bound to vfio-pci: it is reserved for a virtual machine",
            evidence=(
                Evidence(where=f"/sys/bus/pci/devices/{gpu.address}/driver", found="vfio-pci", wanted="nvidia"),
            ),
            advice=("release it from the virtual machine if containers are to use it",),
        )
    if not lent:
        names = ", ".join(gpu.address for gpu in gpus)
        yield Finding(slug="no-gpu-present", level="ok", text=f"{len(gpus)} NVIDIA GPU(s) on the bus: {names}")


@check("wsl-no-adapter", family="gpu")
def wsl_adapter(node: Node) -> Iterator[Finding]:
    """On WSL the GPU is Windows'."""
    if not is_wsl(node):
        return
    if not node.exists("/dev/dxg"):
        wsl2 = "wsl2" in node.read("/proc/version", "").lower()
        advice = (
            "in Windows: `wsl --update`, then `wsl --shutdown`"
            if wsl2
            else "in Windows: `wsl --set-version <distro> 2`"
        )
        yield _wsl("there is no /dev/dxg", "/dev/dxg", advice)
    if not node.exists("/usr/lib/wsl/lib/libdxcore.so"):
        yield _wsl("libdxcore.so is not there", "/usr/lib/wsl/lib/libdxcore.so", "in Windows: `wsl --update`")
    if not any(name.startswith("nv") for name in node.listdir("/usr/lib/wsl/drivers")):
        yield _wsl(
            "Windows has no NVIDIA driver",
            "/usr/lib/wsl/drivers/nv*",
            "install NVIDIA's driver in Windows, then `wsl --shutdown`",
        )
    for path in node.glob("/usr/lib/x86_64-linux-gnu", "libnvidia-ml.so.*.*"):
        yield Finding(
            slug="wsl-no-adapter",
            level="warning",
            text="a Linux NVIDIA driver is installed inside WSL and hides Windows' libraries",
            evidence=(Evidence(where=path),),
            advice=("remove the NVIDIA driver packages from this WSL distribution",),
        )


def _wsl(text: str, where: str, advice: str) -> Finding:
    return Finding(
        slug="wsl-no-adapter", level="failure", text=text, evidence=(Evidence(where=where),), advice=(advice,)
    )


@check("jetson", family="gpu")
def jetson(node: Node) -> Iterator[Finding]:
    """On Jetson the driver's files are listed in CSV files, and the runtime is the way in."""
    if not is_tegra(node):
        return
    theirs = [
        one for engine in ENGINES if present(node, engine) for one in registered(node, engine) if _is_theirs(one)
    ]
    if theirs:
        text = "this is a Jetson: NVIDIA's runtime serves it, `--gpus` does not"
        advice = f"start containers with `--runtime {theirs[0].name}`"
    else:
        text = "this is a Jetson, whose driver CSV files describe: gpuhook does not serve it, NVIDIA's runtime does"
        advice = "install nvidia-container-toolkit, register its runtime, start containers with `--runtime nvidia`"
    yield Finding(
        slug="jetson",
        level="note" if theirs else "warning",
        text=text,
        evidence=(Evidence(where="/etc/nv_tegra_release" if not theirs else theirs[0].where),),
        advice=(advice,),
    )
    folder = "/etc/nvidia-container-runtime/host-files-for-container.d"
    for path in node.glob(folder, "*.csv"):
        named = [
            line.split(",", 1)[1].strip() for line in node.lines(path) if "," in line and not line.startswith("#")
        ]
        absent = [name for name in named if "*" not in name and not node.exists(name)]
        if absent:
            yield Finding(
                slug="jetson",
                level="note",
                text=f"{len(absent)} of {len(named)} paths named in {path} do not exist on this board",
                evidence=tuple(Evidence(where=path, found=name) for name in absent[:3]),
            )


def _is_theirs(one: Registered) -> bool:
    """Whether this is NVIDIA's runtime."""
    return os.path.basename(one.program).startswith("nvidia-container-runtime") and one.name != "hook"
