"""Driver roots made by hand: a few libraries, a loader cache that says what a test wants it to say."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from fixtures.driver.elf import shared_object
from gpuhook.driver.libraries import find_libraries
from gpuhook.driver.machine import this_machine
from gpuhook.driver.model import Library
from gpuhook.kernel.beneath import Root

VERSION = "550.54.14"
MACHINE = this_machine()
WIDE, NARROW = (f"/usr/lib/{triplet}" for triplet in MACHINE.triplets)
CACHE = "/etc/ld.so.cache"
Entry = tuple[str, str] | tuple[str, str, int] | tuple[str, str, int, int]
CORE = ("libnvidia-ml.so", "libcuda.so")


def put(
    root: Path,
    path: str,
    soname: str = "",
    *,
    bits: int = 64,
    abi: tuple[int, int, int] | None = None,
    machine: int | None = None,
) -> str:
    """A library at this path in the root; its path. soname: "" for the stem and ".1"."""
    name = path.rpartition("/")[2]
    data = shared_object(soname or f"{name.partition('.so')[0]}.so.1", bits=bits, abi=abi)
    if machine is not None:
        data = data[:18] + struct.pack("<H", machine) + data[20:]
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return path


def core(root: Path, folder: str = WIDE, version: str = VERSION) -> list[tuple[str, str]]:
    """The two libraries that a driver cannot be without, as cache entries."""
    return [(f"{stem}.1", put(root, f"{folder}/{stem}.{version}")) for stem in CORE]


def cache(root: Path, entries: Sequence[Entry]) -> None:
    """A loader cache with these entries in this order: name, path, bits (64), hwcap (0)."""
    start = 48 + 24 * len(entries)
    texts, rows = b"", b""
    for name, path, *more in entries:
        bits, hwcap = (*more, 64, 0)[:2] if len(more) != 1 else (more[0], 0)
        flags = MACHINE.flags[0 if bits == 64 else 1] | 3
        rows += struct.pack("<iIIIQ", flags, start + len(texts), start + len(texts) + len(name.encode()) + 1, 0, hwcap)
        texts += name.encode() + b"\0" + path.encode() + b"\0"
    write_cache(root, struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", len(entries), len(texts)) + rows + texts)


def write_cache(root: Path, data: bytes) -> None:
    """These bytes as the loader cache."""
    (root / "etc").mkdir(exist_ok=True)
    (root / CACHE.lstrip("/")).write_bytes(data)


def find(root: Path, version: str = VERSION) -> tuple[tuple[Library, ...], str]:
    """What is found, and the notes as lines."""
    with Root(str(root)) as opened:
        libraries, missing = find_libraries(opened, CACHE, version)
    return libraries, "\n".join(missing)


def paths(root: Path, stem: str = "", bits: int = 0) -> list[str]:
    """Where the libraries are, of one stem and size or of all."""
    return [each.path for each in find(root)[0] if stem in ("", each.stem) and bits in (0, each.bits)]
