"""Device nodes of the running driver that are missing on the host, for `load-kmods` (engine.md 5.3).

Only a start that lacks something comes here. Nothing that exists is changed or replaced, and whatever fails is a note:
the start then fails, or does not, for the lack itself.
"""

from __future__ import annotations

import posix

from gpuhook.backend.kmods import load
from gpuhook.driver.imex import DRIVER as IMEX
from gpuhook.driver.imex import channel_path
from gpuhook.driver.nodes import COMMON, NVIDIA_MAJOR, character_drivers, major_of
from gpuhook.driver.version import FOLDER, open_root
from gpuhook.note import note
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.driver.model import Host, Inventory, MigDevice
    from gpuhook.kernel.beneath import Root

CHANNELS = 2048  # IMEX channels of a driver that does not say how many it has
_CHAR, _DEFAULT_MODE = 0o020000, 0o666


class Rights(Value):
    """Whose a node is to be, and its mode; modify: whether the administrator wants nodes to be made at all."""

    uid: int = 0
    gid: int = 0
    mode: int = _DEFAULT_MODE
    modify: bool = True


class Missing(Value):
    """A node to be made."""

    path: str
    major: int
    minor: int
    rights: Rights


def mend(inventory: Inventory, capabilities: tuple[str, ...], channels: tuple[int, ...]) -> bool:
    """Load what these capabilities need and make the nodes that are missing; whether anything has changed.

    channels: numbers of IMEX channels whose nodes are wanted. Nodes are made in the driver root's own /dev, with the
    numbers of the running driver and the owner and mode that the administrator gave it (NVreg_DeviceFile…).
    """
    host = inventory.host
    loaded = [load(host, module) for module in _modules(capabilities)]
    with open_root(host) as root:
        rights = _rights(root, f"{FOLDER}/params", "ModifyDeviceFiles")
        missing = [*_missing(root, inventory, capabilities, rights), *_channels(root, host, channels, rights)]
        made = [_make(root, node) for node in missing]
    return any((*loaded, *made))


def _modules(capabilities: tuple[str, ...]) -> Iterator[str]:
    if "compute" in capabilities or "video" in capabilities:
        yield "nvidia-uvm"
    if "display" in capabilities:
        yield "nvidia-modeset"


def _missing(root: Root, inventory: Inventory, capabilities: tuple[str, ...], rights: Rights) -> Iterator[Missing]:
    """The nodes that are to be there; those that are there stay as they are."""
    majors = {name: number for number, name in character_drivers(inventory.host.proc)}
    uvm = majors.get("nvidia-uvm", -1)
    for path, minor in COMMON:
        if "uvm" in path:
            if uvm >= 0:  # its nodes are everybody's, whatever the parameters say
                yield Missing(path=path, major=uvm, minor=minor, rights=Rights(modify=rights.modify))
        elif path == "/dev/nvidiactl" or ("nvidia-modeset" in majors and "display" in capabilities):
            yield Missing(path=path, major=NVIDIA_MAJOR, minor=minor, rights=rights)
    for gpu in inventory.gpus:
        if gpu.minor >= 0 and gpu.node is None:
            yield Missing(path=f"/dev/nvidia{gpu.minor}", major=NVIDIA_MAJOR, minor=gpu.minor, rights=rights)
        for device in gpu.mig:
            yield from _mig(root, device)


def _mig(root: Root, device: MigDevice) -> Iterator[Missing]:
    """The nodes of a MIG device that has not got all of them."""
    for each in device.capabilities if device.fault else ():
        if each.node is not None:
            rights = _rights(root, each.path, "DeviceFileModify")
            yield Missing(path=each.node.path, major=each.node.major, minor=each.node.minor, rights=rights)


def _channels(root: Root, host: Host, channels: tuple[int, ...], rights: Rights) -> Iterator[Missing]:
    """The wanted channels, if the driver has all of them: else the container is refused, and nothing is to stay."""
    major = major_of(host.proc, IMEX)
    count = _numbers(root, f"{FOLDER}/params").get("ImexChannelCount", CHANNELS)
    if major < 0 or max(channels, default=0) >= count:
        return
    for number in channels:
        yield Missing(path=channel_path(number), major=major, minor=number, rights=rights)


def _rights(root: Root, path: str, modify: str) -> Rights:
    """Owner and mode from a file of the driver. modify: its line that says whether nodes are to be made."""
    numbers = _numbers(root, path)
    return Rights(
        uid=numbers.get("DeviceFileUID", 0),
        gid=numbers.get("DeviceFileGID", 0),
        mode=numbers.get("DeviceFileMode", _DEFAULT_MODE) & 0o777,
        modify=numbers.get(modify, 1) == 1,
    )


def _numbers(root: Root, path: str) -> dict[str, int]:
    """The lines `Name: number` of a file, none where it cannot be read."""
    try:
        text = root.read(path, 1 << 16)[0].decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = [(label.strip(), value.strip()) for label, _, value in (line.partition(":") for line in text.split("\n"))]
    return {label: int(value) for label, value in pairs if value.isascii() and value.isdecimal() and len(value) < 10}


def _make(root: Root, node: Missing) -> bool:
    """Make one node where nothing stands; whether it was made."""
    if not node.rights.modify:
        note(f"{node.path} is not made: the driver's module is set not to have its nodes modified")
        return False
    before = posix.umask(0)
    try:
        return _make_in(root, node)
    except FileExistsError:  # the usual case; or something that is not ours to take away
        return False
    except OSError as error:
        note(f"{node.path} cannot be made: {error.strerror}")
        return False
    finally:
        posix.umask(before)


def _make_in(root: Root, node: Missing) -> bool:
    above, _, name = node.path.rpartition("/")
    folder = _folder(root, above)
    try:
        posix.mknod(name, _CHAR | node.rights.mode, posix.makedev(node.major, node.minor), dir_fd=folder)
        posix.chown(name, node.rights.uid, node.rights.gid, dir_fd=folder, follow_symlinks=False)
    finally:
        posix.close(folder)
    note(f"made the device node {node.path} ({node.major}:{node.minor})")
    _link(root, node)
    return True


def _folder(root: Root, path: str) -> int:
    """The folder of nodes; one below /dev is made."""
    flags = posix.O_PATH | posix.O_DIRECTORY
    try:
        return root.open(path, flags)
    except FileNotFoundError:
        above, _, name = path.rpartition("/")
        if above != "/dev":
            raise
    parent = root.open(above, flags)
    try:
        posix.mkdir(name, 0o755, dir_fd=parent)
    finally:
        posix.close(parent)
    return root.open(path, flags, follow=False)


def _link(root: Root, node: Missing) -> None:
    """The name by number that runtimes look for: /dev/char/MAJOR:MINOR, a relative link."""
    try:
        folder = root.open("/dev/char", posix.O_PATH | posix.O_DIRECTORY)
    except OSError:  # this /dev has no such folder
        return
    try:
        posix.symlink(f"../{node.path.removeprefix('/dev/')}", f"{node.major}:{node.minor}", dir_fd=folder)
    except OSError as error:
        note(f"/dev/char/{node.major}:{node.minor}: {error.strerror}")
    finally:
        posix.close(folder)
