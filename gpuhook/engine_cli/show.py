"""`info` and `list`: what the driver offers, exactly as nvidia-container-cli prints it (engine.md 6); or JSON."""

from __future__ import annotations

from gpuhook.backend.engine import search_path
from gpuhook.backend.log import tell_gpus
from gpuhook.backend.survey import Needs, may_change_host, take
from gpuhook.driver.model import Selection
from gpuhook.driver.query import GpuFacts, complete, cuda_version, gpu_facts, with_gpus
from gpuhook.driver.select import select
from gpuhook.driver.tables import LIBRARIES
from gpuhook.engine_cli.begin import begin, log_path
from gpuhook.engine_cli.command import say
from gpuhook.engine_cli.migs import channels, device_paths, global_paths, require_all
from gpuhook.note import warn
from gpuhook.plan.build import daemon_of
from gpuhook.refusals import DriverFault, DriverLibsMissing
from gpuhook.request.model import DeviceChoice
from gpuhook.settings.values import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.driver.model import Gpu, Inventory, Library, MigDevice
    from gpuhook.engine_cli.given import Given

    Facts = dict[str, GpuFacts]
    Blocks = dict[str, list[str]]

VERSIONS = ("NVRM version", "CUDA version")
COLUMNS = ("Device Index", "Device Minor", "Model", "Brand", "GPU UUID", "Bus Location", "Architecture")
UNKNOWN = GpuFacts(brand="Unknown")
CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
NOT_ASKED: list[str] = []


def show_info(top: Given, given: Given) -> int:
    """Print the versions and the GPUs; broken GPUs are left out with a warning. Raises GpuhookError."""
    inventory = _look(top, given)
    inventory = with_gpus(inventory) if inventory.wsl else inventory
    gpus = _working(inventory.gpus)
    facts = gpu_facts(inventory, gpus) if gpus else {}
    for gpu in gpus:
        if facts[gpu.bus_id].fault:
            _tell_broken(gpu, facts[gpu.bus_id].fault)
    gpus = tuple(gpu for gpu in gpus if not facts[gpu.bus_id].fault)
    if given.has("json"):
        _print_json(info_table(inventory, _cuda(inventory), facts))
        return 0
    rows = [_row(gpu, facts[gpu.bus_id]) for gpu in gpus]
    versions = (inventory.driver_version, _cuda(inventory))
    say(1, _csv(versions, rows) if given.has("csv") else _sections(versions, rows))
    return 0


def _look(top: Given, given: Given) -> Inventory:
    """The inventory; with --load-kmods after what lacks of modules and nodes was seen to."""
    host = begin(top, log_path(top))
    if not may_change_host(Settings(load_kmods=top.has("load-kmods"))):
        return take(host, search_path())
    made = () if top.has("no-create-imex-channels") else channels(given)
    return take(host, search_path(), Needs(capabilities=("compute", "display"), channels=made))


