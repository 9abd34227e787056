"""From the devices that a container names to this node's GPUs. Pure.

The forms are those of nvidia-container-cli (engine.md 3.1) without its sloppiness: what follows an address or an
index is not ignored, and every element of the list is checked, also beside `all` (edges 28 to 30).
"""

from __future__ import annotations

from gpuhook.driver.model import Gpu, Inventory
from gpuhook.errors import DriverFault, GpuhookError, NodeMissing, NotCovered, UnknownDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.request.model import DeviceChoice

    Warnings = tuple[tuple[str, str], ...]

SHORTEST_PREFIX = 8  # of a UUID, "GPU-" included
_HEX = "0123456789abcdefABCDEF"
_SHOWN = 16


def select(inventory: Inventory, choice: DeviceChoice) -> tuple[tuple[Gpu, ...], Warnings]:
    """The GPUs that were asked for, in the order of the request, each once; and (slug, text) warnings.

    Elements: `all`; an index; a whole UUID in any case, or the beginning of one GPU's UUID; a PCI address with its
    domain. Blanks around an element do not count. `all` leaves broken GPUs out with a warning.
    Raises UnknownDevice (no such GPU), DriverFault or NodeMissing (it is broken), NotCovered (MIG devices).
    """
    names = [name.strip() for name in choice.names]
    gpus = [_find(inventory, choice, name) for name in names if name.lower() != "all"]
    if len(gpus) < len(names):
        return _all(inventory, choice)
    return tuple(dict.fromkeys(gpus)), ()


def asks_unknown_uuid(inventory: Inventory, choice: DeviceChoice) -> bool:
    """Whether an element is a UUID that may be one of those that the kernel does not know yet (then ask NVML)."""
    if all(gpu.uuid for gpu in inventory.gpus):
        return False
    names = [name.strip().lower() for name in choice.names]
    return any(name.startswith("gpu-") and not _by_uuid(inventory, name) for name in names)


def _all(inventory: Inventory, choice: DeviceChoice) -> tuple[tuple[Gpu, ...], Warnings]:
    working = tuple(gpu for gpu in inventory.gpus if not gpu.fault)
    broken = [gpu for gpu in inventory.gpus if gpu.fault]
    if not inventory.gpus:
        raise _unknown(inventory, choice, "all GPUs were requested, and this host has none")
    if not working:
        raise DriverFault(
            f"all GPUs were requested, and none of this host's can be used: {'; '.join(map(_fault, broken[:_SHOWN]))}",
            where=_sources(choice),
            hint="see `dmesg` for NVRM lines; details: gpuhook doctor",
        )
    return working, tuple((_error(gpu).reference, f"{_fault(gpu)}; it is left out of `all`") for gpu in broken)


def _find(inventory: Inventory, choice: DeviceChoice, name: str) -> Gpu:
    """The one GPU that an element means. Raises as `select` does."""
    found = _by_index(inventory, name) or _by_address(inventory, name) or _by_uuid(inventory, name)
    if len(found) > 1:
        which = ", ".join(gpu.uuid for gpu in found)
        raise _unknown(inventory, choice, f"{name!r} is the beginning of {len(found)} GPUs' UUIDs: {which}")
    if found:
        return _usable(inventory, choice, found[0], name)
    if is_mig(name):
        raise NotCovered(
            f"the MIG device {name} was requested, and the embedded engine gives whole GPUs only",
            where=_sources(choice),
            hint="install nvidia-container-cli; gpuhook uses it where it is there",
        )
    raise _unknown(inventory, choice, f"{_what(name)}, and {_offer(inventory)}", name)


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


def is_mig(name: str) -> bool:
    """Whether an element has the form of a MIG device: "MIG-…" or "<gpu>:<instance>"."""
    gpu, colon, instance = name.partition(":")
    indices = all(part.isascii() and part.isdecimal() for part in (gpu, instance))
    return name[:4].upper() == "MIG-" or (bool(colon) and indices)


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
