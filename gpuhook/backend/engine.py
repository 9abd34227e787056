"""The embedded engine: what nvidia-container-cli does, in this process and a forked child of it.

The order (threats.md 4.4): look at the host, decide, hold the container, take the sources, write the device rules,
then enter the container's mount namespace in a child that has everything imported, and carry the plan out. Nothing
changes before the plan is complete; after a failure nothing stays.
"""

from __future__ import annotations

import posix
from time import monotonic

from gpuhook.backend.compat import with_compat
from gpuhook.backend.container import Container
from gpuhook.backend.log import start_log
from gpuhook.backend.sources import open_sources
from gpuhook.backend.survey import survey
from gpuhook.driver.model import Host
from gpuhook.errors import ConfigBroken
from gpuhook.kernel.child import follow_parent, give_up_after, raise_limit_of_files, run_in_child
from gpuhook.kernel.files import in_user_namespace
from gpuhook.note import note, warn
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Allow, Image, Omit, Plan
from gpuhook.refusals import DriverFault, NodeMissing
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.backend.sources import Sources
    from gpuhook.driver.model import Gpu, Inventory, Selection
    from gpuhook.kernel.undo import Undo
    from gpuhook.loader.cache import Cache
    from gpuhook.request.model import Request
    from gpuhook.settings.values import Settings

DEADLINE = 8.0  # seconds for everything inside the container: a runtime that waits for us may give up after ten
TURN = 5.0  # seconds of those to wait for another hook that works in the same tree
CLEAN_UP = 1.5  # seconds before that the worker itself gives up, to take back what it has done
TASK = "configuring the container"
DAMAGED = b"damaged"  # the worker's answer where it found a loader cache that it could not use
EVERYTHING, USUAL = Omit(), Image()


class Prepared(Value):
    """Everything that was decided, before anything is done. plan: its targets are those of the given image."""

    request: Request
    inventory: Inventory
    chosen: Selection
    plan: Plan
    omit: Omit
    with_rules: bool

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the container gets."""
        return self.chosen.gpus


def configure(request: Request, settings: Settings) -> int:
    """Give the container its GPUs and driver files. Returns 0; raises GpuhookError, and nothing was changed then."""
    harden()
    start_log(settings.cli_debug)
    carry_out(prepare(request, settings), settings)
    return 0


def prepare(
    request: Request, settings: Settings, host: Host | None = None, omit: Omit = EVERYTHING, image: Image = USUAL
) -> Prepared:
    """Look at the host and decide; root is not needed where the files are readable.

    Nothing is changed but, with `load_kmods`, what lacks of the driver's modules and nodes on the host.
    host: where the driver is, by default as the settings say; omit: what the caller does not want.
    Warnings and notes are said, but for the request's own. Raises GpuhookError.
    """
    host = host or host_of(settings)
    inventory, chosen, warnings = survey(request, settings, host, search_path())
    check_requirements(request, inventory, chosen.gpus)
    require_nodes(request, inventory)
    plan = build_plan(request, inventory, chosen, image, warnings, omit)
    for reference, text in plan.warnings:
        warn(reference, text)
    for text in plan.notes:
        if text not in inventory.missing:
            note(text)
    with_rules = not (settings.no_cgroups or in_user_namespace())
    return Prepared(request=request, inventory=inventory, chosen=chosen, plan=plan, omit=omit, with_rules=with_rules)


def require_nodes(request: Request, inventory: Inventory) -> None:
    """Refuse a driver without the nodes that it cannot do without (engine.md 2.12). Raises NodeMissing."""
    if inventory.wsl:  # without its only node there would be no inventory
        return
    there = [node.path for node in inventory.nodes]
    wanted = ["/dev/nvidiactl", *(["/dev/nvidia-modeset"] if "display" in request.capabilities else [])]
    for path in wanted:
        if path not in there:
            why = next((text for text in inventory.missing if text.startswith(f"{path} ")), f"{path} does not exist")
            raise NodeMissing(why, where=path, hint="nvidia-modprobe makes the driver's device nodes")


def harden() -> None:
    """Let nothing of the runtime's surroundings reach into the work: folder, umask, descriptors, tracing."""
    from gpuhook.kernel.libc import PR_SET_DUMPABLE, prctl

    posix.chdir("/")
    posix.umask(0o022)
    raise_limit_of_files()
    posix.closerange(3, 1 << 16)
    prctl(PR_SET_DUMPABLE, 0)


def host_of(settings: Settings) -> Host:
    """Where the settings say that the driver is. Raises ConfigBroken for a root that is no absolute path."""
    if settings.cli_root and not settings.cli_root.startswith("/"):
        raise ConfigBroken(
            f"the driver root {settings.cli_root!r} is no absolute path",
            where=f"{settings.source}: [nvidia-container-cli] root",
            hint="write the path from / on, or take the line out",
        )
    return Host(driver_root=settings.cli_root or "/", ldcache=settings.cli_ldcache or "/etc/ld.so.cache")


