"""The names of MIG devices: `MIG-<uuid>`, the older `MIG-GPU-<uuid>/<gi>/<ci>`, and `<gpu>:<mig>`. Pure."""

from __future__ import annotations

from gpuhook.driver.model import Gpu, Inventory, MigDevice

Pair = tuple[Gpu, MigDevice]


def is_mig(name: str) -> bool:
    """Whether an element has the form of a MIG device: "MIG-…" or "<gpu>:<instance>"."""
    gpu, colon, instance = name.partition(":")
    return name[:4].upper() == "MIG-" or (bool(colon) and _is_index(gpu) and _is_index(instance))


def by_mig_name(inventory: Inventory, name: str) -> list[Pair]:
    """The MIG device that an element means, with its GPU; nothing where there is none."""
    wanted = name.lower()
    pairs = [(gpu, device) for gpu in inventory.gpus for device in gpu.mig]
    if wanted.startswith("mig-gpu-"):
        return [pair for pair in pairs if wanted in (old_name(*pair).lower(), pair[1].uuid.lower())]
    if wanted.startswith("mig-"):
        return [pair for pair in pairs if pair[1].uuid.lower() == wanted]
    indices = tuple(part.lstrip("0") or "0" for part in wanted.split(":"))
    return [pair for pair in pairs if (str(pair[0].index), str(pair[1].index)) == indices and is_mig(name)]


def needs_nvml(inventory: Inventory, name: str) -> bool:
    """Whether only NVML knows which device an element of a MIG device's form means.

    UUIDs are known to nobody else, and the order in which NVML counts the devices of a GPU is its own. The old form
    is made of what the kernel says.
    """
    cut = [gpu for gpu in inventory.gpus if any(not device.uuid for device in gpu.mig)]
    if not is_mig(name) or not cut or name[:8].upper() == "MIG-GPU-":
        return False
    if name[:4].upper() == "MIG-":
        return not by_mig_name(inventory, name)
    index = name.partition(":")[0].lstrip("0") or "0"
    return any(str(gpu.index) == index and len(gpu.mig) > 1 for gpu in cut)


def old_name(gpu: Gpu, device: MigDevice) -> str:
    """What drivers before 470 call a MIG device."""
    return f"MIG-{gpu.uuid}/{device.gpu_instance}/{device.compute_instance}"


def mig_title(gpu: Gpu, device: MigDevice) -> str:
    """A MIG device for messages: every name that can be used, then what it is."""
    name = device.uuid or old_name(gpu, device)
    return f"{gpu.index}:{device.index} = {name} (GPU instance {device.gpu_instance}/{device.compute_instance})"


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal()
