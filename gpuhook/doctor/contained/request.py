"""What a container asks for: devices, IMEX channels, requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuhook.doctor.contained.case import Case, look
from gpuhook.doctor.facts import gpu_information, module_version
from gpuhook.doctor.model import Finding, tell
from gpuhook.errors import GpuhookError
from gpuhook.request.conditions import Facts, evaluate
from gpuhook.request.cuda_branches import FIRST_BRANCH
from gpuhook.request.model import Requirement

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
MEANINGS = {
    "": "leave the container alone",
    "void": "leave the container alone",
    "none": "the driver's files, and no GPU",
}
NO_ROOM = "no-gpu-has-"  # a marker of GPU-sharing schedulers
SCHEDULED = "DOCKER_RESOURCE_"
CHANNELS = "/dev/nvidia-caps-imex-channels/channel"
NODES = {
    "NVIDIA_GDS": ("nvidia-fs*", "nvidia-fs"),
    "NVIDIA_GDRCOPY": ("gdrdrv", "gdrdrv"),
    "NVIDIA_MOFED": ("infiniband", "mlx5_ib"),
}


@look("none-void")
def void(case: Case) -> Iterator[Finding]:
    """The variable's values that mean no GPU, and a variable that is there twice."""
    value = case.env.get(VARIABLE)
    where = case.subject.place(VARIABLE)
    if VARIABLE in case.subject.traits.twice:
        yield tell("none-void", "warning", f"{VARIABLE} is given twice; the last one counts: {value!r}", (where,))
    if value is not None and value.strip().lower() in MEANINGS:
        meaning = MEANINGS[value.strip().lower()]
        yield tell("none-void", "note", f"{VARIABLE}={value} means: {meaning}", (where, value))


@look("unknown-device", "mig-id-format")
def devices(case: Case) -> Iterator[Finding]:
    """Each device exists on this node."""
    known = gpu_information(case.node)
    uuids = {info.get("GPU UUID", "") for info in known.values()}
    for name in case.names:
        if name.startswith("MIG-GPU-"):
            yield tell(
                "mig-id-format",
                "warning",
                f"{name} is a MIG device's name of drivers before 470",
                (case.subject.place(VARIABLE), name, "MIG-<uuid>"),
                advice="`nvidia-smi -L` lists the names of now",
            )
        elif name.startswith(NO_ROOM):
            text = f'"{name}" is a marker of the GPU-sharing scheduler: no GPU had enough free memory'
            yield tell("unknown-device", "failure", text, (case.subject.place(VARIABLE), name))
        elif known and _is_absent(name, len(known), uuids):
            yield tell(
                "unknown-device",
                "failure",
                f"GPU {name} was requested, and this host has {len(known)}",
                (case.subject.place(VARIABLE), name, ", ".join(sorted(uuids))),
                advice="`--gpus N` is a number of GPUs, not an index; for GPU 1: --gpus device=1",
            )


def _is_absent(name: str, count: int, uuids: set[str]) -> bool:
    if name.isdigit():
        return int(name) >= count
    return name.startswith("GPU-") and name not in uuids


@look("imex")
def channels(case: Case) -> Iterator[Finding]:
    """Each IMEX channel has its node."""
    for channel in case.request.imex_channels if case.request else ():
        if not case.node.exists(f"{CHANNELS}{channel}"):
            yield tell(
                "imex",
                "failure",
                f"IMEX channel {channel} does not exist on this host",
                (f"{CHANNELS}{channel}", "absent"),
                (case.subject.place("NVIDIA_IMEX_CHANNELS"), channel),
                advice="options nvidia NVreg_CreateImexChannel0=1 in /etc/modprobe.d makes channel 0; others: mknod",
            )


@look("requirement-cuda", "requirement-alternatives")
def requirements(case: Case) -> Iterator[Finding]:
    """The driver fits the image: by the table of CUDA versions, since the driver itself is not asked."""
    version = module_version(case.node)
    branch = int(version.partition(".")[0] or 0)
    cuda = max((known for known, first in FIRST_BRANCH if first <= branch), default=None)
    if cuda is None or not case.request:
        return
    facts = Facts(cuda=f"{cuda[0]}.{cuda[1]}", driver=version, gpus=(), ask=lambda _place: ("", ""))
    for one in case.request.requirements:
        try:
            verdict = evaluate(one, facts)
        except GpuhookError:  # the hook says that
            continue
        if not verdict.holds:
            yield from _unmet(case, one, facts)


def _unmet(case: Case, one: Requirement, facts: Facts) -> Iterator[Finding]:
    plain = min(one.expression.split(), key=lambda text: (not text.startswith("cuda"), len(text)))
    yield tell(
        "requirement-cuda",
        "warning",
        f"the image needs {plain[:80]}; driver {facts.driver} offers CUDA {facts.cuda}",
        (case.subject.place(one.source), one.expression[:120]),
        advice=f"update the driver, use an image for CUDA {facts.cuda} or older, or try NVIDIA_DISABLE_REQUIRE=true",
    )
    alternatives = one.expression.split()
    if len(alternatives) > 1:
        yield tell(
            "requirement-alternatives",
            "note",
            f"{one.source} has {len(alternatives)} alternatives and none holds; the plain one is {plain[:80]}",
            (case.subject.place(one.source),),
        )


@look("swarm-resource")
def swarm(case: Case) -> Iterator[Finding]:
    """The variable by which Swarm names a task's GPUs is the one that config.toml names."""
    for name, value in case.env.items():
        if name.startswith(SCHEDULED) and "GPU" in value.upper() and name not in case.settings.swarm_resource:
            yield tell(
                "swarm-resource",
                "warning",
                f"the task was assigned {value} by {name}, which swarm-resource does not name",
                (case.subject.place(name), value),
                advice=f'swarm-resource = "{name}" in config.toml',
            )


@look("gds-mofed")
def extras(case: Case) -> Iterator[Finding]:
    """The nodes of GPUDirect Storage, GDRCopy and Mellanox that are asked for exist."""
    for name, (pattern, module) in NODES.items():
        if case.request and case.env.get(name) == "enabled" and not case.node.glob("/dev", pattern):
            yield tell(
                "gds-mofed",
                "warning",
                f"{name}=enabled, and this host has no /dev/{pattern}",
                (f"/dev/{pattern}", "absent"),
                advice=f"`modprobe {module}`",
            )


@look("forward-compat")
def compat(case: Case) -> Iterator[Finding]:
    """CUDA's compatibility libraries of an image are of use with these GPUs."""
    version, image = module_version(case.node), case.image
    if image is None or not version:
        return
    models = [info.get("Model", "") for info in gpu_information(case.node).values()]
    for folder in image.glob("/usr/local", "cuda*"):
        for path in image.glob(f"{folder}/compat", "libcuda.so.*.*"):
            found = re.search(r"(\d+)\.", path.rpartition("libcuda.so.")[2])
            newer = found and int(found[1]) > int(version.partition(".")[0])
            home = next((model for model in models if "GeForce" in model), "")
            if newer and home:
                yield tell(
                    "forward-compat",
                    "warning",
                    f"the image brings {path} for a newer driver than {version}, which {home} does not support",
                    (path,),
                    advice="update the driver, or use an image for an older CUDA",
                )
                return
