"""A Request and an Inventory become the complete list of operations. Pure: nothing is looked up here.

The order is nvidia-container-cli's (procfs, programs, libraries, links, firmware, sockets, common nodes, GPUs, device
rules, cache). What an operation takes from the host does not depend on the image, only where it lands.
"""

from __future__ import annotations

from gpuhook.driver.tables import BINARIES, EGL_HELPERS, HOST_FILES, LIBRARIES, UNVERSIONED, WSL_ALWAYS
from gpuhook.plan import devices
from gpuhook.plan.devices import host_path
from gpuhook.plan.ops import Bind, CacheEntry, Image, Link, MergeCache, Omit, Op, Plan, Tmpfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.driver.model import Inventory, Library, Selection
    from gpuhook.request.model import Request

FILE_FLAGS = ("ro", "nosuid", "nodev")
SOCKET_FLAGS = ("nosuid", "nodev", "noexec")

# Which groups of libraries a capability brings (engine.md: video needs compute's, display shows through graphics').
LIBRARY_GROUPS = {
    "compute": ("compute",),
    "display": ("graphics",),
    "graphics": ("graphics",),
    "ngx": ("ngx",),
    "utility": ("utility",),
    "video": ("video", "compute"),
}
SHOWING = frozenset({"graphics", "display"})
# What Vulkan and EGL need of a modern driver and nvidia-container-cli gives with compute only, or not at all.
ALSO_SHOWING = ("libnvidia-gpucomp.so", "libnvidia-allocator.so", *EGL_HELPERS)
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
    chosen: Selection,
    image: Image,
    warnings: tuple[tuple[str, str], ...] = (),
    omit: Omit = EVERYTHING,
) -> Plan:
    """The plan that gives this container its devices and the driver files of its capabilities, but what is omitted."""
    wanted = frozenset(request.capabilities)
    usual, added = _stems(wanted)
    libraries = tuple(_chosen_libraries(inventory, usual | added, image, narrow="compat32" in wanted))
    ops = (
        *devices.driver_folder(inventory, chosen),
        *_profiles(inventory, chosen, wanted),
        *_programs(inventory, wanted),
        *(_bind_library(inventory, each, image, dispensable=each.stem not in usual) for each in libraries),
        *(link for each in libraries for link in _links(each, image, dispensable=each.stem not in usual)),
        *_gbm_link(libraries, image, wanted),
        *_files(inventory, wanted),
        *(() if omit.gsp_firmware else _firmware(inventory)),
        *_sockets(inventory, wanted, omit),
        *devices.common_nodes(inventory, wanted),
        *(op for gpu in chosen.gpus for op in devices.gpu(inventory, gpu)),
        *_store(inventory, chosen),
        *devices.mig(inventory, chosen),
        *devices.channels(inventory, chosen),
        *_merge(libraries, _compat(inventory, chosen, image), image),
    )
    if omit.nodes:
        ops = tuple(op for op in ops if not (isinstance(op, Bind) and op.kind == "device"))
    return Plan(ops=ops, warnings=warnings, notes=inventory.missing)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _profiles(inventory: Inventory, chosen: Selection, wanted: frozenset[str]) -> Iterator[Op]:
    """The application profile by which EGL sees this container's GPUs only; the number is hexadecimal on purpose."""
    if not wanted & SHOWING or not chosen.gpus or inventory.wsl:
        return
    mask = 0
    for gpu in chosen.gpus:
        mask |= 1 << gpu.minor
    text = PROFILE.replace("MASK", f"{mask:#x}")
    yield Tmpfs(target=PROFILES, files=(("10-container.conf", text.encode(), 0o555),))


def _programs(inventory: Inventory, wanted: frozenset[str]) -> Iterator[Op]:
    names = [name for capability, programs in BINARIES.items() if capability in wanted for name in programs]
    for path in inventory.binaries:
        if _name(path) in names:
            yield Bind(source=host_path(inventory, path), target=f"/usr/bin/{_name(path)}", flags=FILE_FLAGS)