def search_path() -> str:
    """Our own PATH, in which the driver's programs are looked for after the usual folders."""
    return posix.environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")


def check_requirements(request: Request, inventory: Inventory, gpus: tuple[Gpu, ...]) -> None:
    """Hold the container's requirements against the driver and the GPUs. Raises BadRequirement or Unsatisfied.

    The driver's CUDA version is asked for only when there is a requirement, a GPU's architecture and brand only when a
    condition reaches them.
    """
    if not request.requirements:
        return
    from gpuhook.driver.query import cuda_version, gpu_facts
    from gpuhook.request.conditions import Facts, check

    def ask(place: int) -> tuple[str, str]:
        facts = gpu_facts(inventory, (gpus[place],))[gpus[place].bus_id]
        if facts.fault:
            raise DriverFault(f"GPU {names[place]} does not say its architecture: {facts.fault}", where="NVML")
        return facts.arch, facts.brand

    names = tuple(f"{gpu.index} ({gpu.uuid or gpu.bus_id}, {gpu.model})" for gpu in gpus)
    facts = Facts(cuda=cuda_version(inventory), driver=inventory.driver_version, gpus=names, ask=ask)
    check(request.requirements, facts)


def carry_out(prepared: Prepared, settings: Settings) -> None:
    """Do what was decided, its targets settled by a look at the container. Raises GpuhookError."""
    request = prepared.request
    container = Container(request.pid, request.rootfs)
    note(f"setting pid to {request.pid}")
    note(f"setting rootfs to {request.rootfs}")
    note(f"setting owner to {container.owner[0]}:{container.owner[1]}")
    sources = open_sources(prepared.plan, prepared.inventory.host.driver_root)
    undo_rules = _allow(prepared.plan, container) if prepared.with_rules else None

    end = monotonic() + DEADLINE

    def work(mended: Cache | None = None) -> bytes:
        give_up_after(max(0.1, end - CLEAN_UP - monotonic()), TASK)
        return _work(prepared, settings, container, sources, mended)

    try:
        if run_in_child(work, DEADLINE, TASK) == DAMAGED:
            mended = _mended(container, settings)
            run_in_child(lambda: work(mended), end - monotonic(), TASK)
    except BaseException:
        if undo_rules is not None:
            undo_rules()
        container.refuse_dead()  # it is the reason then, whatever failed for it
        raise


def _mended(container: Container, settings: Settings) -> Cache:
    """A cache in place of the container's damaged one; an empty one where none can be made."""
    from gpuhook.backend.ldconfig import rebuild
    from gpuhook.loader.cache import Cache

    return rebuild(container, settings) or Cache()


def _allow(draft: Plan, container: Container) -> Undo:
    from gpuhook.kernel.cgroup import allow, find_group

    devices = [(op.major, op.minor) for op in draft.ops if isinstance(op, Allow)]
    group = find_group(container.pid)
    container.refuse_dead()  # else the number, and so the group, could be another container's by now (AC-60)
    note(f"detected cgroupv{group.version}: {group.folder}")
    for major, minor in devices:
        note(f"allowing device {major}:{minor}")
    return allow(group, devices)


def _work(
    prepared: Prepared, settings: Settings, container: Container, sources: Sources, mended: Cache | None
) -> bytes:
    """The child's part: from setns on nothing is imported and no path is opened but through the tree.

    mended: what takes the place of a damaged loader cache. Returns DAMAGED, with nothing done, where that is needed.
    """
    import sys

    from gpuhook.backend.apply import Worker
    from gpuhook.backend.image import CACHE, exists, look, read_cache
    from gpuhook.backend.tree import Tree
    from gpuhook.backend.turn import wait_for_turn
    from gpuhook.kernel import libc

    sys.meta_path.clear()
    sys.path.clear()
    libc.setns(container.pidfd, libc.CLONE_NEWNS)
    libc.make_files_as(*container.owner)
    follow_parent()
    tree = Tree(container, write_into_volumes=settings.write_into_volumes)
    wait_for_turn(tree.root, TURN)
    cache, cache_bytes = read_cache(tree.root)
    if cache is None and exists(tree.root, CACHE):
        if mended is None:
            return DAMAGED
        cache = mended if mended.entries else None
    image = with_compat(look(tree.root, cache), tree.root, prepared.request, settings)
    note(f"setting libraries directory to {image.lib64}")
    plan = build_plan(prepared.request, prepared.inventory, prepared.chosen, image, omit=prepared.omit)
    Worker(tree, sources, cache, cache_bytes).apply(plan)
    return b""
