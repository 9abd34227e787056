"""What belongs to a driver, as data: names in the order in which nvidia-container-cli prints them.

Sources: engine.md 2.6 to 2.10, and the layouts of distributions. {wide} and {narrow} are the multiarch folders of
64 and 32 bits, {branch} is the first number of the driver's version.
"""

from __future__ import annotations

LIBRARIES = {
    "utility": ("libnvidia-ml.so", "libnvidia-cfg.so", "libnvidia-nscq.so"),
    "compute": (
        "libcuda.so",
        "libcudadebugger.so",
        "libnvidia-opencl.so",
        "libnvidia-gpucomp.so",
        "libnvidia-ptxjitcompiler.so",
        "libnvidia-fatbinaryloader.so",
        "libnvidia-allocator.so",
        "libnvidia-compiler.so",
        "libnvidia-pkcs11.so",
        "libnvidia-pkcs11-openssl3.so",
        "libnvidia-nvvm.so",
    ),
    "ngx": ("libnvidia-ngx.so",),
    "video": ("libvdpau_nvidia.so", "libnvidia-encode.so", "libnvidia-opticalflow.so", "libnvcuvid.so"),
    "graphics": (
        "libnvidia-eglcore.so",
        "libnvidia-glcore.so",
        "libnvidia-tls.so",
        "libnvidia-glsi.so",
        "libnvidia-fbc.so",
        "libnvidia-ifr.so",
        "libnvidia-rtcore.so",
        "libnvoptix.so",
        "libGLX_nvidia.so",
        "libEGL_nvidia.so",
        "libGLESv2_nvidia.so",
        "libGLESv1_CM_nvidia.so",
        "libnvidia-glvkspirv.so",
        "libnvidia-cbl.so",
    ),
}
# Libraries that NVIDIA's EGL loads and that have versions of their own; nvidia-container-cli leaves them out.
EGL_HELPERS = (
    "libnvidia-egl-gbm.so",
    "libnvidia-egl-wayland.so",
    "libnvidia-egl-wayland2.so",
    "libnvidia-egl-xcb.so",
    "libnvidia-egl-xlib.so",
)
WSL_ALWAYS = "libdxcore.so"  # WSL2's way to the GPU, whatever the capabilities
STEMS = tuple(stem for stems in LIBRARIES.values() for stem in stems)
# A file that does not bear the driver's version: it counts only beside the libcuda of that version, and only where
# there is none that bears it. The 470 series has it so, and its libcuda loads it by the name without a number.
UNVERSIONED = {"libnvidia-nvvm.so": "libnvidia-nvvm.so.4.0.0"}
CORE = ("libnvidia-ml.so", "libcuda.so")  # without both of them there is no driver worth injecting

BINARIES = {
    "utility": ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager"),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
}
PROGRAMS = tuple(name for names in BINARIES.values() for name in names)

# Where libraries are when the loader's cache does not know them, best first. A folder's name does not say the
# size of what is in it: each file's own header does.
LIBRARY_FOLDERS = (
    "/usr/lib/{wide}",
    "/usr/lib/{wide}/nvidia/current",  # Debian
    "/usr/lib/{wide}/nvidia/tesla",
    "/usr/lib/{wide}/nvidia/tesla-{branch}",
    "/usr/lib/{wide}/nvidia/legacy-{branch}xx",
    "/usr/lib/{wide}/nvidia",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib64/opengl/nvidia/lib",  # Gentoo's slots
    "/usr/lib/nvidia-{branch}",  # Ubuntu before 18.04
    "/usr/lib/nvidia/current",
    "/run/opengl-driver/lib",  # NixOS
    "/run/current-system/profile/lib",  # Guix
    "/usr/local/nvidia/lib64",  # driver containers, COS
    "/usr/local/nvidia/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
    "/usr/local/glibc/usr/lib",  # Talos
    "/opt/nvidia/lib64",
    "/opt/nvidia/lib",
    "/home/kubernetes/bin/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/usr/lib",
    "/usr/lib/{narrow}",
    "/usr/lib/{narrow}/nvidia/current",
    "/usr/lib/{narrow}/nvidia/tesla",
    "/usr/lib/{narrow}/nvidia/tesla-{branch}",
    "/usr/lib/{narrow}/nvidia/legacy-{branch}xx",
    "/usr/lib32",
    "/usr/lib32/nvidia",
    "/usr/lib32/nvidia-{branch}",
    "/usr/lib32/opengl/nvidia/lib",
    "/run/opengl-driver-32/lib",
    "/lib64",
    "/lib",
)
SUBFOLDERS = {"libvdpau_nvidia.so": "vdpau"}  # where a library also lies below these folders

