"""Programs, firmware, sockets and procfs files of the driver. All of them are optional: what lacks is only noted."""

from __future__ import annotations

import posix
from posix import uname

from gpuhook.driver import tables
from gpuhook.driver.model import Host
from gpuhook.driver.version import FOLDER
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.files import FOLDER as S_FOLDER
from gpuhook.kernel.files import FORMAT, fault_of, is_regular, kind, trusted_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

Found = tuple[tuple[str, ...], tuple[str, ...]]  # paths, and what is missing with why

_SOCKET, _ESTALE = 0o140000, 116
_MOST_FIRMWARE = 1000
_LARGEST_PROC_FILE = 1 << 16  # bytes


def find_programs(root: Root, path: str = "", first: str = "") -> Found:
    """The driver's programs by their resolved paths, in table order.

    path: folders separated by colons, searched after the usual ones; relative ones do not count.
    first: a folder that comes before all of them, "" for none.
    """
    own = [first] if first else []
    folders = [*own, *tables.PROGRAM_FOLDERS, *(folder for folder in path.split(":") if folder.startswith("/"))]
    found: list[str] = []
    missing: list[str] = []
    for name in tables.PROGRAMS:
        place, why = _program(root, name, folders)
        if place:
            found.append(place)
        else:
            missing.append(f"program {name}: {why}")
    return tuple(found), tuple(missing)


def _program(root: Root, name: str, folders: list[str]) -> tuple[str, str]:
    why = "not installed"
    for folder in dict.fromkeys(folders):
        try:
            place, mode = root.resolve(f"{folder}/{name}"), root.stat(f"{folder}/{name}").st_mode
        except OSError:  # the usual case: it is in another folder
            continue
        if not is_regular(mode):
            why = f"{place} is {kind(mode)}, not a regular file"
        elif place.rpartition("/")[2] not in tables.PROGRAMS:
            why = f"{folder}/{name} leads to {place}, another name"
        else:
            return place, ""
    return "", why


def find_firmware(root: Root, version: str) -> Found:
    """The GSP firmware of this driver version, sorted; regular files only."""
    folder = tables.FIRMWARE_FOLDER.replace("{version}", version)
    try:
        names = root.listdir(folder, _MOST_FIRMWARE)
    except OSError as error:
        return (), (f"firmware {folder}: {error.strerror}",)
    paths = [f"{folder}/{name}" for name in names if name.startswith("gsp") and name.endswith(".bin")]
    found = tuple(path for path in paths if _is_regular(root, path))
    return found, tuple(f"firmware {path}: not a regular file" for path in paths if path not in found)


def find_files(root: Root) -> tuple[tuple[str, str], ...]:
    """The small files that lead to the driver (tables.HOST_FILES): where containers get each, and where it is."""
    machine = uname().machine
    targets = dict.fromkeys(target for files in tables.HOST_FILES.values() for target in files)
    found = ((target, _first_regular(root, tables.file_places(target, machine))) for target in targets)
    return tuple((target, place) for target, place in found if place)


def _first_regular(root: Root, paths: tuple[str, ...]) -> str:
    """The first of these that is a regular file, resolved; "" for none."""
    for path in paths:
        if _is_regular(root, path):
            return root.resolve(path)
    return ""


def find_sockets(root: Root, mps: str = Host.mps) -> Found:
    """The sockets of persistenced and fabricmanager and the MPS folder, by their resolved paths."""
    found: list[str] = []
    missing: list[str] = []
    for path, fault_of_it in (*((path, _socket_fault) for path in tables.SOCKETS), (mps, _mps_fault)):
        try:
            place, status = _place_and_status(root, path)
        except OSError as error:
            missing.append(f"{path}: {error.strerror}")
            continue
        fault = fault_of_it(status)
        if fault:
            missing.append(f"{path}: {fault}")
        else:
            found.append(place)
    return tuple(found), tuple(missing)


def _place_and_status(root: Root, path: str) -> tuple[str, stat_result]:
    """Where something is, and what: of one and the same open file, since others than root may exchange these names.

    A link of this name is not followed; links of folders on the way are.
    """
    fd = root.open(path, follow=False)
    try:
        place = root.path_of(fd)
        if place.rpartition("/")[2] != path.rpartition("/")[2]:
            raise OSError(_ESTALE, "it was exchanged while it was looked at", path)
        return place, posix.fstat(fd)
    finally:
        posix.close(fd)


def _socket_fault(status: stat_result) -> str:
    return "" if status.st_mode & FORMAT == _SOCKET else f"it is {kind(status.st_mode)}, not a socket"


def _mps_fault(status: stat_result) -> str:
    """Why the MPS folder is not given: it lies in /tmp, where any user can make a folder or a link of this name."""
    if status.st_mode & FORMAT != S_FOLDER:
        return f"it is {kind(status.st_mode)}, not a folder"
    if status.st_uid not in trusted_owners():
        return fault_of(status, trusted_owners())
    return ""


def find_proc_files(root: Root) -> tuple[tuple[tuple[str, bytes], ...], tuple[str, ...]]:
    """Name and content of the files of /proc/driver/nvidia that a container gets a copy of."""
    answers = {name: _proc_file(root, name) for name in tables.PROC_FILES}
    found = tuple((name, content) for name, content in answers.items() if isinstance(content, bytes))
    return found, tuple(fault for fault in answers.values() if isinstance(fault, str))


def _proc_file(root: Root, name: str) -> bytes | str:
    """The content, or why there is none; older drivers lack some."""
    try:
        return root.read(f"{FOLDER}/{name}", _LARGEST_PROC_FILE)[0]
    except OSError as error:
        return f"{FOLDER}/{name}: {error.strerror}"


def _is_regular(root: Root, path: str) -> bool:
    try:
        return is_regular(root.stat(path).st_mode)
    except OSError:
        return False
