"""A Request and an Inventory become the complete list of operations. Pure: nothing is looked up here.

The order is nvidia-container-cli's (procfs, programs, libraries, links, firmware, sockets, common nodes, GPUs, device
rules, cache). What an operation takes from the host does not depend on the image, only where it lands.
"""

from __future__ import annotations

from gpuhook.driver.tables import BINARIES, LIBRARIES
from gpuhook.plan.ops import Allow, Bind, CacheEntry, Image, Link, MergeCache, Omit, Op, Plan, Tmpfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.driver.model import Gpu, Inventory, Library, Node
    from gpuhook.request.model import Request

FILE_FLAGS = ("ro", "nosuid", "nodev")
NODE_FLAGS = ("ro", "nosuid", "noexec")
SOCKET_FLAGS = ("nosuid", "nodev", "noexec")
PROC_FLAGS = ("ro", "nosuid", "nodev", "noexec")

# Which groups of libraries a capability brings (engine.md: video needs compute's, display shows through graphics').
LIBRARY_GROUPS = {
    "compute": ("compute",),
    "display": ("graphics",),
    "graphics": ("graphics",),
    "ngx": ("ngx",),
    "utility": ("utility",),
    "video": ("video", "compute"),
}
DAEMON_SOCKETS = {"nvidia-persistenced/socket": "persistenced", "nvidia-fabricmanager/socket": "fabricmanager"}
EVERYTHING = Omit()
# Links that no SONAME asks for, next to a library of this stem; "" stands for the library's own file.
EXTRA_LINKS = {
    "libcuda.so": ("libcuda.so", "libcuda.so.1"),
    "libGLX_nvidia.so": ("libGLX_indirect.so.0", ""),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
}
PROFILES = "/etc/nvidia/nvidia-application-profiles-rc.d"
PROFILE = (
    '{"profiles": [{"name": "_container_", "settings": ["EGLVisibleDGPUDevices", MASK]}], '
    '"rules": [{"pattern": [], "profile": "_container_"}]}'
)


def build_plan(
    request: Request,
    inventory: Inventory,
    gpus: tuple[Gpu, ...],
    image: Image,
    warnings: tuple[tuple[str, str], ...] = (),
    omit: Omit = EVERYTHING,
) -> Plan:
    """The plan that gives this container these GPUs and the driver files of its capabilities, but what is omitted."""
    wanted = frozenset(request.capabilities)
    libraries = tuple(_chosen_libraries(inventory, wanted, image))
    ops = (
        _driver_folder(inventory, gpus),
        *_profiles(gpus, wanted),
        *_programs(inventory, wanted),
        *(_bind_library(inventory, library, image) for library in libraries),
        *(link for library in libraries for link in _links(library, image)),
        *(() if omit.gsp_firmware else _firmware(inventory)),
        *_sockets(inventory, wanted, omit),
        *_common_nodes(inventory, wanted),
        *(op for gpu in gpus for op in _gpu(inventory, gpu)),
        *_merge(libraries, image),
    )
    if omit.nodes:
        ops = tuple(op for op in ops if not (isinstance(op, Bind) and op.kind == "device"))
    return Plan(ops=ops, warnings=warnings, notes=inventory.missing)


def _host(inventory: Inventory, path: str) -> str:
    """The host path of a file of the driver root."""
    return f"{inventory.host.driver_root.rstrip('/')}{path}"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _driver_folder(inventory: Inventory, gpus: tuple[Gpu, ...]) -> Op:
    """Cover /proc/driver/nvidia: nothing but this container's GPUs, and no invitation to make device nodes."""
    files = tuple((name, _without_node_making(name, content), 0o444) for name, content in inventory.proc_files)
    folders = ("gpus", *(f"gpus/{gpu.proc_folder}" for gpu in gpus))
    return Tmpfs(
        target="/proc/driver/nvidia", files=files, folders=folders, flags=PROC_FLAGS, filesystem="proc", optional=True
    )


def _without_node_making(name: str, content: bytes) -> bytes:
    """`params` tells the driver's libraries not to make device nodes by themselves; other files stay as they are."""
    return content.replace(b"ModifyDeviceFiles: 1", b"ModifyDeviceFiles: 0", 1) if name == "params" else content


def _profiles(gpus: tuple[Gpu, ...], wanted: frozenset[str]) -> Iterator[Op]:
    """The application profile by which EGL sees this container's GPUs only; the number is hexadecimal on purpose."""
    if not wanted & {"graphics", "display"} or not gpus:
        return
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu.minor
    text = PROFILE.replace("MASK", f"{mask:#x}")
    yield Tmpfs(target=PROFILES, files=(("10-container.conf", text.encode(), 0o555),))


