"""What `list` says of MIG and IMEX: the paths of capability files and their nodes (engine.md 3.2 to 3.4, 6.2)."""

from __future__ import annotations

from gpuhook.driver.mig import FOLDER, NODES, Capabilities
from gpuhook.driver.mignames import is_mig
from gpuhook.driver.version import open_root
from gpuhook.engine_cli.given import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.driver.model import Inventory, MigDevice, Selection
    from gpuhook.engine_cli.given import Given

HIGHEST_CHANNEL = 1_048_575
HINT = f"channels are decimal numbers from 0 to {HIGHEST_CHANNEL}, separated by commas"


def channels(given: Given) -> tuple[int, ...]:
    """The IMEX channels that were asked for, in their order. Raises Refusal."""
    for text in given.elements("imex-channel"):
        if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= HIGHEST_CHANNEL):
            raise Refusal("error parsing IMEX info", f"unsupported IMEX channel value: {text}", hint=HINT)
    return tuple(dict.fromkeys(int(text) for text in given.elements("imex-channel")))


def require_all(given: Given, option: str, names: tuple[str, ...]) -> bool:
    """Whether --mig-config or --mig-monitor was given, which can only be for `all` (engine.md 3.3). Raises Refusal."""
    elements = given.elements(option)
    if elements and elements[0].lower() != "all":  # what follows `all` is not looked at
        raise Refusal(f"{option} error", f"{elements[0]}: only 'all' devices are currently supported")
    everything = any(name.strip().lower() == "all" for name in names)
    if elements and any(map(is_mig, names)) and not everything:
        raise Refusal(f"{option} error", f"all: cannot enable {option} with specific MIG devices selected")
    return bool(elements)


def device_paths(devices: tuple[MigDevice, ...]) -> list[str]:
    """For each MIG device: the access files of GPU instance and compute instance, then their nodes if any."""
    paths = []
    for device in devices:
        paths += [capability.path for capability in device.capabilities]
        paths += [capability.node.path for capability in device.capabilities if capability.node]
    return paths


def global_paths(inventory: Inventory, selection: Selection, what: str) -> list[str]:
    """What is needed to configure or to monitor MIG (what: "config", "monitor"); nothing without a GPU that can."""
    able = [gpu for gpu in selection.gpus if gpu.mig_capable]
    if not able:
        return []
    with open_root(inventory.host) as root:
        look = Capabilities(root, inventory.host)
        capability, _ = look.capability(f"mig/{what}")
        paths = [f"{FOLDER}/mig/{what}"]
        if capability and capability.node:
            paths.append(capability.node.path)
        for gpu in able:
            paths.append(f"{FOLDER}/gpu{gpu.minor}")
            if look.major >= 0:
                prefix = f"gpu{gpu.minor}/"
                minors = [minor for name, minor in look.minors.items() if name.startswith(prefix)]
                paths += [NODES, *(f"{NODES}/nvidia-cap{minor}" for minor in minors)]
    return paths
