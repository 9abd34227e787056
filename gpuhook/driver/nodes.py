"""The driver's device nodes: each must be a character device of exactly the number that it should have."""

from __future__ import annotations

import posix

from gpuhook.driver.model import Host, Node
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.files import CHAR, FORMAT, kind, read_file

NVIDIA_MAJOR = 195  # assigned to the driver: Documentation/admin-guide/devices.txt
COMMON = (("/dev/nvidiactl", 255), ("/dev/nvidia-uvm", 0), ("/dev/nvidia-uvm-tools", 1), ("/dev/nvidia-modeset", 254))
_DYNAMIC = (*range(234, 255), *range(384, 512))  # majors that the kernel hands out

Looked = tuple["Node | None", str]


def common_nodes(root: Root, host: Host) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """The nodes that belong to no GPU: nvidiactl, uvm, uvm-tools, modeset; and for those left out, why."""
    majors = character_majors(host.proc)
    looked = [
        dynamic_node(root, path, minor, "nvidia-uvm", majors)
        if "uvm" in path
        else node(root, path, NVIDIA_MAJOR, minor)
        for path, minor in COMMON
    ]
    return tuple(found for found, _ in looked if found), tuple(why for _, why in looked if why)


def node(root: Root, path: str, major: int, minor: int) -> Looked:
    """The node at `path` (links inside the root are followed), or None and why it cannot be used."""
    found, why = _number(root, path)
    if why or found == (major, minor):
        return (None, why) if why else (Node(path=path, major=major, minor=minor), "")
    return None, f"{path} is device {found[0]}:{found[1]}, not {major}:{minor}"


def character_drivers(proc: str) -> list[tuple[int, str]]:
    """The major numbers of character devices and their drivers' names, from PROC/devices; several share a number."""
    try:
        text = read_file(f"{proc}/devices", 1 << 16)[0].decode("utf-8", "replace")
    except OSError:
        return []
    characters = text.partition("Block devices:")[0]
    pairs = (line.split(None, 1) for line in characters.split("\n"))
    return [(int(pair[0]), pair[1].strip()) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()]


def character_majors(proc: str) -> dict[int, str]:
    """The same by number; empty without PROC/devices."""
    return dict(character_drivers(proc))


def major_of(proc: str, driver: str) -> int:
    """The major number of a driver's character devices by its name in PROC/devices; -1 where it has none."""
    return next((number for number, name in character_drivers(proc) if name == driver), -1)


def dynamic_node(root: Root, path: str, minor: int, driver: str, majors: dict[int, str]) -> Looked:
    """The node of a driver whose major is dynamic: /proc/devices has it; where that is silent it must be nobody's.

    The driver root may be another container's; it must not get us to grant some other device.
    """
    (major, _minor), why = _number(root, path)
    if why:
        return None, why
    expected = [number for number, name in majors.items() if name == driver]
    if expected and major not in expected:
        return None, f"{path} has the major {major}, but /proc/devices gives {driver} {expected[0]}"
    if not expected and (major in majors or major not in _DYNAMIC):
        return None, f"{path} has the major {major}, which belongs to {majors.get(major, 'another driver')}"
    return node(root, path, major, minor)


def _number(root: Root, path: str) -> tuple[tuple[int, int], str]:
    """Major and minor of the character device at `path`, or why there is none."""
    try:
        status = root.stat(path)
    except FileNotFoundError:
        return (-1, -1), f"{path} does not exist"
    except OSError as error:
        return (-1, -1), f"{path} cannot be looked at: {error.strerror}"
    if status.st_mode & FORMAT != CHAR:
        return (-1, -1), f"{path} is {kind(status.st_mode)}, not a character device"
    return (posix.major(status.st_rdev), posix.minor(status.st_rdev)), ""
