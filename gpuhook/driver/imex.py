"""IMEX channels: nodes by which containers on several machines share GPU memory. Each is asked for by its number."""

from __future__ import annotations

from gpuhook.driver.model import Host, Node
from gpuhook.driver.nodes import character_majors, dynamic_node
from gpuhook.driver.version import open_root
from gpuhook.refusals import BadImex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.beneath import Root

FOLDER = "/dev/nvidia-caps-imex-channels"
DRIVER = "nvidia-caps-imex-channels"  # its name in /proc/devices
_SHOWN = 16


def find_channels(host: Host, numbers: tuple[int, ...]) -> tuple[Node, ...]:
    """The nodes of these channels, each of exactly the number that the running driver gives it.

    Raises BadImex for a channel that is not there, with those that are.
    """
    if not numbers:
        return ()
    majors = character_majors(host.proc)
    with open_root(host) as root:
        return tuple(_channel(root, majors, number) for number in numbers)


def channel_path(number: int) -> str:
    """The path of a channel's node."""
    return f"{FOLDER}/channel{number}"


def _channel(root: Root, majors: dict[int, str], number: int) -> Node:
    path = channel_path(number)
    found, why = dynamic_node(root, path, number, DRIVER, majors)
    if found is None:
        major = next((str(number) for number, name in majors.items() if name == DRIVER), "")
        raise BadImex(
            f"IMEX channel {number} was requested, and {why}; {_offer(root)}",
            where=path,
            hint=f"`mknod {path} c {major} {number}` makes it, the module option NVreg_CreateImexChannel0=1 channel 0"
            if major
            else f"the running driver has no IMEX channels (/proc/devices lacks {DRIVER}); it takes 550 or later",
        )
    return found


def _offer(root: Root) -> str:
    """What there is."""
    try:
        names = root.listdir(FOLDER, 1 << 16)
    except OSError:
        return "this host has no channel"
    numbers = [name.removeprefix("channel") for name in names if name.startswith("channel")]
    there = sorted(int(number) for number in numbers if number.isascii() and number.isdecimal() and len(number) <= 7)
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return f"this host has {', '.join(map(str, there[:_SHOWN]))}{more}" if there else "this host has no channel"
