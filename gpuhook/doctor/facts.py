"""What several checks ask: the GPUs on the bus, the module, the libraries, the configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.driver.tables import library_folders
from gpuhook.errors import GpuhookError
from gpuhook.loader.cache import BadCache, parse
from gpuhook.settings.decide import decide
from gpuhook.settings.reader import Document, read_toml
from gpuhook.settings.values import DEFAULT_CONFIG, Settings

NVIDIA = "0x10de"
OPERATOR = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
TRIPLETS = ("x86_64-linux-gnu", "i386-linux-gnu")


@dataclass(frozen=True)
class PciDevice:
    """A PCI device. address: "0000:01:00.0"; driver: the kernel's for it, "" for none."""

    address: str
    vendor: str
    kind: str
    driver: str


def pci_devices(node: Node) -> list[PciDevice]:
    """All PCI devices of the node (sysfs)."""
    found = []
    for address in node.listdir("/sys/bus/pci/devices"):
        folder = f"/sys/bus/pci/devices/{address}"
        vendor, kind = node.read(f"{folder}/vendor", "").strip(), node.read(f"{folder}/class", "").strip()
        try:
            driver = os.path.basename(os.readlink(node.place(folder) + "/driver"))
        except OSError:
            driver = node.read(f"{folder}/driver_name", "").strip()  # a fixture's stand-in for the link
        found.append(PciDevice(address, vendor, kind, driver))
    return found


def nvidia_gpus(node: Node) -> list[PciDevice]:
    """NVIDIA's display and 3D controllers."""
    return [one for one in pci_devices(node) if one.vendor == NVIDIA and one.kind.startswith(("0x0300", "0x0302"))]


def module_version(node: Node) -> str:
    """The version of the kernel module that runs, "" where none does."""
    text = node.read("/sys/module/nvidia/version", "").strip()
    if text:
        return text
    words = node.read("/proc/driver/nvidia/version", "").split()
    return next((word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit()), "")


def is_wsl(node: Node) -> bool:
    """Whether this is the Windows Subsystem for Linux."""
    return "microsoft" in node.read("/proc/version", "").lower()


def is_tegra(node: Node) -> bool:
    """Whether this is an NVIDIA system on a chip."""
    compatible = node.read("/proc/device-tree/compatible", "")
    return node.exists("/etc/nv_tegra_release") or "nvidia,tegra" in compatible


def cached_paths(node: Node, stem: str) -> list[str]:
    """The paths that the loader's cache has for names that begin with this stem, in its order."""
    try:
        with open(node.place("/etc/ld.so.cache"), "rb") as file:
            cache = parse(file.read(16 << 20))
    except (OSError, BadCache):
        return []
    return [path for name, path, *_ in cache.entries if name.startswith(stem)]


def library_files(node: Node, stem: str, root: str = "") -> dict[str, str]:
    """Versioned files of a library in the usual folders (below a driver root): {path: version}."""
    found: dict[str, str] = {}
    for folder in _really_different(node, root):
        for path in node.glob(f"{root}{folder}", f"{stem}.*"):
            version = path.rpartition(f"{stem}.")[2]
            if "." in version and version.replace(".", "").isdigit():
                found[path] = version
    return found


def _really_different(node: Node, root: str) -> list[str]:
    """The usual folders, without those that are another one by way of a link (/lib64 of most systems)."""
    folders = library_folders(TRIPLETS, module_version(node) or "0")
    return list({node.place(f"{root}{folder}"): folder for folder in reversed(folders)}.values())[::-1]


def gpu_information(node: Node) -> dict[str, dict[str, str]]:
    """What the driver says of each of its GPUs, by PCI address (/proc/driver/nvidia/gpus/*/information)."""
    found = {}
    for address in node.listdir("/proc/driver/nvidia/gpus"):
        lines = node.lines(f"/proc/driver/nvidia/gpus/{address}/information")
        found[address] = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return found


def major_of(node: Node, name: str) -> int | None:
    """The number of a character device's major by its name in /proc/devices."""
    lines = (line.split() for line in node.lines("/proc/devices"))
    return next((int(words[0]) for words in lines if len(words) == 2 and words[1] == name), None)


def driver_runs(node: Node) -> bool:
    """Whether the NVIDIA kernel module of a PCI machine runs."""
    return bool(module_version(node)) and not is_wsl(node) and not is_tegra(node)


def has_gpu(node: Node) -> bool:
    """Whether this node has an NVIDIA GPU of any kind."""
    return bool(nvidia_gpus(node)) or is_wsl(node) or is_tegra(node)


def config_path(node: Node) -> str:
    """The config.toml that counts for the node's engines: the usual one, or the GPU operator's where only that is."""
    return OPERATOR if not node.exists(DEFAULT_CONFIG) and node.exists(OPERATOR) else DEFAULT_CONFIG


def settings_of(node: Node) -> Settings:
    """The node's settings, the defaults where its file is absent or broken."""
    path = config_path(node)
    try:
        return decide(node.read(path, "").encode(), path)
    except GpuhookError:
        return Settings()


def document_of(node: Node) -> Document | None:
    """The node's config.toml with its lines, None where it is absent or broken."""
    path = config_path(node)
    try:
        return read_toml(node.read(path).encode(), path)
    except (GpuhookError, FileNotFoundError):
        return None


def place_of(node: Node, dotted: str) -> str:
    """File and line of a key of config.toml."""
    document = document_of(node)
    line = document.line(*dotted.split(".")) if document else 0
    return f"{config_path(node)}:{line}" if line else config_path(node)


def kernel_log(node: Node, word: str) -> list[str]:
    """The lines of the kernel's log that hold a word. Raises Unreadable where it is not ours to read."""
    said = node.run("dmesg")
    if said is None or said[0]:
        why = (said[2].strip().splitlines() or ["it fails"])[-1] if said else "there is no dmesg"
        raise Unreadable(f"cannot read the kernel's log: {why}")
    return [line.strip() for line in said[1].splitlines() if word in line]


def unit_state(node: Node, unit: str) -> str:
    """What systemd says of a unit ("active", "inactive", "failed"), "" where there is no systemd or no such unit."""
    said = node.run("systemctl", "is-active", unit)
    return said[1].strip() if said else ""
