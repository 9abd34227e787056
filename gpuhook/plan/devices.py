"""The part of a plan that is about devices: nodes, device rules, and the driver's own folder in procfs. Pure."""

from __future__ import annotations

from gpuhook.plan.ops import Allow, Bind, Op, Tmpfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.driver.model import Gpu, Inventory, MigDevice, Node, Selection

NODE_FLAGS = ("ro", "nosuid", "noexec")
PROC_FLAGS = ("ro", "nosuid", "nodev", "noexec")
PROC = "/proc/driver/nvidia"
CAPABILITIES = f"{PROC}/capabilities"
CAPABILITY_NODES = "/dev/nvidia-caps"


def host_path(inventory: Inventory, path: str) -> str:
    """The host path of a file of the driver root."""
    return f"{inventory.host.driver_root.rstrip('/')}{path}"


def driver_folder(inventory: Inventory, chosen: Selection) -> Iterator[Op]:
    """Cover /proc/driver/nvidia: nothing but what this container gets, and no invitation to make device nodes.

    The cover is read-only when it is seen for the first time, so it has a place for all that will be bound in it.
    """
    if inventory.wsl:  # there is no such folder
        return
    copies = [(name, _without_node_making(name, content), 0o444) for name, content in inventory.proc_files]
    places = [(path.removeprefix(f"{PROC}/"), b"", 0o444) for path in _capability_files(chosen)]
    folders = ["gpus", *(f"gpus/{gpu.proc_folder}" for gpu in chosen.gpus)]
    folders += [] if chosen.access is None else ["capabilities"]
    for name, _, _ in places:
        parts = name.split("/")
        folders += ["/".join(parts[:length]) for length in range(1, len(parts))]
    yield Tmpfs(
        target=PROC,
        files=(*copies, *places),
        folders=tuple(dict.fromkeys(folders)),
        flags=PROC_FLAGS,
        filesystem="proc",
        optional=True,
    )


def _without_node_making(name: str, content: bytes) -> bytes:
    """`params` tells the driver's libraries not to make device nodes by themselves; other files stay as they are."""
    return content.replace(b"ModifyDeviceFiles: 1", b"ModifyDeviceFiles: 0", 1) if name == "params" else content


def _capability_files(chosen: Selection) -> list[str]:
    """The capability files of the selected MIG devices, each once (those of a GPU instance may be shared)."""
    if chosen.access is not None:  # the whole folder is bound then
        return []
    return list(dict.fromkeys(each.path for device in chosen.mig for each in device.capabilities))


def node(inventory: Inventory, node: Node) -> tuple[Op, Op]:
    """A node with the rule that lets the container use it."""
    number = (node.major, node.minor)
    source = host_path(inventory, node.path)
    bind = Bind(source=source, target=node.path, kind="device", flags=NODE_FLAGS, device=number)
    return bind, Allow(major=node.major, minor=node.minor)


def common_nodes(inventory: Inventory, wanted: frozenset[str]) -> Iterator[Op]:
    """The control node always (on WSL2: dxg); the unified memory nodes with compute or video; modeset with display."""
    for each in inventory.nodes:
        name = each.path.rpartition("/")[2]
        if (
            name in ("nvidiactl", "dxg")
            or (name.startswith("nvidia-uvm") and wanted & {"compute", "video"})
            or (name == "nvidia-modeset" and "display" in wanted)
        ):
            yield from node(inventory, each)


def gpu(inventory: Inventory, gpu: Gpu) -> Iterator[Op]:
    """A GPU's node, and its folder in procfs."""
    if gpu.node is not None:
        yield from node(inventory, gpu.node)
    if gpu.proc_folder:
        folder = f"{PROC}/gpus/{gpu.proc_folder}"
        yield Bind(source=host_path(inventory, folder), target=folder, kind="folder", flags=PROC_FLAGS, optional=True)


def mig(inventory: Inventory, chosen: Selection) -> Iterator[Op]:
    """What the selected MIG devices take, or access to the whole of MIG in their place (engine.md 3.2, 3.3)."""
    if chosen.access is not None:
        yield from _access(inventory, chosen.access)
        return
    done: set[str] = set()
    for device in chosen.mig:
        yield from _device(inventory, device, done)


def _device(inventory: Inventory, device: MigDevice, done: set[str]) -> Iterator[Op]:
    """The capability files of GPU instance and compute instance and their nodes, but those that are done."""
    for capability in device.capabilities:
        if capability.path in done:
            continue
        done.add(capability.path)
        yield Bind(source=host_path(inventory, capability.path), target=capability.path, flags=PROC_FLAGS)
        if capability.node is not None:
            yield from node(inventory, capability.node)


def _access(inventory: Inventory, numbers: tuple[tuple[int, int], ...]) -> Iterator[Op]:
    """The two folders as they are, since instances come and go in them, and the rules for all nodes there may be."""
    yield Bind(source=host_path(inventory, CAPABILITIES), target=CAPABILITIES, kind="folder", flags=PROC_FLAGS)
    if numbers:
        yield Bind(
            source=host_path(inventory, CAPABILITY_NODES),
            target=CAPABILITY_NODES,
            kind="folder",
            flags=("nosuid", "noexec"),
        )
    for major, minor in numbers:
        yield Allow(major=major, minor=minor)


def channels(inventory: Inventory, chosen: Selection) -> Iterator[Op]:
    """The nodes of the IMEX channels."""
    for each in chosen.channels:
        yield from node(inventory, each)
