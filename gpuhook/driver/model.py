"""What a host's driver offers: an Inventory. Plain values; paths are relative to the driver root, with a leading /."""

from __future__ import annotations

from gpuhook.value import Value


class Host(Value):
    """Where to look: the kernel's views of this machine and the driver root. Tests point them at a fixture.

    driver_root: where the driver is installed (`[nvidia-container-cli] root`); its own /dev and /proc count;
    user: uid and gid of the child that asks the driver's libraries; mps: MPS's folder of pipes, in the driver root.
    """

    driver_root: str = "/"
    ldcache: str = "/etc/ld.so.cache"
    proc: str = "/proc"
    sys: str = "/sys"
    user: tuple[int, int] = (65534, 65534)
    mps: str = "/tmp/nvidia-mps"  # noqa: S108  # where MPS has it; its owner is checked


class Node(Value):
    """A character device: its path under the driver root and its number."""

    path: str
    major: int
    minor: int


class MigDevice(Value):
    """A MIG device: index within its GPU, UUID ("" where only NVML knows it), GPU and compute instance."""

    index: int
    uuid: str
    gpu_instance: int
    compute_instance: int


class Gpu(Value):
    """A GPU. index: NVML's; bus_id: eight-digit domain, lower case; proc_folder: below /proc/driver/nvidia/gpus.

    uuid: "" while the kernel does not know it; fault: why it cannot be used, "" where it can.
    """

    index: int
    minor: int
    uuid: str
    bus_id: str
    model: str
    proc_folder: str
    node: Node | None
    fault: str = ""
    mig: tuple[MigDevice, ...] = ()


class Library(Value):
    """A driver library, chosen as the loader would: stem ("libcuda.so"), resolved path, SONAME, 64 or 32 bits."""

    stem: str
    path: str
    soname: str
    bits: int


class Installed(Value):
    """The part of an inventory that only a change of packages changes; for one version of the kernel module."""

    driver_version: str
    libraries: tuple[Library, ...]
    binaries: tuple[str, ...]
    firmware: tuple[str, ...]
    missing: tuple[str, ...]


class Inventory(Value):
    """Everything found. Lists are in the order in which nvidia-container-cli prints them.

    nodes: the common ones that exist (nvidiactl, uvm, uvm-tools, modeset); sockets: persistenced, fabricmanager
    and the MPS folder; proc_files: name and content of those of /proc/driver/nvidia that a container gets a copy of;
    missing: "what: why" for everything that was looked for and is not given, for notes.
    """

    host: Host
    driver_version: str
    gpus: tuple[Gpu, ...]
    libraries: tuple[Library, ...]
    binaries: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    proc_files: tuple[tuple[str, bytes], ...] = ()
    missing: tuple[str, ...] = ()
