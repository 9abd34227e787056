"""Why the driver's core libraries are not there: another version of them is, or nothing is. Read only on failure."""

from __future__ import annotations

import posix
from time import time

from gpuhook.driver import tables
from gpuhook.driver.version import VERSION_FILE, is_version
from gpuhook.loader.elf import machine_of
from gpuhook.refusals import DriverLibsMissing, DriverMismatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.driver.libraries import Search
    from gpuhook.kernel.beneath import Root

_MOST_NAMES = 50_000
_SHOWN = 4


def refuse(search: Search, absent: list[str]) -> None:
    """Raise DriverMismatch or DriverLibsMissing for a search that did not find these core libraries.

    Returns where one core library alone is not installed and the other one is fit.
    """
    all_absent = len(absent) == len(tables.CORE)
    others = sorted(path for path, stem in search.others.items() if stem in absent) or _linked(search, absent)
    if not others and all_absent:
        others = _listed(search, absent)
    if others:
        raise _mismatch(search, others)
    if all_absent:
        raise _not_installed(search)


def _linked(search: Search, absent: list[str]) -> list[str]:
    """Where the SONAME links of these stems lead in the searched folders: cheap, and right where ldconfig ran."""
    paths = []
    for folder in search.folders():
        for stem in absent:
            try:
                paths.append(search.root.resolve(f"{folder}/{stem}.1"))
            except OSError:  # noqa: PERF203  # the usual case
                continue
    return _native(search, paths)


def _listed(search: Search, absent: list[str]) -> list[str]:
    """Native libraries of these stems in the searched folders, whatever their version."""
    paths = []
    for folder in search.folders():
        try:
            names = search.root.listdir(folder, _MOST_NAMES)
        except OSError:
            continue
        paths += [f"{folder}/{name}" for name in names if tables.stem_of(name) in absent]
    return _native(search, paths)


def _native(search: Search, paths: list[str]) -> list[str]:
    """Those that are libraries of this machine and bear a version: the other half of some driver."""
    versioned = [path for path in dict.fromkeys(paths) if version_of(path.rpartition("/")[2])]
    return [path for path in versioned if _machine(search.root, path) == search.machine.elf[0]]


def version_of(file_name: str) -> str:
    """The driver version at the end of a library's file name, or ""."""
    version = file_name.partition(".so.")[2]
    return version if is_version(version) else ""


def _machine(root: Root, path: str) -> int | None:
    try:
        fd = root.open_regular(path)
    except OSError:
        return None
    try:
        return machine_of(fd)
    finally:
        posix.close(fd)


def _mismatch(search: Search, others: list[str]) -> DriverMismatch:
    versions = sorted({version_of(path.rpartition("/")[2]) or "of an unknown version" for path in others})
    shown = ", ".join(f"{path}{_age(search.root, path)}" for path in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return DriverMismatch(
        f"kernel module {search.version}, libraries {', '.join(versions)}: they must be the same version",
        where=f"{VERSION_FILE}, {shown}{more}",
        hint="reboot, or unload and reload the nvidia modules; details: gpuhook doctor",
    )


def _age(root: Root, path: str) -> str:
    """When the file was put there, in words (its inode's change: packages keep the time of the build as mtime)."""
    try:
        seconds = time() - root.stat(path).st_ctime
    except OSError:
        return ""
    if seconds < 0:
        return ""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f" (updated {count} {unit}{'s' if count > 1 else ''} ago)"
    return " (updated just now)"


def _not_installed(search: Search) -> DriverLibsMissing:
    branch = search.version.partition(".")[0]
    narrow = any(bits == 32 for _stem, bits in search.found)
    noted = [text for text in search.missing if any(stem in text for stem in tables.CORE) or "cache" in text]
    return DriverLibsMissing(
        f"kernel module {search.version} is loaded, but "
        f"{'only 32-bit libraries of it are' if narrow else 'its libraries are not'} installed: "
        f"no {' and no '.join(f'{stem}.{search.version}' for stem in tables.CORE)}",
        where="; ".join(noted[:_SHOWN]) or "the loader's cache and the usual folders",
        hint=f"install libnvidia-compute-{branch}, nvidia-driver-cuda or nvidia-utils, as your distribution calls it",
    )
