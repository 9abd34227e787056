"""The driver: the module, its libraries, the driver root, the loader's cache."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gpuhook.doctor.facts import (
    cached_paths,
    is_tegra,
    is_wsl,
    kernel_log,
    library_files,
    module_version,
    nvidia_gpus,
    place_of,
    settings_of,
)
from gpuhook.doctor.model import Evidence, Finding, tell
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.doctor.registry import check

CORE = ("libnvidia-ml.so", "libcuda.so")


@check("driver-not-loaded", family="driver")
def module_loaded(node: Node) -> Iterator[Finding]:
    """The kernel module runs, or why it does not."""
    gpus = nvidia_gpus(node)
    if is_wsl(node) or is_tegra(node) or not gpus or all(gpu.driver == "vfio-pci" for gpu in gpus):
        return
    version = module_version(node)
    if version:
        yield Finding(slug="driver-not-loaded", level="ok", text=f"the kernel module {version} is loaded")
        return
    others = sorted({gpu.driver for gpu in gpus if gpu.driver and gpu.driver not in ("nvidia", "vfio-pci")})
    advice = (
        f"keep {', '.join(others)} from loading (blacklist in /etc/modprobe.d), rebuild the initramfs, reboot"
        if others
        else _why_no_module(node)
    )
    yield Finding(
        slug="driver-not-loaded",
        level="failure",
        text=f"the NVIDIA kernel module is not loaded{f', the GPU is driven by {others[0]}' if others else ''}",
        evidence=(Evidence(where="/sys/module/nvidia", found="absent"),),
        advice=(advice,),
    )


def _why_no_module(node: Node) -> str:
    release = node.read("/proc/sys/kernel/osrelease", "").strip()
    found = node.run("modinfo", "-F", "version", "nvidia")
    if found is not None and found[0] != 0:
        return f"no nvidia module is built for kernel {release}: install its headers and run `dkms autoinstall`"
    try:
        rejected, lines = kernel_log(node, "Key was rejected by service"), kernel_log(node, "NVRM:")
    except Unreadable:
        return "run `modprobe nvidia` as root and see what it and `dmesg` say"
    if rejected:
        return "Secure Boot rejects the module: enrol its signing key (`mokutil --import`) or use signed packages"
    return f"the kernel says: {lines[-1]}" if lines else "run `modprobe nvidia` and see what it says"


@check("driver-libs-missing", "driver-lib-mismatch", family="driver")
def libraries(node: Node) -> Iterator[Finding]:
    """The libraries that belong to the module that runs."""
    version = module_version(node)
    root = settings_of(node).cli_root.rstrip("/")
    if not version or is_wsl(node) or is_tegra(node) or (root and not node.listdir(root)):
        return
    found = {stem: _files(node, stem, root) for stem in CORE}
    if not any(found.values()):
        branch = version.partition(".")[0]
        yield Finding(
            slug="driver-libs-missing",
            level="failure",
            text=f"the kernel module {version} is loaded, its libraries are not installed",
            evidence=tuple(Evidence(where=f"{stem}.1", found="nowhere") for stem in CORE),
            advice=(
                f"install the driver's libraries (libnvidia-compute-{branch}, nvidia-driver-cuda or nvidia-utils)",
            ),
        )
        return
    for files in found.values():
        if files and version not in files.values():
            path, other = next(iter(files.items()))
            yield Finding(
                slug="driver-lib-mismatch",
                level="failure",
                text=f"kernel module {version}, libraries {other}: they must be the same version",
                evidence=(
                    Evidence(where="/sys/module/nvidia/version", found=version),
                    Evidence(where=path, found=other, wanted=version),
                ),
                advice=(_way_out(node, other), "exclude nvidia packages from unattended upgrades"),
            )
            return
    yield Finding(slug="driver-lib-mismatch", level="ok", text=f"module and libraries are both {version}")


def _files(node: Node, stem: str, root: str) -> dict[str, str]:
    """Versioned files of a library by path: what the loader's cache leads to, then the usual folders."""
    files = {}
    for path in cached_paths(node, f"{stem}.") if not root else []:
        real = os.path.realpath(node.place(path))
        version = os.path.basename(real).rpartition(f"{stem}.")[2]
        if os.path.exists(real) and "." in version:
            files[path] = version
    return {**files, **library_files(node, stem, root)}


