"""Why, in words: why a container is left alone, why it has a capability or not, what this node's config.toml says."""

from __future__ import annotations

from gpuhook.explain import model
from gpuhook.explain.subject import Subject
from gpuhook.kernel.files import read_file
from gpuhook.request.devices import is_legacy
from gpuhook.request.model import Request
from gpuhook.settings.decide import KEYS
from gpuhook.settings.reader import read_toml
from gpuhook.settings.values import Settings

BRINGS = {
    "compat32": "32-bit libraries of the other capabilities",
    "compute": "libcuda, OpenCL, MPS: CUDA programs",
    "display": "X11 and displays: nvidia-modeset",
    "graphics": "OpenGL and Vulkan libraries",
    "ngx": "NGX (DLSS) libraries",
    "utility": "nvidia-smi and NVML",
    "video": "video libraries: encode, decode, optical flow",
}


def why_not(subject: Subject, ignored: bool) -> str:  # noqa: FBT001  # one caller
    """Why a container is not a GPU container."""
    value = subject.bundle.env.get("NVIDIA_VISIBLE_DEVICES")
    if ignored:
        return "it asks for GPUs in a way that this node does not accept, and gets none; see the warnings"
    if subject.pending:
        return subject.pending
    if value is None:
        return f"no GPU is asked for: NVIDIA_VISIBLE_DEVICES is not set{subject.elsewhere} (try {subject.way})"
    if is_legacy(subject.bundle.env):
        return f"NVIDIA_VISIBLE_DEVICES is {value!r}, which means: no GPU, even for an image of that age"
    return f"NVIDIA_VISIBLE_DEVICES is {value!r}, which means: leave this container alone"


def capability(name: str, request: Request, subject: Subject, settings: Settings) -> model.Capability:
    """Whether a capability is granted, and by whose word."""
    granted = name in request.capabilities
    value = subject.bundle.env.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if name not in settings.supported_driver_capabilities:
        why = f"not in supported-driver-capabilities of {settings.source}"
    elif value.strip(" ,"):
        why = f"NVIDIA_DRIVER_CAPABILITIES={value[:80]}"
    elif granted and name not in ("compute", "utility"):
        why = "an image with CUDA_VERSION alone gets all of them"
    else:
        why = "NVIDIA_DRIVER_CAPABILITIES is not set, which means compute,utility"
    return model.Capability(name=name, granted=granted, brings=BRINGS[name], why=why)


def node_facts(settings: Settings) -> list[model.Fact]:
    """What this node's configuration says otherwise than the defaults, with file and line."""
    names = [
        name for name in Settings.fields() if name in KEYS and getattr(settings, name) != getattr(Settings(), name)
    ]
    if not names:
        return []
    document = read_toml(read_file(settings.source, 1 << 20, links=True)[0], settings.source)
    return [
        model.Fact(
            what=KEYS[name],
            value=_shown(getattr(settings, name)),
            where=f"{settings.source}:{document.line(*KEYS[name].split('.'))}",
        )
        for name in names
    ]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
