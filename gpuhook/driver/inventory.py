"""Everything that a host's driver offers, put together. Reads the host and changes nothing.

What is installed (libraries, programs, firmware) changes with a package only, and can be kept from start to start
under the key `identity`; what is present (GPUs, nodes, sockets) is looked at every time.
"""

from __future__ import annotations

from gpuhook.driver import tables
from gpuhook.driver.extras import find_files, find_firmware, find_proc_files, find_programs, find_sockets
from gpuhook.driver.gpus import find_gpus
from gpuhook.driver.libraries import find_helpers, find_libraries
from gpuhook.driver.machine import this_machine
from gpuhook.driver.mig import with_mig
from gpuhook.driver.model import Host, Installed, Inventory
from gpuhook.driver.nodes import common_nodes
from gpuhook.driver.version import is_wsl, module_version, open_root
from gpuhook.kernel.beneath import Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result


def take_inventory(host: Host, path: str = "", installed: Installed | None = None) -> Inventory:
    """All that the driver in this host's driver root offers.

    path: more folders to look for programs in, separated by colons; installed: what `find_installed` gave for the
    same `identity(host, path)`, if that was kept.
    Raises DriverRootWrong, DriverNotLoaded, DriverLibsMissing, DriverMismatch, DriverFault, NoAdapter, NotCovered.
    """
    with open_root(host) as root:
        if is_wsl(root):
            from gpuhook.driver.wsl import take_wsl_inventory  # nobody else pays for it

            return take_wsl_inventory(root, host, path)
        version = module_version(root, host)
        if installed is None or installed.driver_version != version:
            installed = _installed(root, host, version, path)
        gpus, odd_gpus = find_gpus(root)
        gpus = with_mig(root, host, gpus)
        nodes, no_nodes = common_nodes(root, host)
        sockets, no_sockets = find_sockets(root, host.mps)
        proc_files, no_files = find_proc_files(root)
    return Inventory(
        host=host,
        driver_version=version,
        gpus=gpus,
        libraries=installed.libraries,
        binaries=installed.binaries,
        firmware=installed.firmware,
        sockets=sockets,
        nodes=nodes,
        proc_files=proc_files,
        missing=(*odd_gpus, *no_nodes, *installed.missing, *no_sockets, *no_files),
        helpers=installed.helpers,
        files=installed.files,
    )


def find_installed(host: Host, path: str = "") -> Installed:
    """What is installed for the module that runs: the part of the inventory that may be kept. Raises as above."""
    with open_root(host) as root:
        return _installed(root, host, module_version(root, host), path)


def _installed(root: Root, host: Host, version: str, path: str) -> Installed:
    libraries, no_libraries = find_libraries(root, host.ldcache, version)
    libcuda = next((library.path for library in libraries if library.stem == "libcuda.so"), "")
    programs, no_programs = find_programs(root, path, tables.slot_folder(libcuda, version))
    firmware, no_firmware = find_firmware(root, version)
    return Installed(
        driver_version=version,
        libraries=libraries,
        binaries=programs,
        firmware=firmware,
        missing=(*no_libraries, *no_programs, *no_firmware),
        helpers=find_helpers(root, version),
        files=find_files(root),
    )


def identity(host: Host, path: str = "") -> tuple[object, ...]:
    """What changes whenever `find_installed` could give something else: plain numbers and texts, comparable.

    The driver root and its loader cache, the module's version, and every folder that is searched: installing,
    removing or replacing a file changes its folder's times. A file that is overwritten in place does not; packages
    and NVIDIA's installer never do that. Raises DriverRootWrong, DriverNotLoaded, DriverFault, NotCovered.
    """
    with open_root(host) as root:
        version = module_version(root, host)
        places = (
            "/",
            host.ldcache,
            *tables.library_folders(this_machine().triplets, version),
            *tables.slot_folders(version),
            *tables.PROGRAM_FOLDERS,
            *tables.FILE_FOLDERS,
            *(folder for folder in path.split(":") if folder.startswith("/")),
            tables.FIRMWARE_FOLDER.replace("{version}", version),
        )
        marks = tuple(_mark(root, place) for place in dict.fromkeys(places))
    return host.driver_root, host.ldcache, version, path, marks


def _mark(root: Root, place: str) -> tuple[int, ...]:
    try:
        status: stat_result = root.stat(place)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
