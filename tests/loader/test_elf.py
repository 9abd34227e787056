from __future__ import annotations

import os
import random
import struct
import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuhook.loader.elf import EM_X86_64, BadElf, Elf, host_machine, machine_of, read_elf
from tests.loader.builds import tiny_elf

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL = tiny_elf(
    b"libx.so.1", needed=(b"libc.so.6", b"libm.so.6"), interpreter=b"/lib64/ld-linux-x86-64.so.2", abi=(2, 3, 99)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elf") / "file"


def read(data: bytes, place: Path) -> Elf:
    place.write_bytes(data)
    fd = os.open(place, os.O_RDONLY)
    try:
        return read_elf(fd)
    finally:
        os.close(fd)


def patched(offset: int, form: str, *numbers: int) -> bytes:
    out = bytearray(FULL)
    struct.pack_into("<" + form, out, offset, *numbers)
    return bytes(out)


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("little", [True, False])
def test_all_facts_are_read(bits: int, little: bool, place: Path) -> None:
    """Both sizes and both byte orders, every fact."""
    data = tiny_elf(
        b"liba.so.1", needed=(b"b.so", b"c.so"), interpreter=b"/ld.so", abi=(2, 3, 99), bits=bits, little=little
    )

    assert read(data, place) == Elf(
        machine=62 if bits == 64 else 3,
        bits=bits,
        little=little,
        soname="liba.so.1",
        needed=("b.so", "c.so"),
        interpreter="/ld.so",
        abi=(2, 3, 99),
    )


def test_what_is_absent_is_empty(place: Path) -> None:
    """A library without SONAME, NEEDED, interpreter and note is a library all the same."""
    assert read(tiny_elf(), place) == Elf(machine=EM_X86_64, bits=64, little=True)


def test_this_interpreter_is_read() -> None:
    """A real program: it is of the host's machine and needs the C library."""
    fd = os.open(sys.executable, os.O_RDONLY)
    try:
        elf = read_elf(fd)
    finally:
        os.close(fd)

    assert elf.machine == host_machine()
    assert elf.bits == 8 * struct.calcsize("P")
    assert elf.interpreter.startswith("/lib")
    assert "libc.so.6" in elf.needed


def test_reading_leaves_the_position_alone(place: Path) -> None:
    """The file may be shared with somebody who reads it too."""
    place.write_bytes(FULL)
    fd = os.open(place, os.O_RDONLY)
    os.lseek(fd, 7, os.SEEK_SET)
    read_elf(fd)

    assert os.lseek(fd, 0, os.SEEK_CUR) == 7
    os.close(fd)


HEADERS = 64
LOAD, DYNAMIC, NOTE, INTERPRETER = (HEADERS + 56 * n for n in range(4))
TAGS = HEADERS + 56 * 4  # needed, needed, soname, texts, size of texts, end


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends before"),
        (b"#!/bin/sh\n" * 9, "does not begin"),
        (FULL[:19], "ends before"),
        (FULL[:63], "ends before"),
        (FULL[: INTERPRETER + 20], "ends before"),
        (patched(4, "B", 3), "does not begin"),
        (patched(5, "B", 0), "does not begin"),
        (patched(16, "H", 1), "type 1"),
        (patched(16, "H", 4), "type 4"),
        (patched(32, "Q", 1 << 63), "points at"),
        (patched(32, "Q", (1 << 62) - 1), "cannot be read|ends before"),
        (patched(54, "H", 55), "program headers"),
        (patched(56, "H", 0xFFFF), "program headers"),
        (patched(LOAD + 16, "Q", 1 << 40), "nothing is loaded"),
        (patched(LOAD + 8, "Q", (1 << 64) - 9), "points at"),
        (patched(TAGS + 8, "Q", 1 << 40), "outside of its table"),
        (patched(TAGS + 16 * 3, "Q", 99), "no table"),
        (patched(TAGS + 16 * 4, "Q", 99), "no table"),
        (patched(TAGS + 16 * 3 + 8, "Q", 1 << 20), "nothing is loaded"),
        (patched(TAGS + 16 * 4 + 8, "Q", 1), "outside of its table"),
        (patched(TAGS + 16 * 4 + 8, "Q", 25), "does not end"),
        (patched(TAGS + 16, "Q", 0), "no table"),
        (patched(LOAD, "I", 0x6474E551), "nothing is loaded"),
        (patched(INTERPRETER + 32, "Q", 5), "does not end"),
        (patched(INTERPRETER + 8, "Q", 1 << 40), "does not end"),
        (tiny_elf(needed=[b"x"] * 513), "needs 513"),
        (tiny_elf(b"x" * 256), "does not end within 256"),
    ],
)
def test_a_broken_file_is_refused(data: bytes, reason: str, place: Path) -> None:
    """Each way of being wrong is refused, and the message says which it is (AC-37)."""
    with pytest.raises(BadElf, match=reason):
        read(data, place)


def test_a_dynamic_section_may_lack_its_end(place: Path) -> None:
    """It ends with its segment as well."""
    (size,) = struct.unpack_from("<Q", FULL, DYNAMIC + 32)

    assert read(patched(DYNAMIC + 32, "Q", size - 16), place) == read(FULL, place)


