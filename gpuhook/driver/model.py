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


class Capability(Value):
    """A right that the driver gives by a file below /proc/driver/nvidia/capabilities, and by a node that opens it.

    path: of the file, in the driver root; node: None where this driver has no such nodes (before nvidia-caps).
    """

    path: str
    node: Node | None


class MigDevice(Value):
    """A MIG device: index within its GPU, UUID ("" where only NVML knows it), GPU and compute instance.

    index: NVML's where NVML was asked, else by GPU instance and compute instance; capabilities: of the GPU instance,
    then of the compute instance; fault: why it cannot be used, "" where it can.
    """

    index: int
    uuid: str
    gpu_instance: int
    compute_instance: int
    capabilities: tuple[Capability, ...] = ()
    fault: str = ""


class Gpu(Value):
    """A GPU. index: NVML's; bus_id: eight-digit domain, lower case; proc_folder: below /proc/driver/nvidia/gpus.

    uuid: "" while the kernel does not know it; fault: why it cannot be used, "" where it can; mig_capable: whether it
    could be cut into MIG devices, mig: those that there are.
    """

    index: int
    minor: int
    uuid: str
    bus_id: str
    model: str
    proc_folder: str
    node: Node | None
    fault: str = ""
    mig_capable: bool = False
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
    helpers: tuple[Library, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


class Inventory(Value):
    """Everything found. Lists are in the order in which nvidia-container-cli prints them.

    nodes: the common ones that exist (nvidiactl, uvm, uvm-tools, modeset); sockets: persistenced, fabricmanager
    and the MPS folder; proc_files: name and content of those of /proc/driver/nvidia that a container gets a copy of;
    missing: "what: why" for everything that was looked for and is not given, for notes; helpers: libraries that
    NVIDIA's graphics stack loads and that have versions of their own; files: (path by which programs know it, where
    it really is) of the small files that lead loaders of Vulkan, EGL and OpenCL to the driver.
    On WSL2 (`wsl`) there is neither a kernel module nor a node for each GPU: the version is "" and there are no GPUs
    until NVML was asked, and store has the driver's files in the folders that Windows shares.
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
    helpers: tuple[Library, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    wsl: bool = False
    store: tuple[str, ...] = ()


class Selection(Value):
    """What of an Inventory a container gets, in the order of its request.

    mig: MIG devices, whose GPUs are among `gpus`; everything: whether it asked for `all`; access: None, or the numbers
    of the nodes by which MIG is configured or monitored; channels: nodes of IMEX channels.
    """

    gpus: tuple[Gpu, ...]
    mig: tuple[MigDevice, ...] = ()
    everything: bool = False
    access: tuple[tuple[int, int], ...] | None = None
    channels: tuple[Node, ...] = ()
