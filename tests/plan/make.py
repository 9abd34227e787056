"""A host with everything, and the plan for a request to it: the one place here that calls build_plan."""

from __future__ import annotations

from gpuhook.driver.model import Gpu, Host, Inventory, Library, Node, Selection
from gpuhook.driver.tables import BINARIES, STEMS
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Bind, Image, Plan
from gpuhook.request.model import DeviceChoice, Request

ROOT = "/run/nvidia/driver"
VERSION = "550.54.14"
WIDE, NARROW = "/usr/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu"
HOST_WIDE = "/opt/nvidia/lib64"  # elsewhere than in the image
MPS = "/tmp/nvidia-mps"
PERSISTENCED, FABRIC = "/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"
COMMON = {"nvidiactl": (195, 255), "nvidia-uvm": (511, 0), "nvidia-uvm-tools": (511, 1), "nvidia-modeset": (195, 254)}
PARAMS = b"ResmanDebugLevel: 0\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n"


def library(stem: str, bits: int = 64) -> Library:
    folder = HOST_WIDE if bits == 64 else "/opt/nvidia/lib"
    return Library(stem=stem, path=f"{folder}/{stem}.{VERSION}", soname=f"{stem}.1", bits=bits)


def gpu(index: int, minor: int) -> Gpu:
    return Gpu(
        index=index, minor=minor, uuid=f"GPU-{index}", bus_id=f"00000000:0{index}:00.0", model="T4",
        proc_folder=f"0000:0{index}:00.0", node=Node(path=f"/dev/nvidia{minor}", major=195, minor=minor),
    )  # fmt: skip


GPUS = (gpu(0, 2), gpu(1, 0), gpu(2, 1))
INVENTORY = Inventory(
    host=Host(driver_root=ROOT),
    driver_version=VERSION,
    gpus=GPUS,
    libraries=(*(library(stem) for stem in STEMS), library("libcuda.so", 32), library("libGLX_nvidia.so", 32)),
    binaries=tuple(f"/opt/bin/{name}" for names in BINARIES.values() for name in names),
    firmware=(f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",),
    sockets=(PERSISTENCED, FABRIC, MPS),
    nodes=tuple(Node(path=f"/dev/{name}", major=major, minor=minor) for name, (major, minor) in COMMON.items()),
    proc_files=(("params", PARAMS), ("version", b"ModifyDeviceFiles: 1")),
    missing=("a: not there",),
)


def plan(
    *capabilities: str,
    gpus: tuple[Gpu, ...] = GPUS[:1],
    image: Image | None = None,
    root: str = ROOT,
    inventory: Inventory = INVENTORY,
) -> Plan:
    """The plan for these capabilities and GPUs."""
    request = Request(
        container="c", pid=1, rootfs="/r", devices=DeviceChoice(names=("all",), sources=("X",)),
        capabilities=tuple(sorted(capabilities)),
    )  # fmt: skip
    return build_plan(
        request,
        inventory.with_(host=Host(driver_root=root)),
        Selection(gpus=gpus),
        image or Image(),
        (("slug", "text"),),
    )


def binds(the_plan: Plan, kind: str = "file") -> dict[str, Bind]:
    return {op.target: op for op in the_plan.ops if isinstance(op, Bind) and op.kind == kind}


def stems(the_plan: Plan) -> set[str]:
    """The stems of the 64-bit libraries that are bound."""
    names = [target.removeprefix(f"{WIDE}/") for target in binds(the_plan) if target.startswith(f"{WIDE}/")]
    return {name.removesuffix(f".{VERSION}") for name in names}
