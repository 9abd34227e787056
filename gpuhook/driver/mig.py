"""MIG devices: the slices of a GPU, as the driver's capability files tell them. No device is opened, no library asked.

Each GPU instance and compute instance has a file `access` below /proc/driver/nvidia/capabilities, which says the minor
number of its node in /dev/nvidia-caps (NVIDIA's open kernel module: nv-caps.c; engine.md 3.2).
"""

from __future__ import annotations

from gpuhook.driver.model import Capability, Gpu, Host, MigDevice, Node
from gpuhook.driver.nodes import major_of, node
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.files import read_file

FOLDER = "/proc/driver/nvidia/capabilities"
NODES = "/dev/nvidia-caps"
MINORS = "driver/nvidia-caps/mig-minors"  # below the host's /proc
_MOST_INSTANCES = 256  # entries of a folder; a GPU has at most 8 instances of each kind, and some of ours lie
_LARGEST_MINOR = (1 << 20) - 1


def with_mig(root: Root, host: Host, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs with the MIG devices that each of them is cut into, ordered by GPU instance and compute instance.

    NVML, which alone knows their UUIDs, enumerates them in the same order as far as is known; `query.with_mig_uuids`
    takes its word. A device that cannot be used has a `fault`.
    """
    try:
        names = root.listdir(FOLDER, 4096)
    except OSError:  # no GPU here can do MIG, or the driver is older than that
        return gpus
    look = Capabilities(root, host)
    return tuple(_cut(look, gpu) if f"gpu{gpu.minor}" in names else gpu for gpu in gpus)


def _cut(look: Capabilities, gpu: Gpu) -> Gpu:
    folder = f"gpu{gpu.minor}/mig"
    instances = look.instances(folder, "gi")
    if instances is None:
        return gpu
    pairs = [(gi, ci) for gi in instances for ci in look.instances(f"{folder}/gi{gi}", "ci") or ()]
    devices = tuple(_device(look, folder, index, gi, ci) for index, (gi, ci) in enumerate(pairs))
    return gpu.with_(mig_capable=True, mig=devices)


def _device(look: Capabilities, folder: str, index: int, gi: int, ci: int) -> MigDevice:
    plain = MigDevice(index=index, uuid="", gpu_instance=gi, compute_instance=ci)
    files = (f"{folder}/gi{gi}/access", f"{folder}/gi{gi}/ci{ci}/access")
    capabilities, faults = zip(*map(look.capability, files), strict=True)
    known = tuple(each for each in capabilities if each)
    return plain.with_(capabilities=known if len(known) == len(files) else (), fault=next(filter(None, faults), ""))


class Capabilities:
    """The capability files of a driver root, and what the kernel says of their nodes.

    major: of the nodes, -1 where this driver has none.
    """

    def __init__(self, root: Root, host: Host) -> None:
        self.root, self.host = root, host
        self.major = major_of(host.proc, "nvidia-caps")
        self._minors: dict[str, int] | None = None

    def instances(self, folder: str, kind: str) -> list[int] | None:
        """The numbers of the instances ("gi" or "ci") in a folder, ascending; None where there is no such folder."""
        try:
            names = self.root.listdir(f"{FOLDER}/{folder}", _MOST_INSTANCES)
        except OSError:
            return None
        numbers = [name.removeprefix(kind) for name in names if name.startswith(kind)]
        return sorted(int(number) for number in numbers if _is_number(number) and len(number) <= 3)

    def capability(self, file: str) -> tuple[Capability | None, str]:
        """A capability by its file below FOLDER, None where it is of no use; and why it cannot be used, or ""."""
        path = f"{FOLDER}/{file}"
        try:
            number = minor_in(self.root.read(path, 4096)[0].decode("utf-8", "replace"))
        except OSError as error:
            return None, f"{path} cannot be read: {error.strerror}"
        if self.major < 0:
            return Capability(path=path, node=None), ""
        if number < 0:
            return None, f"{path} has no valid `DeviceFileMinor`"
        known = self.minors.get(_name(file), number)
        if known != number:  # the driver root may be another container's: it does not decide what is allowed
            return None, f"{path} says the minor {number}, but mig-minors gives {_name(file)} {known}"
        place = f"{NODES}/nvidia-cap{number}"
        _found, why = node(self.root, place, self.major, number)
        return Capability(path=path, node=Node(path=place, major=self.major, minor=number)), why

    @property
    def minors(self) -> dict[str, int]:
        """The kernel's list of nodes by name: "config", "monitor", "gpu0/gi1/access", "gpu0/gi1/ci0/access"."""
        if self._minors is None:
            try:
                text = read_file(f"{self.host.proc}/{MINORS}", 1 << 20)[0].decode("utf-8", "replace")
            except OSError:
                text = ""
            pairs = (line.split(" ") for line in text.split("\n"))
            self._minors = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and _is_number(pair[1])}
        return self._minors


def access_numbers(root: Root, host: Host, gpus: tuple[Gpu, ...], files: list[str]) -> tuple[tuple[int, int], ...]:
    """The numbers of all nodes that configuring or monitoring MIG on these GPUs takes.

    files: of "mig/config" and "mig/monitor". The list is the kernel's own (mig-minors), for GPUs by their minors.
    Empty where this driver has no nodes for it.
    """
    look = Capabilities(root, host)
    if look.major < 0:
        return ()
    own = [look.minors[name] for name in map(_name, files) if name in look.minors]
    prefixes = tuple(f"gpu{gpu.minor}/" for gpu in gpus if gpu.mig_capable)
    of_gpus = [number for name, number in look.minors.items() if name.startswith(prefixes)]
    return tuple((look.major, number) for number in dict.fromkeys((*own, *of_gpus)))


def minor_in(text: str) -> int:
    """The number in a capability file's line `DeviceFileMinor: N`, -1 where there is none."""
    for line in text.split("\n"):
        label, _, value = line.partition(":")
        if label == "DeviceFileMinor":
            return int(value) if _is_number(value.strip()) else -1
    return -1


def _name(file: str) -> str:
    """What mig-minors calls a capability file: "gpu0/gi1/access" for "gpu0/mig/gi1/access"."""
    return file.removeprefix("mig/").replace("/mig/", "/", 1)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 7 and int(text) <= _LARGEST_MINOR
