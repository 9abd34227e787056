"""The GPUs of this node, as the driver's procfs tells them: no device is opened, no library asked.

Reading a GPU's file may wake it from suspend, and its UUID may not be known before something has used it
(reference: NVIDIA's open kernel module, nv-procfs.c).
"""

from __future__ import annotations

from gpuhook.driver.model import Gpu, Node
from gpuhook.driver.nodes import NVIDIA_MAJOR, node
from gpuhook.kernel.beneath import Root
from gpuhook.refusals import NotCovered

FOLDER = "/proc/driver/nvidia/gpus"
MOST_GPUS = 64  # NVML's own limit in nvidia-container-cli
_LAST_MINOR = 253  # 254 and 255 are modeset's and the control device's
_EXCLUDED = ("GPU Excluded", "GPU Blacklisted", "Blacklisted")
_HEX = "0123456789abcdefABCDEF"

Address = tuple[int, int, int, int]


def find_gpus(root: Root) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """All GPUs in NVML's order (PCI address) but those that the driver excludes; and what was passed over.

    A GPU that cannot be used has a `fault` and keeps its index. Raises NotCovered for more than 64.
    """
    try:
        names = root.listdir(FOLDER, 4096)
    except OSError as error:
        return (), (f"{FOLDER}: {error.strerror}",)
    places = sorted((address, name) for name in names if (address := parse_address(name)))
    facts = [(address, name, _information(root, name)) for address, name in places]
    present = [(address, name, fact) for address, name, fact in facts if not _excluded(fact)]
    if len(present) > MOST_GPUS:
        raise NotCovered(f"this node has {len(present)} GPUs; no more than {MOST_GPUS} are served", where=FOLDER)
    gpus = [_gpu(root, index, *place) for index, place in enumerate(present)]
    odd = tuple(f"{FOLDER}/{name}: its name is no PCI address" for name in names if not parse_address(name))
    excluded = tuple(f"GPU {name}: excluded by the driver's settings" for _, name, fact in facts if _excluded(fact))
    return tuple(_without_doubles(gpus)), (*odd, *excluded)


def parse_address(text: str) -> Address | None:
    """Domain, bus, device and function of "0000:01:00.0" (four to eight digits of domain), or None."""
    domain, _, rest = text.partition(":")
    bus, _, rest = rest.partition(":")
    device, _, function = rest.partition(".")
    sizes = 4 <= len(domain) <= 8 and len(bus) == len(device) == 2 and len(function) == 1
    if not sizes or not all(c in _HEX for c in domain + bus + device + function):
        return None
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def bus_id(address: Address) -> str:
    """An address in the form that NVML and nvidia-container-cli print: "00000000:01:00.0"."""
    domain, bus, device, function = address
    return f"{domain:08x}:{bus:02x}:{device:02x}.{function:x}"


def _information(root: Root, name: str) -> dict[str, str]:
    """The labels and values of a GPU's file; the label "" holds the reason where it cannot be read."""
    try:
        data, _status = root.read(f"{FOLDER}/{name}/information", 1 << 14)
    except OSError as error:
        return {"": f"{FOLDER}/{name}/information cannot be read: {error.strerror}"}
    lines = (line.partition(":") for line in data.decode("utf-8", "replace").split("\n"))
    return {label.strip(): value.strip() for label, colon, value in lines if colon}


def _excluded(fact: dict[str, str]) -> bool:
    return any(fact.get(label, "").lower() == "yes" for label in _EXCLUDED)


def _gpu(root: Root, index: int, address: Address, name: str, fact: dict[str, str]) -> Gpu:
    minor, uuid = _minor(fact), fact.get("GPU UUID", "")
    found, fault = _node(root, minor)
    if fact.get(""):
        fault = fact[""]
    elif minor < 0:
        fault = f"{FOLDER}/{name}/information has no valid `Device Minor`"
    elif (location := fact.get("Bus Location")) and parse_address(location) != address:
        fault = f"{FOLDER}/{name}/information speaks of a GPU at {location}"
    elif uuid and "?" not in uuid and not is_uuid(uuid):
        fault = f"{FOLDER}/{name}/information has a malformed UUID {uuid!r}"
    return Gpu(
        index=index,
        minor=minor,
        uuid=uuid if is_uuid(uuid) else "",
        bus_id=bus_id(address),
        model=fact.get("Model", "")[:128],
        proc_folder=name,
        node=found,
        fault=fault,
    )


def _minor(fact: dict[str, str]) -> int:
    text = fact.get("Device Minor", "")
    valid = text.isascii() and text.isdecimal() and len(text) <= 3 and int(text) <= _LAST_MINOR
    return int(text) if valid else -1


def _node(root: Root, minor: int) -> tuple[Node | None, str]:
    if minor < 0:
        return None, ""
    return node(root, f"/dev/nvidia{minor}", NVIDIA_MAJOR, minor)


def is_uuid(text: str) -> bool:
    """Whether this is a GPU's whole UUID: "GPU-" and 8-4-4-4-12 hexadecimal digits."""
    parts = text.split("-")
    return (
        parts[0] == "GPU"
        and [len(part) for part in parts[1:]] == [8, 4, 4, 4, 12]
        and all(c in _HEX for part in parts[1:] for c in part)
    )


def _without_doubles(gpus: list[Gpu]) -> list[Gpu]:
    """Two GPUs of one minor or one UUID: neither can be given, since it might be the other."""
    minors = [gpu.minor for gpu in gpus if gpu.minor >= 0]
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
    checked = []
    for gpu in gpus:
        if not gpu.fault and minors.count(gpu.minor) > 1:
            gpu = gpu.with_(fault=f"another GPU claims the device minor {gpu.minor} as well")
        elif not gpu.fault and uuids.count(gpu.uuid) > 1:
            gpu = gpu.with_(fault=f"another GPU claims the UUID {gpu.uuid} as well")
        checked.append(gpu)
    return checked
