from __future__ import annotations

import random
import time
import tracemalloc
from struct import pack, pack_into
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuhook.loader.cache import BadCache, Cache, folders, lookup, parse
from gpuhook.loader.merge import encode

if TYPE_CHECKING:
    from gpuhook.loader.cache import Entry

V3 = (1 << 62) | (2 << 32)  # a glibc-hwcaps entry of index 0, as ldconfig writes it for x86-64-v3
ENTRIES: list[Entry] = [
    ("libz.so.1", "/usr/lib/x86_64-linux-gnu/libz.so.1", 0x303, 0, 0),
    ("libc.so.6", "/lib/glibc-hwcaps/x86-64-v3/libc.so.6", 0x303, 0, V3),
    ("libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6", 0x303, 0x00030200, 0),
    ("libc.so.6", "/usr/lib/i386-linux-gnu/libc.so.6", 0x003, 0, 0),
    ("liba\udcff.so", "/opt/é/liba\udcff.so", 0x303, 0, 0),
    ("other.so", "/opt/é/lib.so.2", 0x303, 0, 0),
]
GOOD = encode(ENTRIES, ("x86-64-v3",))
EXTENSIONS = int.from_bytes(GOOD[32:36], "little")


def behind_old_header(new: bytes, count: int = 3) -> bytes:
    """The file that `ldconfig -c compat` writes: old entries first; the extension's offset counts from the start."""
    old = b"ld.so-1.7.0\0" + pack("<I", count) + bytes(12 * count)
    old += bytes(-len(old) % 8)
    data = bytearray(old + new)
    start = int.from_bytes(new[32:36], "little")
    pack_into("<I", data, len(old) + 32, len(old) + start)
    for n in range(int.from_bytes(new[start + 4 : start + 8], "little")):
        place = len(old) + start + 8 + 16 * n + 8
        pack_into("<I", data, place, len(old) + int.from_bytes(data[place : place + 4], "little"))
    return bytes(data)


def patched(offset: int, *numbers: int, data: bytes = GOOD) -> bytes:
    out = bytearray(data)
    pack_into(f"<{len(numbers)}I", out, offset, *numbers)
    return bytes(out)


@pytest.mark.parametrize(
    "data", [GOOD, behind_old_header(GOOD), behind_old_header(GOOD, 0), behind_old_header(GOOD, 4)]
)
def test_a_cache_is_read_whole(data: bytes) -> None:
    """Entries in their order, every field, and the glibc-hwcaps names, alone or behind the old header."""
    assert parse(data) == Cache(entries=tuple(ENTRIES), hwcaps=("x86-64-v3",))


