"""Which of the driver's libraries a container gets, what it might need besides, and what the host lacks."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.doctor.contained.case import Case, look
from gpuhook.doctor.facts import driver_runs, library_files, module_version
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node

VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
VIDEO = ("libnvcuvid.so", "libnvidia-encode.so")
GRAPHICS = ("libGLX_nvidia.so", "libEGL_nvidia.so", "libnvidia-glcore.so")
PACKAGES = {"libnvcuvid.so": "libnvcuvid1", "libnvidia-encode.so": "libnvidia-encode1"}
VULKAN = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d")
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/usr/local/lib")
SHOWS_GRAPHICS = ("libvulkan.so.1", "libEGL.so.1", "libGLX.so.0")
NEEDED_FOR_GRAPHICS = ("libEGL.so.1", "libX11.so.6", "libXext.so.6")
SHOWS_VIDEO = ("ffmpeg", "jellyfin", "HandBrakeCLI", "gst-launch-1.0")
NARROW = (
    "/usr/lib32",
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/run/opengl-driver-32/lib",
)


def _lacks(case: Case, stems: tuple[str, ...]) -> list[str]:
    """Those of these libraries that the host does not have in the driver's version; none where nobody can say."""
    version, root = module_version(case.node), case.settings.cli_root.rstrip("/")
    if not driver_runs(case.node):
        return []
    return [stem for stem in stems if version not in library_files(case.node, stem, root).values()]


def has(image: Node, name: str, folders: tuple[str, ...] = FOLDERS) -> bool:
    """Whether an image has a file of this name in one of these folders."""
    return any(image.exists(f"{folder}/{name}") for folder in folders)


def _place(case: Case) -> tuple[str, str]:
    return case.subject.place(VARIABLE), case.env.get(VARIABLE) or "not set"


@look("caps-compute")
def compute(case: Case) -> Iterator[Finding]:
    """CUDA is among what was asked for."""
    if case.request and case.names and "compute" not in case.capabilities:
        some = ",".join(case.capabilities) or "nothing"
        yield tell(
            "caps-compute",
            "note",
            f"only {some} was requested: CUDA programs find no driver",
            _place(case),
            advice=f"{VARIABLE}={','.join(dict.fromkeys(('compute', *case.capabilities)))}",
        )


@look("caps-video")
def video(case: Case) -> Iterator[Finding]:
    """Video libraries are there where they are asked for; and asked for by images that would use them."""
    if "video" in case.capabilities:
        for stem in _lacks(case, VIDEO):
            yield tell(
                "caps-video",
                "warning",
                f"video was requested, and the host has no {stem} of the driver's version",
                _place(case),
                advice=f"install {PACKAGES[stem]} (or the driver's video package)",
            )
        return
    image = case.image if case.request and case.names else None
    program = next((name for name in SHOWS_VIDEO if image and has(image, name, ("/usr/bin", "/usr/local/bin"))), "")
    if program:
        yield tell(
            "caps-video",
            "note",
            f"the image has {program}, and video was not requested: no hardware encoding and decoding",
            _place(case),
            advice=f"{VARIABLE}={','.join((*case.capabilities, 'video'))}",
        )


@look("caps-graphics")
def graphics(case: Case) -> Iterator[Finding]:
    """The same for OpenGL and Vulkan, and the image has what NVIDIA's libraries need."""
    image = case.image
    if {"graphics", "display"} & set(case.capabilities):
        absent = _lacks(case, GRAPHICS)
        if not any(case.node.glob(folder, "nvidia_icd*.json") for folder in VULKAN) and driver_runs(case.node):
            absent.append("nvidia_icd.json")
        if absent:
            yield tell(
                "caps-graphics",
                "warning",
                f"graphics was requested, and the host lacks {', '.join(absent)}",
                _place(case),
                advice="install the driver's OpenGL package (libnvidia-gl-BRANCH, nvidia-driver-libs, nvidia-utils)",
            )
        lacking = [name for name in NEEDED_FOR_GRAPHICS if image and not has(image, name)]
        if lacking:
            yield tell(
                "caps-graphics",
                "note",
                f"graphics was requested, and the image lacks {', '.join(lacking)}",
                advice="install libglvnd, libx11 and libxext (and libvulkan1) in the image",
            )
        return
    shows = next((name for name in SHOWS_GRAPHICS if case.names and image and has(image, name)), "")
    if shows:
        yield tell(
            "caps-graphics",
            "note",
            f"the image has {shows}, and graphics was not requested: OpenGL and Vulkan are done by software",
            _place(case),
            advice=f"{VARIABLE}={','.join((*case.capabilities, 'graphics'))}",
        )


@look("compat32")
def compat32(case: Case) -> Iterator[Finding]:
    """32-bit libraries are there where they are asked for."""
    if "compat32" not in case.capabilities or (case.env.get(VARIABLE) or "all") == "all":
        return
    root = case.settings.cli_root.rstrip("/")
    if driver_runs(case.node) and not any(case.node.glob(f"{root}{one}", "libcuda.so.*.*") for one in NARROW):
        yield tell(
            "compat32",
            "warning",
            "compat32 was requested, and the host has no 32-bit driver libraries",
            _place(case),
            *((folder, "no libcuda.so") for folder in NARROW[:2]),
            advice="install the driver's 32-bit libraries (libnvidia-compute-BRANCH:i386, lib32-nvidia-utils)",
        )
