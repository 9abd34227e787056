from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.loader.cache import BadCache, Cache, lookup, parse
from gpuhook.loader.merge import encode, merge
from gpuhook.loader.order import order
from gpuhook.refusals import NotCovered
from tests.loader import model

NAMED = 1 << 62
FOLDERS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
CPU = [b"x86-64-v4", b"x86-64-v3", b"x86-64-v2"]
CUDA = ("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.535.54.03", 64)
CUDA32 = ("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.535.54.03", 32)
IMAGE = "/opt/image/libcuda.so.1"

NAMES = st.sampled_from(
    [
        "libcuda.so.1",
        "libcuda.so.01",
        "libcuda.so",
        "libcuda.so.10",
        "libnvidia-ml.so.1",
        "libz.so.1",
        "liba.so",
        "é.so",
    ]
)
HWCAPS = st.sampled_from([0, 0, 0, 1 << 63, 1 << 5, 3 << 5, NAMED, NAMED | 1, NAMED | 2 | (3 << 32), NAMED | 9])
ENTRY = st.tuples(
    NAMES,
    st.sampled_from(["/lib/a.so", "/usr/lib/libz.so.1", "/opt/é/b.so", IMAGE]),
    st.sampled_from([0x303, 0x303, 0x003, 0x001, 0x803, 0xA03]),
    st.sampled_from([0, 0, 0x00030200]),
    HWCAPS,
)
CACHES = st.lists(ENTRY, max_size=30).map(lambda rows: Cache(entries=tuple(rows), hwcaps=FOLDERS))
ADDITIONS = st.lists(
    st.tuples(NAMES, st.sampled_from(["/usr/lib/x86_64-linux-gnu/d.so", "/d/libz.so.1"]), st.sampled_from([64, 32])),
    max_size=8,
)


@given(CACHES, ADDITIONS)
def test_merging_twice_gives_the_same_bytes(cache: Cache, additions: list[tuple[str, str, int]]) -> None:
    """The second merge finds everything in place."""
    once = merge(cache, additions, "x86_64")

    assert merge(parse(once), additions, "x86_64") == once


@given(CACHES, ADDITIONS)
def test_all_other_entries_stay(cache: Cache, additions: list[tuple[str, str, int]]) -> None:
    """What the loader does not take for one of our names and architectures is kept, field by field."""
    arch = {64: 0x300, 32: 0x000}
    ours = {(order(name, "x86_64"), arch[bits]) for name, _, bits in additions}
    merged = parse(merge(cache, additions, "x86_64"))
    others = [row for row in cache.entries if (order(row[0], "x86_64"), row[2] & 0xFF00) not in ours]

    assert len(merged.entries) == len(others) + len(ours)
    assert sorted(row for row in merged.entries if row in others) == sorted(others)
    assert merged.hwcaps == FOLDERS


@given(CACHES, ADDITIONS)
def test_the_result_is_in_the_loaders_order(cache: Cache, additions: list[tuple[str, str, int]]) -> None:
    """Names never rise and, within a name, flags never rise: what the search by halves rests on."""
    rows = parse(merge(cache, additions, "x86_64")).entries
    for (first, _, flags, _, _), (second, _, next_flags, _, _) in pairwise(rows):
        verdict = model.compare(first.encode(), second.encode())

        assert verdict > 0 or (verdict == 0 and flags >= next_flags)


@given(CACHES, ADDITIONS, st.integers(0, 3), st.sampled_from([0, (1 << 64) - 1]))
def test_every_loader_on_every_cpu_takes_ours(
    cache: Cache, additions: list[tuple[str, str, int]], best: int, bits_of_cpu: int
) -> None:
    """Old and new generations of glibc find our file for our names, whatever the CPU can do."""
    data = merge(cache, additions, "x86_64")
    first: dict[tuple[bytes, int], str] = {}
    for name, path, bits in additions:
        first.setdefault((order(name, "x86_64"), bits), path)
    for name, _, bits in additions:
        flags, expected = (0x303 if bits == 64 else 0x003), first[order(name, "x86_64"), bits].encode()

        assert model.new_loader(data, name.encode(), flags=flags, cpu=CPU[best:]) == expected
        assert model.old_loader(data, name.encode(), flags=flags, hwcaps=bits_of_cpu) == expected


@pytest.mark.parametrize(
    ("name", "version", "hwcap"),
    [
        ("libcuda.so.1", 0, 0),
        ("libcuda.so.1", 0, NAMED | 1 | (2 << 32)),
        ("libcuda.so.1", 0, 1 << 63),
        ("libcuda.so.1", 0x00020610, 0),
        ("libcuda.so.01", 0, NAMED | 1),
        ("libcuda.so.4294967297", 0, 0),
    ],
)
def test_an_images_driver_library_does_not_win(name: str, version: int, hwcap: int) -> None:
    """Each kind of entry that the loader would prefer to ours is dropped."""
    image = Cache(entries=((name, IMAGE, 0x303, version, hwcap),), hwcaps=FOLDERS)

    assert [row[1] for row in parse(merge(image, [CUDA], "x86_64")).entries] == [CUDA[1]]