PROGRAM_FOLDERS = (
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/opt/bin",
    "/usr/local/nvidia/bin",
    "/opt/nvidia/bin",
    "/run/current-system/sw/bin",  # NixOS
    "/run/current-system/profile/bin",  # Guix
    "/home/kubernetes/bin/nvidia/bin",
)
# Debian keeps each series of the driver in folders of its own, several side by side; links of its alternatives lead to
# one of them. {slot} is the name of the folder below which the series' libraries are.
SLOTS = ("current", "tesla", "tesla-{branch}", "legacy-{branch}xx")
SLOT_PROGRAMS = "/usr/lib/nvidia/{slot}"

# Small files that lead the loaders of Vulkan, EGL and OpenCL, and OptiX, to the driver: where containers get them, by
# capability. On the host they lie there or in another of FILE_BASES; an image that was made for NVIDIA's toolkit has
# them at these places, so nothing is seen twice.
_GRAPHICS_FILES = (
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/etc/vulkan/icd.d/nvidia_layers.json",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
)
HOST_FILES = {
    "compute": ("/etc/OpenCL/vendors/nvidia.icd",),
    "graphics": _GRAPHICS_FILES,
    "display": _GRAPHICS_FILES,
}
FILE_BASES = ("/etc", "/usr/local/share", "/usr/share")
# Where a distribution calls one of them otherwise; {machine} as uname has it.
OTHER_NAMES = {"/etc/vulkan/icd.d/nvidia_icd.json": "nvidia_icd.{machine}.json"}

FIRMWARE_FOLDER = "/lib/firmware/nvidia/{version}"
SOCKETS = ("/var/run/nvidia-persistenced/socket", "/var/run/nvidia-fabricmanager/socket")
PROC_FILES = ("params", "version", "registry")


def stem_of(file_name: str) -> str:
    """The base name of a library's file: "libcuda.so" of "libcuda.so.550.54.14"; "" where it has no `.so`."""
    end = file_name.find(".so")
    return file_name[: end + 3] if end > 0 else ""


def _file_folders() -> tuple[str, ...]:
    """The folders in which the small files may be, each once."""
    targets = (target for files in HOST_FILES.values() for target in files)
    places = (place for target in targets for place in file_places(target, ""))
    return tuple(dict.fromkeys(place.rpartition("/")[0] for place in places))


def file_places(target: str, machine: str) -> tuple[str, ...]:
    """Where on the host a file may be that containers get at `target`, best first."""
    base = next(base for base in FILE_BASES if target.startswith(f"{base}/"))
    folder, _, name = target.removeprefix(base).rpartition("/")
    names = (name, *(other.replace("{machine}", machine) for path, other in OTHER_NAMES.items() if path == target))
    bases = (base, *(other for other in FILE_BASES if other != base))
    return tuple(f"{each}{folder}/{name}" for name in names for each in bases)


def library_folders(triplets: tuple[str, str], version: str) -> tuple[str, ...]:
    """The folders to search for this driver. triplets: multiarch names of 64 and 32 bits, "" for none."""
    wide, narrow = triplets
    branch = version.partition(".")[0]
    return tuple(
        folder.replace("{wide}", wide).replace("{narrow}", narrow).replace("{branch}", branch)
        for folder in LIBRARY_FOLDERS
        if narrow or "{narrow}" not in folder
    )


def slot_folders(version: str) -> tuple[str, ...]:
    """Where Debian may have programs of this driver version."""
    branch = version.partition(".")[0]
    return tuple(SLOT_PROGRAMS.replace("{slot}", slot.replace("{branch}", branch)) for slot in SLOTS)


def slot_folder(libcuda: str, version: str) -> str:
    """Where Debian has the programs that belong to the libcuda at this path; "" where it is in no slot."""
    folder = libcuda.rpartition("/")[0]
    place = SLOT_PROGRAMS.replace("{slot}", folder.rpartition("/nvidia/")[2])
    return place if place in slot_folders(version) else ""


FILE_FOLDERS = _file_folders()