def _programs(inventory: Inventory, wanted: frozenset[str]) -> Iterator[Op]:
    names = [name for capability, programs in BINARIES.items() if capability in wanted for name in programs]
    for path in inventory.binaries:
        if _name(path) in names:
            yield Bind(source=_host(inventory, path), target=f"/usr/bin/{_name(path)}", flags=FILE_FLAGS)


def _chosen_libraries(inventory: Inventory, wanted: frozenset[str], image: Image) -> Iterator[Library]:
    groups = {group for capability in wanted for group in LIBRARY_GROUPS.get(capability, ())}
    stems = {stem for group in groups for stem in LIBRARIES[group]}
    for library in inventory.libraries:
        there = library.bits == 64 or ("compat32" in wanted and image.lib32)
        if there and library.stem in stems:
            yield library


def _folder(library: Library, image: Image) -> str:
    return image.lib64 if library.bits == 64 else image.lib32


def _bind_library(inventory: Inventory, library: Library, image: Image) -> Op:
    target = f"{_folder(library, image)}/{_name(library.path)}"
    return Bind(source=_host(inventory, library.path), target=target, flags=FILE_FLAGS)


def _link_names(library: Library) -> Iterator[tuple[str, str]]:
    """The links that belong next to a library, as (name, what it says)."""
    file = _name(library.path)
    if library.soname and library.soname != file:
        yield library.soname, file
    if library.stem in EXTRA_LINKS:
        name, to = EXTRA_LINKS[library.stem]
        yield name, to or file


def _links(library: Library, image: Image) -> Iterator[Op]:
    for name, to in _link_names(library):
        yield Link(target=f"{_folder(library, image)}/{name}", to=to)


def _firmware(inventory: Inventory) -> Iterator[Op]:
    for path in inventory.firmware:
        yield Bind(source=_host(inventory, path), target=path, flags=FILE_FLAGS, optional=True)


def _sockets(inventory: Inventory, wanted: frozenset[str], omit: Omit) -> Iterator[Op]:
    """The daemons' sockets with utility, the folder of the MPS pipes with compute (or video)."""
    for path in inventory.sockets:
        daemon = daemon_of(path)
        if daemon and getattr(omit, daemon):
            continue
        if wanted & ({"utility"} if daemon else {"compute", "video"}):
            kind = "socket" if daemon else "folder"
            yield Bind(source=_host(inventory, path), target=path, kind=kind, flags=SOCKET_FLAGS, optional=True)


def daemon_of(socket: str) -> str:
    """Whose socket this is, as Omit calls the daemon; "" for the folder of MPS."""
    return next((daemon for end, daemon in DAEMON_SOCKETS.items() if socket.endswith(end)), "")


def _node(inventory: Inventory, node: Node) -> tuple[Op, Op]:
    number = (node.major, node.minor)
    bind = Bind(source=_host(inventory, node.path), target=node.path, kind="device", flags=NODE_FLAGS, device=number)
    return bind, Allow(major=node.major, minor=node.minor)


def _common_nodes(inventory: Inventory, wanted: frozenset[str]) -> Iterator[Op]:
    """The control node always; the unified memory nodes with compute (or video); modeset with display."""
    for node in inventory.nodes:
        name = _name(node.path)
        if (
            name == "nvidiactl"
            or (name.startswith("nvidia-uvm") and wanted & {"compute", "video"})
            or (name == "nvidia-modeset" and "display" in wanted)
        ):
            yield from _node(inventory, node)


def _gpu(inventory: Inventory, gpu: Gpu) -> Iterator[Op]:
    if gpu.node is not None:
        yield from _node(inventory, gpu.node)
    folder = f"/proc/driver/nvidia/gpus/{gpu.proc_folder}"
    yield Bind(source=_host(inventory, folder), target=folder, kind="folder", flags=PROC_FLAGS, optional=True)


def _merge(libraries: tuple[Library, ...], image: Image) -> Iterator[Op]:
    """Every name leads to the versioned file, whatever else stands in the image under the name (decisions.md 17)."""
    entries = []
    for library in libraries:
        path = f"{_folder(library, image)}/{_name(library.path)}"
        names = {library.soname or _name(library.path), *(name for name, _ in _link_names(library))}
        entries += [CacheEntry(soname=name, path=path, bits=library.bits) for name in sorted(names)]
    if entries:
        yield MergeCache(entries=tuple(entries))