def test_the_last_soname_counts(place: Path) -> None:
    """Of two the loader takes the last."""
    assert read(patched(TAGS + 16, "Q", 14), place).soname == "libx.so.1"


def test_a_file_without_program_headers_says_little(place: Path) -> None:
    """Machine and size are known, nothing else."""
    assert read(patched(56, "H", 0), place) == Elf(machine=EM_X86_64, bits=64, little=True)


@pytest.mark.parametrize("count", [0xFFFF, 0])
def test_section_headers_are_not_looked_at(count: int, place: Path) -> None:
    """A file that lies about its sections, or has none, is read as the loader reads it."""
    assert read(patched(60, "HH", count, count), place).soname == "libx.so.1"


@pytest.mark.parametrize(
    "numbers", [(0xFFFFFFFF, 16), (0xFFFFFFFF, 0xFFFFFFFF), (4, 12), (4, 16, 3), (4, 16, 1, 0x584E47), (0, 0)]
)
def test_notes_that_say_something_else_give_no_version(numbers: tuple[int, ...], place: Path) -> None:
    """Sizes that lead nowhere, another type and another owner give no version and no endless walk."""
    (offset,) = struct.unpack_from("<Q", FULL, NOTE + 8)

    assert read(patched(offset, f"{len(numbers)}I", *numbers), place).abi is None


def test_another_systems_version_is_none_of_linux(place: Path) -> None:
    """The ABI note of a Hurd library holds no Linux version."""
    (offset,) = struct.unpack_from("<Q", FULL, NOTE + 8)

    assert read(patched(offset + 16, "I", 1), place).abi is None


def test_a_huge_sparse_file_costs_nothing(place: Path) -> None:
    """Only what the headers point at is read, and that has its limits."""
    data = bytearray(FULL)
    struct.pack_into("<Q", data, DYNAMIC + 32, 1 << 38)
    place.write_bytes(data)
    os.truncate(place, 40 << 30)
    fd = os.open(place, os.O_RDONLY)
    tracemalloc.start()
    begin = time.process_time()
    assert read_elf(fd).soname == "libx.so.1"
    spent, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    os.close(fd)
    place.unlink()

    assert spent < 2
    assert peak < 8 << 20


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([FULL, tiny_elf(b"liba.so", needed=[b"b"], bits=32, abi=(1, 2, 3))]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_file_is_read_or_refused(place: Path, source: random.Random, data: bytes) -> None:
    """Whatever bytes change, nothing but BadElf comes out, and soon."""
    assert_read_or_refused(mutated(data, source, len(data)), place)


def mutated(data: bytes, source: random.Random, within: int) -> bytes:
    out = bytearray(data)
    for _ in range(source.randint(1, 8)):
        start = source.randrange(within)
        width = source.choice([1, 2, 4, 8])
        out[start : start + width] = source.choice([b"\xff" * width, bytes(width), source.randbytes(width)])
    return bytes(out)


def assert_read_or_refused(data: bytes, place: Path) -> None:
    begin = time.process_time()
    try:
        read(data, place)
    except BadElf:
        pass
    assert time.process_time() - begin < 2


def real_files() -> list[bytes]:
    """The C library and the shell of this machine, as far as they are there."""
    with Path("/proc/self/maps").open() as lines:
        mapped = {line.split()[-1] for line in lines if "libc.so.6" in line or "/libm" in line}
    return [Path(path).read_bytes() for path in sorted({*mapped, "/bin/sh"}) if Path(path).is_file()]


@pytest.mark.parametrize("data", real_files(), ids=lambda data: f"{len(data)} bytes")
def test_mutated_real_files_are_read_or_refused(data: bytes, place: Path) -> None:
    """The same for real files, hurt in their headers, their dynamic section and their first notes."""
    source = random.Random(len(data))
    for _ in range(40):
        assert_read_or_refused(mutated(data, source, 1024), place)


@pytest.fixture
def odd_files(tmp_path: Path) -> Iterator[list[int]]:
    pipe = os.pipe()
    folder = os.open(tmp_path, os.O_RDONLY)
    null = os.open("/dev/null", os.O_RDONLY)
    yield [pipe[0], folder, null]
    for fd in (*pipe, folder, null):
        os.close(fd)


def test_what_is_no_file_is_refused(odd_files: list[int]) -> None:
    """A pipe, a folder and a device neither hang us nor raise anything else."""
    for fd in odd_files:
        with pytest.raises(BadElf):
            read_elf(fd)
        assert machine_of(fd) is None


@pytest.mark.parametrize(
    ("data", "machine"),
    [
        (FULL, 62),
        (FULL[:20], 62),
        (FULL[:19], None),
        (tiny_elf(machine=183), 183),
        (tiny_elf(machine=21, little=False), 21),
        (patched(5, "B", 7), None),
        (b"#!/bin/sh\nexec true\n\n", None),
        (b"", None),
    ],
)
def test_the_machine_is_told_from_twenty_bytes(data: bytes, machine: int | None, place: Path) -> None:
    """In the file's own byte order; None for what is no ELF file."""
    place.write_bytes(data)
    fd = os.open(place, os.O_RDONLY)

    assert machine_of(fd) == machine
    os.close(fd)