def _working(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    for gpu in gpus:
        if gpu.fault:
            _tell_broken(gpu, gpu.fault)
    return tuple(gpu for gpu in gpus if not gpu.fault)


def _tell_broken(gpu: Gpu, fault: str) -> None:
    warn(DriverFault.reference, f"GPU {gpu.index} ({gpu.uuid or gpu.bus_id}) is left out: {fault}")


def _cuda(inventory: Inventory) -> str:
    """The driver's CUDA version; "unknown" where the driver was installed without libcuda."""
    try:
        return cuda_version(inventory)
    except DriverLibsMissing as error:
        warn(error.reference, error.text)
        return "unknown"


def _row(gpu: Gpu, facts: GpuFacts) -> tuple[str, ...]:
    return (str(gpu.index), str(gpu.minor), gpu.model, facts.brand, gpu.uuid or facts.uuid, gpu.bus_id, facts.arch)


def _sections(versions: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    texts = [_section(VERSIONS, versions), *(_section(COLUMNS, row) for row in rows)]
    return "\n".join(texts)


def _section(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    return "".join(f"{label + ':':15} {value}\n" for label, value in zip(labels, values, strict=True))


def _csv(versions: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [VERSIONS, versions, (), COLUMNS, *rows]
    return "".join(f"{','.join(line)}\n" for line in lines)


def info_table(inventory: Inventory, cuda: str, facts: Facts) -> dict[str, object]:
    """What `info --json` prints: all GPUs, broken ones with their fault."""
    gpus = [gpu_table(gpu, facts.get(gpu.bus_id, UNKNOWN)) for gpu in inventory.gpus]
    return {"driver_version": inventory.driver_version, "cuda_version": cuda, "gpus": gpus}


def gpu_table(gpu: Gpu, facts: GpuFacts | None = None) -> dict[str, object]:
    """A GPU as JSON has it; facts: what NVML said of it, if it was asked."""
    table: dict[str, object] = {
        "index": gpu.index,
        "minor": gpu.minor,
        "uuid": gpu.uuid or (facts.uuid if facts else ""),
        "bus_id": gpu.bus_id,
        "model": gpu.model,
        "node": gpu.node.path if gpu.node else None,
        "fault": gpu.fault or (facts.fault if facts else ""),
        "mig_devices": [mig_table(device) for device in gpu.mig],
    }
    return {**table, "brand": facts.brand, "architecture": facts.arch} if facts else table


def mig_table(device: MigDevice) -> dict[str, object]:
    """A MIG device as JSON has it; "uuid" is empty where NVML was not asked."""
    table = {name: getattr(device, name) for name in device.fields()}
    return {**table, "capabilities": [each.path for each in device.capabilities]}


def show_list(top: Given, given: Given, count: int) -> int:
    """Print the driver's files, of each kind that was asked for. count: of words after `list`. Raises GpuhookError."""
    channels(given)  # a bad one is refused before anything is looked at
    everything = _means_everything(given, count)
    inventory = _look(top, given)
    choice = DeviceChoice(names=("all",) if everything else given.elements("device"), sources=("--device",))
    inventory = complete(inventory, choice)
    # Without any GPU the selection is not looked at (engine.md 3.1).
    selection, warnings = select(inventory, choice) if inventory.gpus else (Selection(gpus=()), ())
    for reference, text in warnings:
        warn(reference, text)
    tell_gpus(selection.gpus)
    blocks = _blocks(inventory, selection, choice.names, given, everything=everything)
    if given.has("json"):
        _print_json(list_table(inventory, selection.gpus, blocks))
    else:
        say(1, "".join(f"{path}\n" for paths in blocks.values() for path in paths))
    return 0


def _means_everything(given: Given, count: int) -> bool:
    """Whether all is to be listed: no word at all, or only one, which is an --imex-channel (engine.md 1.4)."""
    count -= sum(name == "json" for name, _ in given.options)
    return count == 0 or (count == 1 and given.has("imex-channel"))


def _blocks(
    inventory: Inventory, selection: Selection, names: tuple[str, ...], given: Given, *, everything: bool
) -> Blocks:
    """The paths of each kind that was asked for, in the order of printing."""

    def asked(option: str) -> bool:
        return everything or given.has(option)

    config, monitor = (require_all(given, option, names) for option in ("mig-config", "mig-monitor"))
    mig = () if config or monitor else selection.mig
    blocks: Blocks = {
        "devices": [*_nodes(inventory, selection.gpus), *device_paths(mig)] if asked("device") else NOT_ASKED,
        "imex_channels": [f"{CHANNEL}{number}" for number in channels(given)]
        if given.has("imex-channel")
        else NOT_ASKED,
        "mig_config": global_paths(inventory, selection, "config") if config else NOT_ASKED,
        "mig_monitor": global_paths(inventory, selection, "monitor") if monitor else NOT_ASKED,
        **_files(inventory, given, everything=everything),
    }
    return {name: paths for name, paths in blocks.items() if paths is not NOT_ASKED}


def _files(inventory: Inventory, given: Given, *, everything: bool) -> Blocks:
    """The blocks of plain files."""
    bits = (64, 32) if everything or given.has("compat32") else (64,)
    left_out = [name for name in ("persistenced", "fabricmanager") if given.has(f"no-{name}")]
    blocks = {
        "binaries": list(inventory.binaries),
        "libraries": [library.path for library in inventory.libraries if library.bits in bits],
        "ipcs": [path for path in inventory.sockets if daemon_of(path) not in left_out],
        "firmwares": [] if given.has("no-gsp-firmware") else list(inventory.firmware),
    }
    return {name: paths for name, paths in blocks.items() if everything or given.has(name)}


def _nodes(inventory: Inventory, gpus: tuple[Gpu, ...]) -> list[str]:
    """The common nodes, of which only UVM's must exist, and the GPUs' (engine.md 2.11); WSL2 has one for all."""
    if inventory.wsl:
        return [node.path for node in inventory.nodes]
    uvm = [node.path for node in inventory.nodes if node.path.startswith("/dev/nvidia-uvm")]
    return ["/dev/nvidiactl", *uvm, "/dev/nvidia-modeset", *(f"/dev/nvidia{gpu.minor}" for gpu in gpus)]


def list_table(inventory: Inventory, gpus: tuple[Gpu, ...], blocks: Blocks) -> dict[str, object]:
    """What `list --json` prints: the blocks that were asked for, GPUs and libraries with what is known of them."""
    table: dict[str, object] = {
        "driver_version": inventory.driver_version,
        "root": inventory.host.driver_root,
        **blocks,
    }
    if "devices" in blocks:
        table["gpus"] = [gpu_table(gpu) for gpu in gpus]
    if "libraries" in blocks:
        shown = blocks["libraries"]
        table["libraries"] = [library_table(each) for each in inventory.libraries if each.path in shown]
    return table


def library_table(library: Library) -> dict[str, object]:
    """A library as JSON has it, with the capability that brings it."""
    group = next((name for name, stems in LIBRARIES.items() if library.stem in stems), "")
    return {"path": library.path, "soname": library.soname, "bits": library.bits, "capability": group}


def _print_json(table: dict[str, object]) -> None:
    from json import dumps

    say(1, f"{dumps(table, indent=2, ensure_ascii=False)}\n")
