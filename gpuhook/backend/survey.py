"""A look at the host for one request: what the driver offers, what of it the container gets.

Where `load-kmods` allows it, modules that are not loaded and nodes that are missing are seen to on the way.
"""

from __future__ import annotations

import posix

from gpuhook.backend.log import tell_gpus, tell_inventory
from gpuhook.driver.imex import channel_path, find_channels
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.kept import installed
from gpuhook.driver.mig import access_numbers
from gpuhook.driver.select import asks_nvml, select
from gpuhook.driver.version import open_root
from gpuhook.errors import UnknownDevice
from gpuhook.kernel.files import in_user_namespace
from gpuhook.refusals import DriverNotLoaded
from gpuhook.request.devices import short, split_words
from gpuhook.request.imex import check_channels
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.driver.model import Host, Inventory, Selection
    from gpuhook.request.model import Request
    from gpuhook.settings.values import Settings

    Warnings = tuple[tuple[str, str], ...]

MIG_FILES = {"NVIDIA_MIG_CONFIG_DEVICES": "mig/config", "NVIDIA_MIG_MONITOR_DEVICES": "mig/monitor"}


class Needs(Value):
    """What a container needs of the host's nodes beyond the GPUs'. channels: numbers of IMEX channels."""

    capabilities: tuple[str, ...] = ()
    channels: tuple[int, ...] = ()


def survey(request: Request, settings: Settings, host: Host, path: str) -> tuple[Inventory, Selection, Warnings]:
    """The inventory, what this request selects of it, and warnings. path: folders to look for programs in.

    Asks NVML where nothing else can tell what was asked for. Raises GpuhookError.
    """
    numbers = check_channels(request.imex_channels)
    makes_channels = () if settings.disable_imex_channel_creation else numbers
    needs = Needs(capabilities=request.capabilities, channels=makes_channels)
    inventory = take(host, path, needs if may_change_host(settings) else None)
    if asks_nvml(inventory, request.devices) or (inventory.wsl and request.requirements):
        from gpuhook.driver.query import complete

        inventory = complete(inventory, request.devices)
    chosen, warnings = select(inventory, request.devices)
    access = mig_access(request, inventory, chosen)
    chosen = chosen.with_(access=access, channels=find_channels(host, numbers))
    tell_gpus(chosen.gpus)
    return inventory, chosen, warnings


def may_change_host(settings: Settings) -> bool:
    """Whether modules may be loaded and nodes made: as root of the machine only (engine.md 5.3)."""
    return settings.load_kmods and posix.geteuid() == 0 and not in_user_namespace()


def take(host: Host, path: str, needs: Needs | None = None) -> Inventory:
    """The host's inventory; needs: what to load and make first where it lacks, None for nothing. Raises as it does."""
    try:
        inventory = take_inventory(host, path, installed(host, path))
    except DriverNotLoaded:
        if needs is None or not _loaded(host):
            raise
        inventory = take_inventory(host, path, installed(host, path))
    if needs is not None and not inventory.wsl and _lacks(inventory, needs):
        from gpuhook.backend.hostnodes import mend

        if mend(inventory, needs.capabilities, needs.channels):
            inventory = take_inventory(host, path, installed(host, path))
    tell_inventory(inventory)
    return inventory


def _loaded(host: Host) -> bool:
    """Load the driver's module; whether it has come."""
    from gpuhook.backend.kmods import load

    return load(host, "nvidia")


def _lacks(inventory: Inventory, needs: Needs) -> bool:
    """Whether a node is missing that this container could need; asked at every start, and mostly answered with no."""
    there = [node.path for node in inventory.nodes]
    wanted = ["/dev/nvidiactl"]
    if "compute" in needs.capabilities or "video" in needs.capabilities:
        wanted += ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    if "display" in needs.capabilities:
        wanted.append("/dev/nvidia-modeset")
    return (
        any(path not in there for path in wanted)
        or any(gpu.minor >= 0 and gpu.node is None for gpu in inventory.gpus)
        or any(device.fault and device.capabilities for gpu in inventory.gpus for device in gpu.mig)
        or _lacks_channel(inventory.host, needs.channels)
    )


def _lacks_channel(host: Host, channels: tuple[int, ...]) -> bool:
    if not channels:
        return False
    with open_root(host) as root:
        for number in channels:
            try:
                root.stat(channel_path(number))
            except OSError:  # noqa: PERF203  # one channel is the usual case
                return True
    return False


def mig_access(request: Request, inventory: Inventory, chosen: Selection) -> tuple[tuple[int, int], ...] | None:
    """The numbers of the nodes that configure or monitor MIG, None where that is not asked for or no GPU can do MIG.

    That the container may ask is the request room's to decide. Raises UnknownDevice for anything but `all`, and beside
    single MIG devices (engine.md 3.3).
    """
    values = (request.mig_config, request.mig_monitor)
    asked = [(variable, value) for variable, value in zip(MIG_FILES, values, strict=True) if value]
    for variable, value in asked:
        _require_all(variable, value, chosen)
    able = tuple(gpu for gpu in chosen.gpus if gpu.mig_capable)
    if not asked or not able:
        return None
    with open_root(inventory.host) as root:
        return access_numbers(root, inventory.host, able, [MIG_FILES[variable] for variable, _ in asked])


def _require_all(variable: str, value: str, chosen: Selection) -> None:
    if any(word.lower() != "all" for word in split_words(value)):
        raise UnknownDevice(
            f"{variable} is {short(value)}, and only 'all' devices are currently supported",
            where=variable,
            hint="use all",
        )
    if chosen.mig and not chosen.everything:
        raise UnknownDevice(
            f"{variable} cannot be used with specific MIG devices selected",
            where=variable,
            hint="ask for whole GPUs, or for all",
        )
