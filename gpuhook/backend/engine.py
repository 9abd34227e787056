"""The embedded engine: what nvidia-container-cli does, in this process and a forked child of it.

The order (threats.md 4.4): look at the host, decide, hold the container, take the sources, write the device rules,
then enter the container's mount namespace in a child that has everything imported, and carry the plan out. Nothing
changes before the plan is complete; after a failure nothing stays.
"""

from __future__ import annotations

import posix

from gpuhook.backend.container import Container
from gpuhook.backend.sources import open_sources
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.kept import installed
from gpuhook.driver.model import Host
from gpuhook.driver.select import asks_unknown_uuid, select
from gpuhook.errors import DriverFault, KernelTooOld, NotCovered
from gpuhook.kernel.child import run_in_child
from gpuhook.kernel.files import in_user_namespace
from gpuhook.note import note, warn
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Allow, Image, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.backend.sources import Source
    from gpuhook.driver.model import Gpu, Inventory
    from gpuhook.kernel.undo import Undo
    from gpuhook.request.model import Request
    from gpuhook.settings.values import Settings

DEADLINE = 10.0  # seconds for everything inside the container


def configure(request: Request, settings: Settings) -> int:
    """Give the container its GPUs and driver files. Returns 0; raises GpuhookError, and nothing was changed then."""
    harden()
    refuse_not_covered(request)
    host, path = host_of(settings), _search_path()
    inventory = take_inventory(host, path, installed(host, path))
    if asks_unknown_uuid(inventory, request.devices):
        from gpuhook.driver.query import with_uuids

        inventory = with_uuids(inventory)
    gpus, warnings = select(inventory, request.devices)
    check_requirements(request, inventory, gpus)
    draft = build_plan(request, inventory, gpus, Image(), (*request.warnings, *warnings))
    for reference, text in draft.warnings:
        warn(reference, text)
    for text in draft.notes:
        note(text)
    with_rules = not (settings.no_cgroups or in_user_namespace())
    carry_out(draft, request, inventory, gpus, settings, with_rules=with_rules)
    return 0


def harden() -> None:
    """Let nothing of the runtime's surroundings reach into the work: folder, umask, descriptors, tracing."""
    from gpuhook.kernel.libc import PR_SET_DUMPABLE, prctl

    posix.chdir("/")
    posix.umask(0o022)
    posix.closerange(3, 1 << 16)
    prctl(PR_SET_DUMPABLE, 0)


def host_of(settings: Settings) -> Host:
    """Where the settings say that the driver is."""
    return Host(driver_root=settings.cli_root or "/", ldcache=settings.cli_ldcache or "/etc/ld.so.cache")


def _search_path() -> str:
    return posix.environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")


def refuse_not_covered(request: Request) -> None:
    """Say clearly what this engine cannot do. Raises NotCovered."""
    for wanted, variable in (
        (request.mig_config, "NVIDIA_MIG_CONFIG_DEVICES"),
        (request.mig_monitor, "NVIDIA_MIG_MONITOR_DEVICES"),
        (request.imex_channels, "NVIDIA_IMEX_CHANNELS"),
    ):
        if wanted:
            raise NotCovered(
                f"the embedded engine does not serve {variable} yet",
                where=variable,
                hint="install nvidia-container-cli (package libnvidia-container-tools), which does",
            )


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


def carry_out(
    draft: Plan,
    request: Request,
    inventory: Inventory,
    gpus: tuple[Gpu, ...],
    settings: Settings,
    *,
    with_rules: bool,
) -> None:
    """Do what the draft says, its targets settled by a look at the container. Raises GpuhookError."""
    container = Container(request.pid, request.rootfs)
    sources = _take(draft, inventory)
    undo_rules = _allow(draft, request.pid) if with_rules else None

    def work() -> bytes:
        return _work(request, inventory, gpus, settings, container, sources)

    try:
        run_in_child(work, DEADLINE, "configuring the container")
    except BaseException:
        if undo_rules is not None:
            undo_rules()
        raise


def _take(draft: Plan, inventory: Inventory) -> dict[str, Source]:
    try:
        return open_sources(draft, inventory.host.driver_root)
    except OSError as error:
        if error.errno in (38, 1):  # ENOSYS, or EPERM from a seccomp filter that does not know the call
            raise KernelTooOld(
                f"{error.strerror}: Linux {posix.uname().release} lacks a call that the embedded engine needs (5.12)",
                hint="install nvidia-container-cli, which works on older kernels",
            ) from error
        raise


def _allow(draft: Plan, pid: int) -> Undo:
    from gpuhook.kernel.cgroup import allow, find_group

    devices = [(op.major, op.minor) for op in draft.ops if isinstance(op, Allow)]
    return allow(find_group(pid), devices)


def _work(
    request: Request,
    inventory: Inventory,
    gpus: tuple[Gpu, ...],
    settings: Settings,
    container: Container,
    sources: dict[str, Source],
) -> bytes:
    """The child's part: from setns on nothing is imported and no path is opened but through the tree."""
    import sys

    from gpuhook.backend.apply import Worker
    from gpuhook.backend.image import look, read_cache
    from gpuhook.backend.tree import Tree
    from gpuhook.kernel import libc

    sys.meta_path.clear()
    sys.path.clear()
    libc.setns(container.pidfd, libc.CLONE_NEWNS)
    libc.make_files_as(*container.owner)
    tree = Tree(container, write_into_volumes=settings.write_into_volumes)
    cache, cache_bytes = read_cache(tree.root)
    plan = build_plan(request, inventory, gpus, look(tree.root, cache))
    Worker(tree, sources, cache, cache_bytes).apply(plan)
    return b""