def test_a_cache_of_before_2_33_is_read() -> None:
    """Neither byte order nor extensions were written then."""
    old = bytearray(GOOD)
    old[28:36] = bytes(8)

    assert parse(bytes(old)) == Cache(entries=tuple(ENTRIES))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not begin"),
        (b"ld.so-1.7.0", "ends in its header"),
        (b"ld.so-1.7.0\0" + pack("<I", 0), "old format only"),
        (b"ld.so-1.7.0\0" + pack("<I", 0xFFFFFFFF) + GOOD, "old format only"),
        (b"ld.so-1.7.0\0" + pack("<I", 0) + behind_old_header(GOOD), "old format only"),
        (b"glibc-ld.so.cache1.0" + GOOD[20:], "does not begin"),
        (patched(20, 0xFFFFFFFF), "4294967295 entries"),
        (patched(20, 7), "outside of its table"),
        (patched(24, 0xFFFFFFFF), "do not fit"),
        (patched(24, 1), "outside of its table"),
        (pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", 0, 1, 2, 0), "do not fit"),
        (pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", (1 << 16) + 1, 0, 2, 0) + bytes(24 << 17), "65537 entries"),
        (patched(28, 3), "byte order"),
        (patched(28, 1), "byte order"),
        (patched(32, 0xFFFFFFFC), "extensions"),
        (patched(32, EXTENSIONS + 2), "extensions"),
        (patched(32, EXTENSIONS + 2, data=GOOD[:EXTENSIONS] + b"\0\0" + GOOD[EXTENSIONS:]), "extensions"),
        (patched(32, len(GOOD) - 4), "extensions"),
        (patched(EXTENSIONS + 4, 65, data=GOOD + bytes(16 * 65)), "extensions"),
        (patched(EXTENSIONS + 20, (4 << 16) + 4, data=GOOD + bytes(4 << 17)), "glibc-hwcaps"),
        (patched(EXTENSIONS, 0), "extensions"),
        (patched(EXTENSIONS + 4, 0xFFFFFFFF), "extensions"),
        (patched(EXTENSIONS + 16, 0xFFFFFFFF, 4), "outside of the file"),
        (patched(EXTENSIONS + 20, 3), "glibc-hwcaps"),
        (patched(EXTENSIONS + 40, 0xFFFFFFFF), "outside of its table"),
        (patched(48, 0x80000303), "flags"),
        (patched(52, 0), "outside of its table"),
        (patched(52, 0xFFFFFFFF), "outside of its table"),
        (patched(56, 47), "outside of its table"),
        (bytes(17 << 20), "16 MiB"),
    ],
)
def test_a_corrupt_cache_is_refused(data: bytes, reason: str) -> None:
    """Each way of being wrong is refused, and the message says which it is (AC-29)."""
    with pytest.raises(BadCache, match=reason):
        parse(data)


def test_reserved_bits_beside_the_byte_order_are_ignored() -> None:
    """The loader looks at the two lowest bits alone."""
    assert parse(patched(28, 0x82)).entries == tuple(ENTRIES)


def test_a_last_text_that_does_not_end_is_refused() -> None:
    """A text must end within the table of texts, not somewhere behind it."""
    with pytest.raises(BadCache, match="does not end"):
        parse(patched(24, int.from_bytes(GOOD[24:28], "little") - len("x86-64-v3") - 2))


def test_a_cache_cut_short_is_refused() -> None:
    """Whatever the length, a cut file is refused: its end is never guessed."""
    for length in range(len(GOOD)):
        with pytest.raises(BadCache):
            parse(GOOD[:length])


@pytest.mark.parametrize(
    "path", ["lib/libx.so", "", "/usr/../etc/libx.so", "/usr/lib/..", "/a\nb/libx.so", "/a\x7f/x"]
)
def test_odd_paths_are_left_out_and_counted(path: str) -> None:
    """An entry of a relative path, with `..` or a control character is not handed on (AC-29)."""
    cache = parse(encode([("libx.so", path, 0x303, 0, 0), *ENTRIES], ("x86-64-v3",)))

    assert cache == Cache(entries=tuple(ENTRIES), hwcaps=("x86-64-v3",), odd=1)


@pytest.mark.parametrize("path", ["/usr/lib/..a/libx.so", "/usr/lib/a../libx.so"])
def test_dots_within_a_name_are_not_odd(path: str) -> None:
    """Only the component `..` leads elsewhere."""
    assert parse(encode([("libx.so", path, 0x303, 0, 0)])).odd == 0


REAL_SIZE = encode(
    [(f"lib{n}.so.{n % 9}", f"/usr/lib/x86_64-linux-gnu/lib{n}.so.{n % 9}", 0x303, 0, 0) for n in range(60)]
)


@given(st.randoms(use_true_random=False), st.sampled_from([GOOD, REAL_SIZE, behind_old_header(GOOD)]))
def test_a_mutated_cache_is_read_or_refused(source: random.Random, data: bytes) -> None:
    """Whatever bytes change, nothing but BadCache comes out, and what is read is plain."""
    out = bytearray(data)
    for _ in range(source.randint(1, 8)):
        place = source.randrange(len(out))
        out[place : place + source.choice([1, 1, 4])] = source.choice([b"\xff" * 4, bytes(4), source.randbytes(4)])
    try:
        cache = parse(bytes(out))
    except BadCache:
        return
    assert all(entry[1].startswith("/") and ".." not in entry[1].split("/") for entry in cache.entries)


