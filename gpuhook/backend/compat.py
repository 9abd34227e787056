"""The image's own, newer CUDA driver libraries (forward compatibility): found, never mounted (decisions.md 18).

All of it is the image author's, and it is only named in the container's own loader cache. Listing and reading are
bounded, and whatever is not exactly what NVIDIA ships is passed over.
"""

from __future__ import annotations

import posix

from gpuhook.backend.image import open_plain
from gpuhook.driver.machine import this_machine
from gpuhook.driver.tables import LIBRARIES, stem_of
from gpuhook.driver.version import is_version
from gpuhook.loader.cache import is_plain
from gpuhook.loader.elf import BadElf, read_elf
from gpuhook.note import note
from gpuhook.plan.ops import CacheEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.beneath import Root
    from gpuhook.plan.ops import Image
    from gpuhook.request.model import Request
    from gpuhook.settings.values import Settings

FOLDER = "/usr/local/cuda/compat"
MODES = ("ldconfig", "mount")  # the second one acts as the first
PREFIX = "libcuda.so."
_MOST_NAMES = 4096


def with_compat(image: Image, root: Root, request: Request, settings: Settings) -> Image:
    """The image with its CUDA libraries, where the settings let them be considered and the container wants CUDA."""
    allowed = settings.cuda_compat_mode in MODES and not settings.disable_cuda_compat_lib_hook
    if not allowed or not {"compute", "video"} & set(request.capabilities):
        return image
    entries, version = find_compat(root)
    if not entries:
        return image
    how = (
        "named in the loader's cache, whatever `mount` says" if settings.cuda_compat_mode == "mount" else "considered"
    )
    note(f"the image's CUDA libraries {version} in {FOLDER} are {how}")
    return image.with_(compat=entries, compat_version=version)


def find_compat(root: Root) -> tuple[tuple[CacheEntry, ...], str]:
    """Cache entries for the newest version in the image's folder, and that version; ((), "") where there is none."""
    try:
        names = root.listdir(FOLDER, _MOST_NAMES)
    except OSError as error:
        if error.errno != 2:
            note(f"{FOLDER} of the image is not used: {error.strerror}")
        return (), ""
    versions = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
    version = max(filter(is_version, versions), key=_numbers, default="")
    if not version:
        return (), ""
    stems = LIBRARIES["compute"]
    files = [name for name in names if stem_of(name) in stems and name == f"{stem_of(name)}.{version}"]
    entries = [entry for name in files for entry in _entries(root, name)]
    is_whole = any(entry.soname == f"{PREFIX}1" for entry in entries)
    return (tuple(entries), version) if is_whole else ((), "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _entries(root: Root, name: str) -> list[CacheEntry]:
    """The names that lead to a library of this machine: its SONAME, its file's, and that without a number."""
    try:
        fd = open_plain(root, f"{FOLDER}/{name}")
        try:
            place, elf = root.path_of(fd), read_elf(fd)
        finally:
            posix.close(fd)
    except (OSError, BadElf) as error:
        note(f"{FOLDER}/{name} of the image is not used: {error}")
        return []
    stem = stem_of(name)
    if not is_plain(place):
        note(f"{FOLDER}/{name} of the image is not used: {place} cannot stand in a cache")
        return []
    if elf.bits != 64 or not this_machine().runs(elf.machine, elf.bits) or not _is_soname(elf.soname, stem):
        note(f"{FOLDER}/{name} of the image is not used: it is no {stem} for this machine")
        return []
    names = dict.fromkeys((elf.soname, name, *([stem] if stem == "libcuda.so" else [])))
    return [CacheEntry(soname=each, path=place, bits=64) for each in names]


def _is_soname(soname: str, stem: str) -> bool:
    """Whether this is a name that belongs to such a library and to no other."""
    rest = soname.removeprefix(f"{stem}.")
    return soname.startswith(f"{stem}.") and all(part.isascii() and part.isdecimal() for part in rest.split("."))
