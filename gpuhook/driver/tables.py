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
STEMS = tuple(stem for stems in LIBRARIES.values() for stem in stems)
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
    "/usr/lib/{narrow}/nvidia/tesla-{branch}",
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

FIRMWARE_FOLDER = "/lib/firmware/nvidia/{version}"
SOCKETS = ("/var/run/nvidia-persistenced/socket", "/var/run/nvidia-fabricmanager/socket")
PROC_FILES = ("params", "version", "registry")


def stem_of(file_name: str) -> str:
    """The base name of a library's file: "libcuda.so" of "libcuda.so.550.54.14"; "" where it has no `.so`."""
    end = file_name.find(".so")
    return file_name[: end + 3] if end > 0 else ""


def library_folders(triplets: tuple[str, str], version: str) -> tuple[str, ...]:
    """The folders to search for this driver. triplets: multiarch names of 64 and 32 bits, "" for none."""
    wide, narrow = triplets
    branch = version.partition(".")[0]
    return tuple(
        folder.replace("{wide}", wide).replace("{narrow}", narrow).replace("{branch}", branch)
        for folder in LIBRARY_FOLDERS
        if narrow or "{narrow}" not in folder
    )