def _way_out(node: Node, libraries_version: str) -> str:
    on_disk = node.run("modinfo", "-F", "version", "nvidia")
    if on_disk is not None and on_disk[0] == 0 and on_disk[1].strip() != libraries_version:
        release = node.read("/proc/sys/kernel/osrelease", "").strip()
        return (
            f"the module on disk is {on_disk[1].strip()}: build it for kernel {release} (`dkms status`), then reboot"
        )
    modules = "nvidia_uvm nvidia_drm nvidia_modeset nvidia"
    return f"reboot, or stop all users of the GPU and `modprobe -r {modules} && modprobe nvidia`"


@check("driver-root-wrong", family="driver")
def driver_root(node: Node) -> Iterator[Finding]:
    """A configured driver root holds a driver."""
    root = settings_of(node).cli_root.rstrip("/")
    if not root:
        return
    if any(library_files(node, stem, root) for stem in CORE):
        yield Finding(slug="driver-root-wrong", level="ok", text=f"the driver root {root} holds a driver")
        return
    elsewhere = next(iter(library_files(node, "libnvidia-ml.so")), "")
    yield Finding(
        slug="driver-root-wrong",
        level="failure",
        text=f"the configured driver root {root} holds no driver",
        evidence=(
            Evidence(where=place_of(node, "nvidia-container-cli.root"), found=root),
            *([Evidence(where=elsewhere, found="the driver is here")] if elsewhere else []),
        ),
        advice=(
            f"take the line out: the driver is installed at /, for example {elsewhere}"
            if elsewhere
            else "the driver container is not running yet: wait for it, or see its log",
        ),
    )


@check("ldcache-stale", family="driver")
def stale_cache(node: Node) -> Iterator[Finding]:
    """The loader's cache names driver files that exist."""
    gone = [path for stem in CORE for path in cached_paths(node, f"{stem}.") if not os.path.exists(node.place(path))]
    for path in dict.fromkeys(gone):
        yield Finding(
            slug="ldcache-stale",
            level="warning",
            text=f"the loader's cache lists {path}, which is gone",
            evidence=(Evidence(where="/etc/ld.so.cache", found=path),),
            advice=(
                "run `ldconfig` as root (`gpuhook doctor --fix` does)",
                "on an image-based system the cache comes with the image and is mended there",
            ),
        )


@check("nonstandard-ldcache", "debian-split-libs", family="driver")
def library_places(node: Node) -> Iterator[Finding]:
    """The loader's cache knows the driver; where it does not, the usual folders are searched."""
    version = module_version(node)
    if not version or settings_of(node).cli_root or is_wsl(node):
        return
    files = [path for path, found in library_files(node, "libcuda.so").items() if found == version]
    folders = list(dict.fromkeys(os.path.dirname(path) for path in files))
    if len(folders) > 1:
        yield Finding(
            slug="debian-split-libs",
            level="note",
            text=f"driver libraries lie in {len(folders)} folders: {', '.join(folders)}; both are searched",
        )
    if files and not cached_paths(node, "libcuda.so."):
        yield Finding(
            slug="nonstandard-ldcache",
            level="note",
            text=f"the loader's cache does not know the driver; its libraries were found in {folders[0]}",
            evidence=(Evidence(where="/etc/ld.so.cache", wanted="libcuda.so.1"),),
            advice=("nothing has to be done for containers; for programs on the host run `ldconfig`",),
        )


@check("forward-compat", family="driver")
def compat_on_the_host(node: Node) -> Iterator[Finding]:
    """The host's loader does not find CUDA's compatibility libraries in place of the driver's."""
    for path in cached_paths(node, "libcuda.so."):
        if "/compat/" in path and node.exists(path):
            yield tell(
                "forward-compat",
                "warning",
                f"the host's loader finds CUDA's compatibility library {path}",
                ("/etc/ld.so.cache", path, "the driver's libcuda.so.1"),
                advice="remove the package cuda-compat from the host and run `ldconfig`",
            )
            return
