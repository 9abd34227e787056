"""From the devices that a container names to this node's GPUs. Pure.

The forms are those of nvidia-container-cli (engine.md 3.1) without its sloppiness: what follows an address or an
index is not ignored, and every element of the list is checked, also beside `all` (edges 28 to 30).
"""

from __future__ import annotations

from gpuhook.driver.mignames import by_mig_name, is_mig, mig_title, needs_nvml
from gpuhook.driver.model import Gpu, Inventory, MigDevice, Selection
from gpuhook.errors import GpuhookError, UnknownDevice
from gpuhook.refusals import DriverFault, NodeMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.request.model import DeviceChoice

    Warnings = tuple[tuple[str, str], ...]

SHORTEST_PREFIX = 8  # of a UUID, "GPU-" included
_HEX = "0123456789abcdefABCDEF"
_SHOWN = 16


def select(inventory: Inventory, choice: DeviceChoice) -> tuple[Selection, Warnings]:
    """What was asked for, in the order of the request, each once; and (slug, text) warnings.

    Elements: `all`; an index; a whole UUID in any case, or the beginning of one GPU's UUID; a PCI address with its
    domain; a MIG device in one of its forms (driver/mignames.py), which brings its GPU. Blanks around an element do
    not count. `all` brings all MIG devices too, and leaves broken GPUs and MIG devices out with a warning.
    Raises UnknownDevice (there is no such), DriverFault or NodeMissing (it is broken).
    """
    names = [name.strip() for name in choice.names]
    found = [_find(inventory, choice, name) for name in names if name.lower() != "all"]
    if len(found) < len(names):
        return _all(inventory, choice)
    gpus = tuple(dict.fromkeys(gpu for gpu, _ in found))
    return Selection(gpus=gpus, mig=tuple(dict.fromkeys(device for _, device in found if device))), ()


def asks_nvml(inventory: Inventory, choice: DeviceChoice) -> bool:
    """Whether an element may be something that only NVML knows; then `query.complete` the inventory first."""
    names = [name.strip() for name in choice.names]
    if inventory.wsl and not inventory.gpus:
        return any(name.lower() != "all" for name in names)
    return asks_unknown_uuid(inventory, choice) or any(needs_nvml(inventory, name) for name in names)


def asks_unknown_uuid(inventory: Inventory, choice: DeviceChoice) -> bool:
    """Whether an element is a UUID that may be one of those that the kernel does not know yet (then ask NVML)."""
    if all(gpu.uuid for gpu in inventory.gpus):
        return False
    names = [name.strip().lower().removeprefix("mig-").partition("/")[0] for name in choice.names]
    return any(name.startswith("gpu-") and not _by_uuid(inventory, name) for name in names)


def _all(inventory: Inventory, choice: DeviceChoice) -> tuple[Selection, Warnings]:
    working = tuple(gpu for gpu in inventory.gpus if not gpu.fault)
    broken = [gpu for gpu in inventory.gpus if gpu.fault]
    if not inventory.gpus and not inventory.wsl:
        raise _unknown(inventory, choice, "all GPUs were requested, and this host has none")
    if broken and not working:
        raise DriverFault(
            f"all GPUs were requested, and none of this host's can be used: {'; '.join(map(_fault, broken[:_SHOWN]))}",
            where=_sources(choice),
            hint="see `dmesg` for NVRM lines; details: gpuhook doctor",
        )
    pairs = [(gpu, device) for gpu in working for device in gpu.mig]
    selection = Selection(gpus=working, mig=tuple(device for _, device in pairs if not device.fault), everything=True)
    return selection, (
        *((_error(gpu).reference, f"{_fault(gpu)}; it is left out of `all`") for gpu in broken),
        *(
            (_mig_error(device).reference, f"{_mig_fault(gpu, device)}; it is left out of `all`")
            for gpu, device in pairs
            if device.fault
        ),
    )


def _find(inventory: Inventory, choice: DeviceChoice, name: str) -> tuple[Gpu, MigDevice | None]:
    """The one GPU that an element means, or the MIG device with its GPU. Raises as `select` does."""
    found = _by_index(inventory, name) or _by_address(inventory, name) or _by_uuid(inventory, name)
    if len(found) > 1:
        which = ", ".join(gpu.uuid for gpu in found)
        raise _unknown(inventory, choice, f"{name!r} is the beginning of {len(found)} GPUs' UUIDs: {which}")
    if found:
        return _usable(inventory, choice, found[0], name), None
    if is_mig(name):
        return _find_mig(inventory, choice, name)
    raise _unknown(inventory, choice, f"{_what(name)}, and {_offer(inventory)}", name)


def _find_mig(inventory: Inventory, choice: DeviceChoice, name: str) -> tuple[Gpu, MigDevice]:
    pairs = by_mig_name(inventory, name)
    if len(pairs) != 1:
        raise _unknown_mig(inventory, choice, name)
    gpu, device = pairs[0]
    if device.fault:
        raise _mig_error(device)(
            f"the MIG device {name} was requested and cannot be used: {device.fault}",
            where=_sources(choice),
            hint="nvidia-modprobe makes the nodes of MIG devices: nvidia-modprobe -f FILE for each capability file",
        )
    return _usable(inventory, choice, gpu, name), device