@pytest.mark.parametrize(
    ("name", "flags"),
    [("libcuda.so.1", 0x003), ("libcuda.so.1", 0x803), ("libcuda.so", 0x303), ("libcuda.so.10", 0x303)],
)
def test_other_names_and_architectures_stay(name: str, flags: int) -> None:
    """Ours replaces neither another architecture's library nor one of a longer or shorter name."""
    image = Cache(entries=((name, IMAGE, flags, 0, 0),))

    assert image.entries[0] in parse(merge(image, [CUDA], "x86_64")).entries


def test_both_word_sizes_go_in() -> None:
    """A 64-bit and a 32-bit library of one name are two entries."""
    merged = parse(merge(None, [CUDA, CUDA32], "x86_64"))

    assert lookup(merged, CUDA[0], 64, "x86_64") == CUDA[1]
    assert lookup(merged, CUDA[0], 32, "x86_64") == CUDA32[1]


@pytest.mark.parametrize(
    ("machine", "bits", "flags"),
    [("x86_64", 64, 0x303), ("x86_64", 32, 3), ("aarch64", 64, 0xA03), ("aarch64", 32, 0x903), ("ppc64le", 64, 0x503)],
)
def test_entries_bear_their_architecture(machine: str, bits: int, flags: int) -> None:
    """The flags are those by which the machine's own loader knows its libraries."""
    assert parse(merge(None, [("libx.so.1", "/lib/libx.so.1", bits)], machine)).entries[0][2] == flags


def test_the_first_of_two_additions_counts() -> None:
    """A name given twice for one architecture goes in once."""
    other = ("libcuda.so.01", "/second", 64)

    assert [row[1] for row in parse(merge(None, [CUDA, other], "x86_64")).entries] == [CUDA[1]]


def test_entries_of_one_rank_keep_their_order() -> None:
    """Among equals the loader takes the first, which is the folder that ld.so.conf names first."""
    rows = tuple(("libz.so.1", f"/{folder}/libz.so.1", 0x303, 0, 0) for folder in "qabz")

    assert parse(merge(Cache(entries=rows), [CUDA], "x86_64")).entries[:4] == rows


def test_entries_of_one_name_are_in_ldconfigs_order() -> None:
    """Greatest flags; named folders by name; most hwcap bits; greatest hwcap; greatest OS version."""
    folders = ("b", "ab", "a", "c")
    fields = [
        (0x803, 0, 0),
        (0x303, 0, NAMED | 2 | (3 << 32)),
        (0x303, 0, NAMED | 1),
        (0x303, 0, NAMED),
        (0x303, 0, NAMED | 3),
        (0x303, 0, 7),
        (0x303, 0, 1 << 63),
        (0x303, 0, 1 << 5),
        (0x303, 2, 0),
        (0x303, 1, 0),
        (0x303, 0, 0),
        (0x003, 5, NAMED),
    ]
    rows = tuple(("libz.so.1", f"/{n}/libz.so.1", *field) for n, field in enumerate(fields))

    for shuffled in (rows[::-1], rows[6:] + rows[:6], rows[1::2] + rows[::2]):
        assert parse(merge(Cache(entries=shuffled, hwcaps=folders), [], "x86_64")).entries == rows


def test_the_header_says_little_endian() -> None:
    """Loaders since 2.33 check the byte order that is written in the header."""
    assert merge(None, [CUDA], "x86_64")[28] == 2


def test_a_shuffled_cache_comes_out_in_order() -> None:
    """A file in the wrong order, which no loader can search, is put right."""
    rows = (("liba.so", "/a", 0x303, 0, 0), ("libz.so", "/z", 0x303, 0, 0), ("libm.so", "/m", 0x303, 0, 0))

    data = merge(Cache(entries=rows), [CUDA], "x86_64")

    assert model.new_loader(data, b"libz.so", flags=0x303, cpu=[]) == b"/z"


def test_a_cache_with_odd_entries_is_not_merged() -> None:
    """Its odd entries would be lost: somebody else has to rebuild it."""
    with pytest.raises(BadCache, match="2 of its entries"):
        merge(Cache(odd=2), [CUDA], "x86_64")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("", "/x"),
        ("a/b", "/x"),
        ("libx.so", "x"),
        ("libx.so", ""),
        ("lib\0x", "/x"),
        ("libx.so", "/x\ny"),
        ("libx.so", "/usr/../x"),
        ("libx.so", "/" + "x" * 4095),
        ("é" * 2048, "/x"),
    ],
)
def test_an_addition_that_cannot_be_read_back_is_refused(name: str, path: str) -> None:
    """What parse would not accept is not written."""
    with pytest.raises(BadCache, match="cannot be put"):
        merge(None, [(name, path, 64)], "x86_64")


def test_an_unknown_machine_is_not_covered() -> None:
    """No flags are invented."""
    with pytest.raises(NotCovered):
        merge(None, [CUDA], "sparc64")


def test_nothing_at_all_is_a_valid_cache() -> None:
    """No cache and no additions give an empty one."""
    assert parse(merge(None, [], "x86_64")) == Cache()


def test_texts_are_stored_once() -> None:
    """A name is its path's tail, a repeated path is one text: the merged file is no larger than ldconfig's."""
    rows = [("libz.so.1", "/usr/lib/libz.so.1", 0x303, 0, 0), ("libz.so", "/usr/lib/libz.so.1", 0x303, 0, 0)]

    data = encode(rows)

    assert data.count(b"libz.so.1\0") == 1
    assert int.from_bytes(data[24:28], "little") == len("/usr/lib/libz.so.1") + len("libz.so") + 2