@given(st.sampled_from([b"glibc-ld.so.cache1.1", b"ld.so-1.7.0", b""]), st.binary(max_size=300))
@example(b"glibc-ld.so.cache1.1", bytes(80))
def test_any_bytes_behind_a_magic_are_read_or_refused(magic: bytes, tail: bytes) -> None:
    """The same for bytes that only begin as a cache does."""
    try:
        parse(magic + tail)
    except BadCache:
        return


def overlapping(entries: int, length: int) -> bytes:
    """A hostile file: texts of this length, and entries that begin at every byte of them."""
    table = (b"/" * length + b"\0") * 8
    start = 48 + 24 * entries
    places = [start + n % len(table) for n in range(entries)]
    rows = b"".join(pack("<iIIIQ", 0x303, place, place, 0, 0) for place in places)
    header = pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", entries, len(table), 2, 0)
    return header + rows + table


def test_overlapping_texts_do_not_exhaust_us() -> None:
    """Few bytes of file cannot become many bytes of memory, nor take long."""
    data = overlapping(1 << 16, 4000)
    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(BadCache, match="4 MiB together"):
        parse(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 64 << 20
    assert time.process_time() - begin < 5


def test_a_text_longer_than_a_path_is_refused() -> None:
    """A text has at most 4095 bytes, as a path does."""
    with pytest.raises(BadCache, match="does not end"):
        parse(overlapping(1, 4096))
    assert parse(overlapping(1, 4095)).entries


@pytest.mark.parametrize(
    ("name", "bits", "path"),
    [
        ("libc.so.6", 64, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("libc.so.6", 32, "/usr/lib/i386-linux-gnu/libc.so.6"),
        ("libz.so.1", 32, None),
        ("libz.so", 64, None),
    ],
)
def test_lookup_prefers_the_entry_for_every_cpu(name: str, bits: int, path: str | None) -> None:
    """The name must be whole and the architecture right; an entry without hwcap comes before one with."""
    assert lookup(parse(GOOD), name, bits, "x86_64") == path


def test_lookup_takes_a_special_entry_where_there_is_no_other() -> None:
    """A library that exists for better CPUs only is found all the same."""
    assert lookup(Cache(entries=tuple(ENTRIES[1:2])), "libc.so.6", 64, "x86_64") == ENTRIES[1][1]


@pytest.mark.parametrize(
    ("flags", "path"), [(0x001, "/x"), (0x003, "/x"), (0x000, None), (0x002, None), (0x103, None)]
)
def test_an_elf_library_of_unknown_c_library_counts(flags: int, path: str | None) -> None:
    """A 32-bit library that does not need libc.so.6 has flags of its own, and i386's loader takes it."""
    cache = Cache(entries=(("libx.so", "/x", flags, 0, 0),))

    assert lookup(cache, "libx.so", 32, "x86_64") == path
    assert folders(cache, 32, "x86_64") == (["/"] if path else [])


def test_folders_come_by_their_number_of_libraries() -> None:
    """The folder with most libraries of the kind is first; special folders do not count."""
    cache = parse(GOOD)

    assert folders(cache, 64, "x86_64") == ["/opt/é", "/usr/lib/x86_64-linux-gnu"]
    assert folders(cache, 32, "x86_64") == ["/usr/lib/i386-linux-gnu"]
    assert folders(cache, 64, "aarch64") == []


def test_a_library_at_the_top_is_in_the_root_folder() -> None:
    """The folder of /libx.so is /, not the empty text."""
    assert folders(Cache(entries=(("libx.so", "/libx.so", 0x303, 0, 0),)), 64, "x86_64") == ["/"]
