"""The driver of Windows as WSL2 shows it: one node, libraries in a folder of WSL's, more in folders of Windows.

There is no kernel module and no procfs. Which GPUs there are only NVML knows (query.with_gpus); libdxcore, which
nvidia-container-cli asks for adapters, is not loaded: the folders of Windows' drivers are looked through instead, and
what all NVIDIA drivers in there have is given, of which the container's libdxcore picks the one in use
(engine.md 7.1).
"""

from __future__ import annotations

import posix

from gpuhook.driver import tables
from gpuhook.driver.extras import find_files, find_programs, find_sockets
from gpuhook.driver.machine import this_machine
from gpuhook.driver.model import Host, Inventory, Library, Node
from gpuhook.driver.version import WSL_NODE
from gpuhook.kernel.files import CHAR, FORMAT, is_regular, kind, read_file
from gpuhook.loader.elf import BadElf, read_elf
from gpuhook.refusals import NoAdapter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.beneath import Root

LIBRARIES, STORE = "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers"
COMPONENTS = (
    "libcuda.so.1.1",
    "libcuda_loader.so",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ml_loader.so",
    "libnvdxgdmal.so.1",
    "nvidia-smi",
    "nvcubins.bin",
)
MOST_DRIVERS = 8  # versions that Windows has kept; the newest come first
_MOST_FOLDERS, _MOST_NAMES = 1 << 14, 4096
_MISC = 10  # the major that dxg, as a misc device, has
_HINT = "install NVIDIA's driver in Windows, not in WSL; then `wsl --update` and `wsl --shutdown`"


def take_wsl_inventory(root: Root, host: Host, path: str = "") -> Inventory:
    """All that Windows' driver offers, but its version and GPUs. path: more folders to look for programs in.

    Raises NoAdapter where WSL has no NVIDIA driver.
    """
    node = _node(root, host)
    drivers = _drivers(root)
    if not drivers:
        raise NoAdapter(
            "WSL environment detected but no adapters were found", where=f"{STORE} has no NVIDIA driver", hint=_HINT
        )
    libraries, odd = _libraries(root)
    if not any(library.stem == tables.WSL_ALWAYS for library in libraries):
        raise NoAdapter(f"WSL environment detected, but it has no {tables.WSL_ALWAYS}", where=LIBRARIES, hint=_HINT)
    first = next((folder for folder, names in drivers if "nvidia-smi" in names), LIBRARIES)
    programs, no_programs = find_programs(root, path, first)
    sockets, no_sockets = find_sockets(root, host.mps)
    return Inventory(
        host=host,
        driver_version="",
        gpus=(),
        libraries=libraries,
        binaries=programs,
        sockets=sockets,
        nodes=(node,),
        missing=(*odd, *no_programs, *no_sockets),
        files=find_files(root),
        wsl=True,
        store=tuple(f"{folder}/{name}" for folder, names in drivers for name in names),
    )


def _node(root: Root, host: Host) -> Node:
    """/dev/dxg, of the number that the kernel gives it where it says so."""
    try:
        status = root.stat(WSL_NODE)
    except OSError as error:
        raise NoAdapter(f"{WSL_NODE} cannot be looked at: {error.strerror}", where=WSL_NODE, hint=_HINT) from error
    number = (posix.major(status.st_rdev), posix.minor(status.st_rdev))
    known = _misc_minor(host)
    if status.st_mode & FORMAT != CHAR or number[0] != _MISC or known not in (-1, number[1]):
        what = f"device {number[0]}:{number[1]}" if status.st_mode & FORMAT == CHAR else kind(status.st_mode)
        raise NoAdapter(f"{WSL_NODE} is {what}, not WSL's device", where=WSL_NODE, hint=_HINT)
    return Node(path=WSL_NODE, major=number[0], minor=number[1])


def _misc_minor(host: Host) -> int:
    """The minor of dxg in /proc/misc, -1 where that does not say it."""
    try:
        text = read_file(f"{host.proc}/misc", 1 << 16)[0].decode("utf-8", "replace")
    except OSError:
        return -1
    rows = (line.split() for line in text.split("\n"))
    return next((int(row[0]) for row in rows if len(row) == 2 and row[1] == "dxg" and row[0].isdecimal()), -1)


def _drivers(root: Root) -> list[tuple[str, list[str]]]:
    """The folders of NVIDIA's drivers in Windows' store, newest first, each with those of COMPONENTS that it has."""
    try:
        names = [name for name in root.listdir(STORE, _MOST_FOLDERS) if name[:2].lower() == "nv"]
    except OSError:
        return []
    found = []
    for folder in (f"{STORE}/{name}" for name in names):
        there = [name for name in COMPONENTS if _is_regular(root, f"{folder}/{name}")]
        if there:
            found.append((root.stat(folder).st_mtime_ns, folder, there))
    return [(folder, there) for _, folder, there in sorted(found, reverse=True)[:MOST_DRIVERS]]


def _is_regular(root: Root, path: str) -> bool:
    try:
        return is_regular(root.stat(path, follow=False).st_mode)
    except OSError:
        return False


def _libraries(root: Root) -> tuple[tuple[Library, ...], tuple[str, ...]]:
    """The libraries of the tables in WSL's folder, of any version, and dxcore; and what is missing or odd."""
    try:
        names = root.listdir(LIBRARIES, _MOST_NAMES)
    except OSError as error:
        return (), (f"{LIBRARIES}: {error.strerror}",)
    found: list[Library] = []
    missing: list[str] = []
    for stem in (*tables.STEMS, tables.WSL_ALWAYS):
        judged = [_judge(root, stem, f"{LIBRARIES}/{name}") for name in names if tables.stem_of(name) == stem]
        good = [each for each in judged if isinstance(each, Library)]
        missing += [each for each in judged if isinstance(each, str)]
        if good:  # WSL has copies under several names; programs ask for the SONAME
            found.append(next((each for each in good if each.path.endswith(f"/{each.soname}")), good[0]))
        else:
            missing.append(f"library {stem}: not installed")
    return tuple(found), tuple(missing)


def _judge(root: Root, stem: str, path: str) -> Library | str:
    """The library at this path, or why it is none."""
    try:
        fd = root.open_regular(path)
        try:
            real, elf = root.path_of(fd), read_elf(fd)
        finally:
            posix.close(fd)
    except (OSError, BadElf) as error:
        return f"{path}: {error}"
    name = real.rpartition("/")[2]
    if not this_machine().runs(elf.machine, elf.bits) or elf.bits != 64 or tables.stem_of(name) != stem:
        return f"{path}: it is no {stem} for this machine"
    fit = (elf.soname == stem or elf.soname.startswith(f"{stem}.")) and "/" not in elf.soname
    return Library(stem=stem, path=real, soname=elf.soname if fit and elf.soname.isprintable() else name, bits=64)
