"""Real files as corpus for what reads bytes: the loader's cache and ELF files, whole, cut and hurt."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from gpuhook.loader.cache import BadCache, parse
from gpuhook.loader.elf import BadElf, read_elf
from tests.real_driver.conftest import Roots
from tests.real_driver.roots import Shipped
from tools.real_driver import Generation

pytestmark = pytest.mark.real_driver

HEADERS = 4096  # bytes: where headers, notes and often the dynamic section are
SMALL = 4 << 20  # bytes of a file that is copied for each hurt


@pytest.fixture
def data(generation: Generation, roots: Roots) -> bytes:
    return Path(roots(generation, "cache").root, "etc/ld.so.cache").read_bytes()


def hurt(data: bytes, source: random.Random, within: int) -> bytes:
    out = bytearray(data)
    for _ in range(source.randint(1, 8)):
        place, width = source.randrange(min(within, len(out))), source.choice([1, 2, 4, 8])
        out[place : place + width] = source.choice([b"\xff" * width, bytes(width), source.randbytes(width)])
    return bytes(out)


def test_the_cache_of_a_real_driver_is_read(data: bytes, generation: Generation, libraries: list[Shipped]) -> None:
    """Each library that lies in one of the folders is there under its SONAME."""
    known = {(name, path.rpartition("/")[0]) for name, path, *_ in parse(data).entries}
    shipped = {(each.soname, each.path.rpartition("/")[0]) for each in libraries if each.soname}
    folders = {folder for _, folder in known}
    assert {pair for pair in shipped if pair[1] in folders} <= known


def test_a_hurt_cache_is_read_or_refused(data: bytes) -> None:
    """Quickly, and with nothing but BadCache; cut anywhere it is refused."""
    source = random.Random(len(data))
    begin = time.process_time()
    for _ in range(300):
        try:
            parse(hurt(data, source, source.choice([64, len(data)])))
        except BadCache:  # noqa: PERF203  # one of many
            continue
    for length in range(0, len(data), 7):
        with pytest.raises(BadCache):
            parse(data[:length])
    assert time.process_time() - begin < 30


def test_real_libraries_are_read_as_readelf_reads_them(generation: Generation, libraries: list[Shipped]) -> None:
    """SONAME, what they are linked with, and their size in bits."""
    for each in libraries:
        fd = os.open(f"{generation.root}{each.path}", os.O_RDONLY)
        elf = read_elf(fd)
        os.close(fd)
        assert (each.path, elf.bits, elf.soname, elf.needed) == (each.path, each.bits, each.soname, each.needed)


def test_hurt_libraries_are_read_or_refused(generation: Generation, libraries: list[Shipped], tmp_path: Path) -> None:
    """Whatever bytes of their headers or dynamic section change: BadElf or facts, and soon."""
    place = tmp_path / "library"
    for each in libraries:
        path = Path(generation.root + each.path)
        if path.stat().st_size > SMALL:
            continue
        good, source = path.read_bytes(), random.Random(each.path)
        for _ in range(20):
            place.write_bytes(hurt(good, source, HEADERS))
            fd = os.open(place, os.O_RDONLY)
            begin = time.process_time()
            try:
                read_elf(fd)
            except BadElf:
                pass
            finally:
                os.close(fd)
            assert time.process_time() - begin < 2