def _stems(wanted: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The libraries that these capabilities bring everywhere, and those that we add for graphics."""
    groups = {group for capability in wanted for group in LIBRARY_GROUPS.get(capability, ())}
    usual = frozenset((WSL_ALWAYS, *(stem for group in groups for stem in LIBRARIES[group])))
    return usual, frozenset(ALSO_SHOWING if wanted & SHOWING else ())


def _chosen_libraries(inventory: Inventory, stems: frozenset[str], image: Image, *, narrow: bool) -> Iterator[Library]:
    """The libraries of these stems; narrow: those of 32 bits too, where the image has a place for them."""
    for library in (*inventory.libraries, *inventory.helpers):
        there = library.bits == 64 or (narrow and image.lib32)
        if there and library.stem in stems:
            yield library


def _folder(library: Library, image: Image) -> str:
    return image.lib64 if library.bits == 64 else image.lib32


def _bind_library(inventory: Inventory, library: Library, image: Image, *, dispensable: bool) -> Op:
    target = f"{_folder(library, image)}/{_name(library.path)}"
    source = host_path(inventory, library.path)
    return Bind(source=source, target=target, flags=FILE_FLAGS, dispensable=dispensable)


def _link_names(library: Library) -> Iterator[tuple[str, str]]:
    """The links that belong next to a library, as (name, what it says)."""
    file = _name(library.path)
    if library.soname and library.soname != file:
        yield library.soname, file
    if file == UNVERSIONED.get(library.stem):
        yield library.stem, file
    if library.stem in EXTRA_LINKS:
        name, to = EXTRA_LINKS[library.stem]
        yield name, to or file


def _links(library: Library, image: Image, *, dispensable: bool) -> Iterator[Op]:
    for name, to in _link_names(library):
        yield Link(target=f"{_folder(library, image)}/{name}", to=to, dispensable=dispensable)


def _gbm_link(libraries: tuple[Library, ...], image: Image, wanted: frozenset[str]) -> Iterator[Op]:
    """The name by which Mesa's libgbm finds NVIDIA's buffers: the allocator under its backend's name."""
    if wanted & SHOWING and any(each.stem == "libnvidia-allocator.so" and each.bits == 64 for each in libraries):
        target = f"{image.lib64}/gbm/nvidia-drm_gbm.so"
        yield Link(target=target, to="../libnvidia-allocator.so.1", dispensable=True)


def _files(inventory: Inventory, wanted: frozenset[str]) -> Iterator[Op]:
    """The small files by which the loaders of Vulkan, EGL and OpenCL find the driver."""
    for path, source in inventory.files:
        if any(path in files for capability, files in HOST_FILES.items() if capability in wanted):
            yield Bind(source=host_path(inventory, source), target=path, flags=FILE_FLAGS, dispensable=True)


def _store(inventory: Inventory, chosen: Selection) -> Iterator[Op]:
    """WSL2: the driver's files in the folders of Windows, at the same paths, for a container with a GPU."""
    if chosen.gpus or chosen.everything:
        for path in inventory.store:
            yield Bind(source=host_path(inventory, path), target=path, flags=FILE_FLAGS)


def _firmware(inventory: Inventory) -> Iterator[Op]:
    for path in inventory.firmware:
        yield Bind(source=host_path(inventory, path), target=path, flags=FILE_FLAGS, optional=True)


def _sockets(inventory: Inventory, wanted: frozenset[str], omit: Omit) -> Iterator[Op]:
    """The daemons' sockets with utility, the folder of the MPS pipes with compute (or video)."""
    for path in inventory.sockets:
        daemon = daemon_of(path)
        if daemon and getattr(omit, daemon):
            continue
        if wanted & ({"utility"} if daemon else {"compute", "video"}):
            kind = "socket" if daemon else "folder"
            yield Bind(source=host_path(inventory, path), target=path, kind=kind, flags=SOCKET_FLAGS, optional=True)


def daemon_of(socket: str) -> str:
    """Whose socket this is, as Omit calls the daemon; "" for the folder of MPS."""
    return next((daemon for end, daemon in DAEMON_SOCKETS.items() if socket.endswith(end)), "")


def _compat(inventory: Inventory, chosen: Selection, image: Image) -> tuple[CacheEntry, ...]:
    """The image's newer CUDA libraries, where the driver can take them (decisions.md 18).

    NVIDIA supports them on data-centre GPUs only; on others they fail with error 804 where the driver's own work.
    """
    is_newer = _major(image.compat_version) > _major(inventory.driver_version) > 0
    consumer = any("geforce" in gpu.model.lower() for gpu in chosen.gpus)
    return image.compat if is_newer and not consumer else ()


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _merge(libraries: tuple[Library, ...], compat: tuple[CacheEntry, ...], image: Image) -> Iterator[Op]:
    """Every name leads to the versioned file, whatever else stands in the image under the name (decisions.md 17)."""
    entries = list(compat)
    taken = {(entry.soname, entry.bits) for entry in compat}
    for library in libraries:
        path = f"{_folder(library, image)}/{_name(library.path)}"
        names = {library.soname or _name(library.path), *(name for name, _ in _link_names(library))}
        entries += [
            CacheEntry(soname=name, path=path, bits=library.bits)
            for name in sorted(names)
            if (name, library.bits) not in taken
        ]
    if entries:
        yield MergeCache(entries=tuple(entries))
