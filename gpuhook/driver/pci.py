"""What stands on the PCI bus, and who drives it: for the message that no driver is loaded."""

from __future__ import annotations

import posix

from gpuhook.kernel.files import read_file

_NVIDIA = b"0x10de"
_MOST_DEVICES = 4096

HINTS = {
    "": "load it with `modprobe nvidia`; where that fails, `dmesg` and `dkms status` say why",
    "nouveau": "blacklist nouveau, rebuild the initramfs and reboot",
    "nova_core": "blacklist nova_core, rebuild the initramfs and reboot",
    "vfio-pci": "the GPU is reserved for a virtual machine; take it back from vfio-pci to use it in containers",
}


def describe_gpus(sys: str) -> tuple[str, str]:
    """What to add to "the module is not loaded", and what to do. sys: where sysfs is mounted."""
    gpus = gpu_drivers(sys)
    if not gpus:
        return (
            ", and no NVIDIA GPU is on the PCI bus",
            "on a machine without a GPU, start the container without asking for one",
        )
    for address, driver in gpus:
        if driver in HINTS and driver:
            return f": GPU {address} is driven by {driver}", HINTS[driver]
    return f" (the PCI bus has {len(gpus)} NVIDIA GPU{'s' if len(gpus) > 1 else ''}: {gpus[0][0]})", HINTS[""]


def gpu_drivers(sys: str) -> list[tuple[str, str]]:
    """Each NVIDIA display device: its address and the name of the driver that holds it, "" for none."""
    folder = f"{sys}/bus/pci/devices"
    try:
        names = sorted(posix.listdir(folder))[:_MOST_DEVICES]
    except OSError:  # no PCI here
        return []
    return [(name, _driver(f"{folder}/{name}")) for name in names if _is_gpu(f"{folder}/{name}")]


def _is_gpu(device: str) -> bool:
    try:
        vendor, class_ = (read_file(f"{device}/{name}", 64)[0].strip() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor == _NVIDIA and class_.startswith(b"0x03")


def _driver(device: str) -> str:
    try:
        return posix.readlink(f"{device}/driver").rpartition("/")[2]
    except OSError:
        return ""