def _unknown_mig(inventory: Inventory, choice: DeviceChoice, name: str) -> UnknownDevice:
    there = [mig_title(gpu, device) for gpu in inventory.gpus for device in gpu.mig]
    more = f", and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    offer = f"this host has {len(there)}: {', '.join(there[:_SHOWN])}{more}" if there else "this host has none"
    return UnknownDevice(
        f"the MIG device {name} was requested, and {offer}",
        where=_sources(choice),
        hint="name a MIG device as `nvidia-smi -L` lists it, or by GPU and place: <gpu>:<mig>"
        if there
        else "make MIG devices with `nvidia-smi mig` on the host, or ask for a whole GPU",
    )


def _mig_error(device: MigDevice) -> type[GpuhookError]:
    """What kind of fault a MIG device has: its nodes', or its capability files'."""
    return NodeMissing if device.capabilities else DriverFault


def _mig_fault(gpu: Gpu, device: MigDevice) -> str:
    return f"MIG device {mig_title(gpu, device)} cannot be used: {device.fault}"


def _by_index(inventory: Inventory, name: str) -> list[Gpu]:
    """The GPU of an index: decimal, a sign and leading zeros as in C's numbers."""
    digits = name.removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()):
        return []
    wanted = digits.lstrip("0") or "0"
    return [gpu for gpu in inventory.gpus if str(gpu.index) == wanted]


def _by_address(inventory: Inventory, name: str) -> list[Gpu]:
    """The GPU at a PCI address with its domain: "0000:01:00.0", "0:1:0"; a GPU's function is always 0."""
    parts = name.removesuffix(".0").split(":")
    sizes = [0 < len(part) <= most for part, most in zip(parts, (8, 2, 2))]  # noqa: B905  # only three parts count
    if len(parts) != 3 or not all(sizes) or not all(c in _HEX for c in "".join(parts)):
        return []
    domain, bus, device = (int(part, 16) for part in parts)
    return [gpu for gpu in inventory.gpus if gpu.bus_id == f"{domain:08x}:{bus:02x}:{device:02x}.0"]


def _by_uuid(inventory: Inventory, name: str) -> list[Gpu]:
    """The GPU of this UUID, or all whose UUID begins with it; none for a beginning that is too short to mean one."""
    wanted = name.lower()
    if not wanted.startswith("gpu-") or len(wanted) < SHORTEST_PREFIX:
        return []
    return [gpu for gpu in inventory.gpus if gpu.uuid.lower().startswith(wanted)]


def _usable(inventory: Inventory, choice: DeviceChoice, gpu: Gpu, name: str) -> Gpu:
    if not gpu.fault:
        return gpu
    healthy = ", ".join(_name(other) for other in inventory.gpus if not other.fault)
    raise _error(gpu)(
        f"GPU {name} was requested and cannot be used: {gpu.fault}",
        where=_sources(choice),
        hint=f"the others can be requested: {healthy}" if healthy else "see `dmesg` for NVRM lines",
    )


def _error(gpu: Gpu) -> type[GpuhookError]:
    """What kind of fault a GPU has: its node's, or its own."""
    return NodeMissing if gpu.minor >= 0 and gpu.node is None else DriverFault


def _fault(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.uuid or gpu.bus_id}) cannot be used: {gpu.fault}"


def _name(gpu: Gpu) -> str:
    return f"{gpu.index} = {gpu.uuid or gpu.bus_id} ({gpu.model or 'unknown model'})"


def _offer(inventory: Inventory) -> str:
    """What this host has, so that a valid name can be picked from the message."""
    gpus = inventory.gpus
    more = f", and {len(gpus) - _SHOWN} more" if len(gpus) > _SHOWN else ""
    listed = ", ".join(map(_name, gpus[:_SHOWN])) + more
    return f"this host has {len(gpus)}: {listed}" if gpus else "this host has none"


def _what(name: str) -> str:
    if any(quote in name for quote in "\"'"):
        return f"GPU {name} was requested with quotes in its name"
    if name.lower().startswith("no-gpu-has-"):
        return f"{name} is a mark of a GPU-sharing scheduler that found no GPU with enough free memory"
    return f"GPU {name} was requested"


def _unknown(inventory: Inventory, choice: DeviceChoice, text: str, name: str = "") -> UnknownDevice:
    return UnknownDevice(text, where=_sources(choice), hint=_hint(inventory, name))


def _hint(inventory: Inventory, name: str) -> str:
    """What to do about an element that means nothing here."""
    if not inventory.gpus:
        return "all GPUs are excluded or gone: see `dmesg` for NVRM lines; a container that asks for no GPU starts"
    if any(quote in name for quote in "\"'"):
        return "write the value without quotes: a list in a Compose file keeps them"
    if any(c.isspace() for c in name):
        return "separate devices with commas, not with blanks"
    if name.lower().startswith("no-gpu-has-"):
        return "see the scheduler's logs; the driver is fine"
    if name.isascii() and name.isdecimal():
        return f"indices go from 0 to {len(inventory.gpus) - 1}; with Docker, `--gpus N` is a number of GPUs"
    if ":" in name and "." in name:
        return "write a PCI address with its domain: 0000:01:00.0"
    if not all(gpu.uuid for gpu in inventory.gpus):
        return "the kernel does not know every GPU's UUID before its first use: name the GPU by index or PCI address"
    return "name a GPU by index, by its whole UUID or by its PCI address"


def _sources(choice: DeviceChoice) -> str:
    return ", ".join(choice.sources)
