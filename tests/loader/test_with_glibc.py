"""Our bytes against the real ldconfig and the real loader of this machine."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from struct import pack_into

import pytest

from gpuhook.loader.cache import BadCache, Cache, folders, lookup, parse
from gpuhook.loader.merge import merge
from gpuhook.loader.order import MACHINE, order
from tests.loader import model
from tests.loader.builds import LDCONFIG, ldconfig_cache, listed, make_root

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: chroot and a mount namespace"),
    pytest.mark.skipif(not Path(LDCONFIG).exists(), reason="this machine has no ldconfig"),
    pytest.mark.skipif(MACHINE != "x86_64", reason="the libraries that the tests make are of x86"),
]

LIB = "/usr/lib/x86_64-linux-gnu"
CUDA = [("libcuda.so.1", f"{LIB}/libcuda.so.535.54.03", 64), ("libcuda.so.1", "/usr/lib32/libcuda.so.535.54.03", 32)]


def numbered(count: int = 40) -> list[tuple[str, bytes, int]]:
    """Libraries whose names differ in ways that the order must get right."""
    source = random.Random(6)
    pieces = ["a", "b", "-", ".so.", "0", "1", "9", "10", "09", "é", "~", "X"]
    names = {f"lib{''.join(source.choices(pieces, k=source.randint(1, 6)))}.so" for _ in range(count)}
    return [(f"/opt/n/{name}", name.encode(), 64) for name in sorted(names)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with libraries of two architectures, variants for better CPUs, and a CUDA library of its own."""
    libraries = [
        (f"{LIB}/libz.so.1", b"libz.so.1", 64),
        (f"{LIB}/libcuda.so.1", b"libcuda.so.1", 64),
        (f"{LIB}/libcuda.so.10", b"libcuda.so.10", 64),
        (f"{LIB}/glibc-hwcaps/x86-64-v2/libcuda.so.1", b"libcuda.so.1", 64),
        (f"{LIB}/glibc-hwcaps/x86-64-v3/libcuda.so.1", b"libcuda.so.1", 64),
        (f"{LIB}/glibc-hwcaps/x86-64-v3/libz.so.1", b"libz.so.1", 64),
        (f"{LIB}/glibc-hwcaps/x86-64-v2/libz.so.1", b"libz.so.1", 64),
        ("/usr/lib/i386-linux-gnu/libcuda.so.1", b"libcuda.so.1", 32),
        ("/usr/lib/i386-linux-gnu/libz.so.1", b"libz.so.1", 32),
        *numbered(),
    ]
    return make_root(tmp_path_factory.mktemp("root"), libraries, ["/opt/n", LIB, "/usr/lib/i386-linux-gnu"])


@pytest.mark.parametrize("form", ["new", "compat"])
def test_ldconfigs_cache_is_read(form: str, root: Path, tmp_path: Path) -> None:
    """We read from a file of ldconfig what ldconfig reads from it, and the names of glibc-hwcaps folders."""
    data = ldconfig_cache(root, form)
    cache = parse(data)

    assert [f"{name} => {path}" for name, path, *_ in cache.entries] == [
        f"{line.partition(' (')[0]} => {line.partition(' => ')[2]}" for line in listed(data, tmp_path / "cache")
    ]
    assert cache.hwcaps == ("x86-64-v2", "x86-64-v3")
    assert lookup(cache, "libz.so.1", 64) == f"{LIB}/libz.so.1"
    assert folders(cache, 32) == ["/usr/lib/i386-linux-gnu"]


def test_an_old_cache_is_refused(root: Path) -> None:
    """The format of before glibc 2.2 alone has no room for what we need."""
    with pytest.raises(BadCache, match="old format only"):
        parse(ldconfig_cache(root, "old"))


@pytest.mark.parametrize("form", ["new", "compat"])
def test_our_order_is_ldconfigs(form: str, root: Path) -> None:
    """Nothing added, nothing moves: what ldconfig has sorted comes back in the same order."""
    cache = parse(ldconfig_cache(root, form))

    assert parse(merge(cache, [])) == cache
    assert all(order(first[0]) >= order(second[0]) for first, second in pairwise(cache.entries))


@pytest.mark.parametrize("form", ["new", "compat"])
def test_ldconfig_lists_the_merged_cache(form: str, root: Path, tmp_path: Path) -> None:
    """Listed are our libraries once each, none of the image's CUDA libraries, and all else as it was."""
    # glibc 2.36 lists wrong hwcap names from a compat file, so the new form says what there was.
    merged = merge(parse(ldconfig_cache(root, form)), CUDA)
    before, after = (listed(cache, tmp_path / "cache") for cache in (ldconfig_cache(root), merged))
    cuda = [line for line in after if line.startswith("libcuda.so.1 ")]

    assert cuda == [
        f"libcuda.so.1 (libc6,x86-64) => {CUDA[0][1]}",
        f"libcuda.so.1 (libc6) => {CUDA[1][1]}",
    ]
    assert [line for line in after if line not in cuda] == [line for line in before if "libcuda.so.1 " not in line]


def test_the_hosts_cache_survives(tmp_path: Path) -> None:
    """Merged with nothing, this machine's own cache lists as before."""
    data = Path("/etc/ld.so.cache").read_bytes()

    assert listed(merge(parse(data), []), tmp_path / "cache") == listed(data, tmp_path / "cache")


def test_mutated_real_caches_are_read_or_refused(root: Path) -> None:
    """A real cache that was hurt, cut or given absurd counts raises BadCache or is read."""
    source = random.Random(29)
    for data in (ldconfig_cache(root, "new"), ldconfig_cache(root, "compat")):
        for length in range(64):
            with pytest.raises(BadCache):
                parse(data[:length])
        for _ in range(3000):
            out = bytearray(data)
            pack_into(
                "<I", out, source.randrange(len(out) - 4), source.choice([0, 1, 0xFFFFFFFF, source.getrandbits(32)])
            )
            try:
                parse(bytes(out))
            except BadCache:
                continue


LONG = ["liba-10.so", "liba-3000000000.so", "liba-0.so", "liba-9.so"]  # to the loader the second is least


def test_numbers_that_overflow_stay_where_ldconfig_put_them(tmp_path: Path) -> None:
    """Our order would differ from ldconfig's, so that the loader would search in vain: nothing is moved."""
    libraries = [(f"/opt/a/{name}", name.encode(), 64) for name in [*LONG, "libz.so.1", "libb.so"]]
    cache = parse(ldconfig_cache(make_root(tmp_path, libraries, ["/opt/a"])))
    ours = [*CUDA, ("libm-5.so", "/d/libm-5.so", 64)]
    before, after = merge(cache, []), merge(cache, ours)
    names = [row[0].encode() for row in cache.entries]

    assert parse(before) == cache
    assert [row for row in parse(after).entries if row in cache.entries] == list(cache.entries)
    assert merge(parse(after), ours) == after
    assert found(after, [b"libcuda.so.1", b"libm-5.so"]) == [CUDA[0][1].encode(), b"/d/libm-5.so"]
    assert found(after, names) == [row[1].encode() for row in cache.entries]


def found(data: bytes, names: list[bytes]) -> list[bytes | None]:
    return [model.new_loader(data, name, flags=0x303, cpu=[]) for name in names]


LIBRARY = "int answer(void) { return ANSWER; }\n"
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    int (*answer)(void) = library ? (int (*)(void))dlsym(library, "answer") : 0;
    return answer ? answer() : (puts(dlerror()), 1);
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `probe`, which loads a library by name and exits with its answer, and two such libraries."""
    if not shutil.which("gcc"):
        pytest.skip("this machine has no gcc")
    here = tmp_path_factory.mktemp("built")
    (here / "library.c").write_text(LIBRARY)
    (here / "probe.c").write_text(PROGRAM)
    for name, answer in (("ours", 42), ("image", 13)):
        (here / name).mkdir()
        library = [f"-DANSWER={answer}", "-shared", "-fPIC", "-Wl,-soname,libgpuhookprobe.so.1"]
        gcc(here, *library, "library.c", "-o", f"{name}/libgpuhookprobe.so.7")
    gcc(here, "probe.c", "-o", "probe", "-ldl")
    return here


def gcc(folder: Path, *arguments: str) -> None:
    subprocess.run(["gcc", *arguments], cwd=folder, check=True, timeout=60)


def answer_under(cache: bytes, built: Path, name: str = "libgpuhookprobe.so.1") -> int:
    """What the probe answers in a mount namespace in which these bytes are the loader's cache."""
    place = built / "cache"
    place.write_bytes(cache)
    script = 'mount --bind "$0" /etc/ld.so.cache && exec "$1" "$2"'
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, str(place), str(built / "probe"), name]
    return subprocess.run(command, capture_output=True, timeout=30).returncode


def host_cache() -> Cache:
    return parse(Path("/etc/ld.so.cache").read_bytes())


def test_the_loader_finds_a_merged_library(built: Path) -> None:
    """A library in a folder that nobody searches is loaded by its SONAME, with the cache and without another."""
    ours = [("libgpuhookprobe.so.1", str(built / "ours/libgpuhookprobe.so.7"), 64)]

    assert answer_under(merge(host_cache(), ours), built) == 42
    assert answer_under(merge(None, ours), built) == 42
    assert answer_under(merge(host_cache(), []), built) == 1


def test_the_loader_prefers_ours_to_the_images_variants(built: Path) -> None:
    """An image's entry of the same name, plain or for better CPUs, wins before the merge and loses after it."""
    image = str(built / "image/libgpuhookprobe.so.7")
    ours = [("libgpuhookprobe.so.1", str(built / "ours/libgpuhookprobe.so.7"), 64)]
    named = (1 << 62) | (host_index(built))
    for hwcap in (0, named):
        row = ("libgpuhookprobe.so.1", image, 0x303, 0, hwcap)
        cache = Cache(entries=(row, *host_cache().entries), hwcaps=("x86-64-v2", "x86-64-v3", "x86-64-v4"))

        assert answer_under(merge(cache, []), built) == 13
        assert answer_under(merge(cache, ours), built) == 42


def host_index(built: Path) -> int:
    """The index of a glibc-hwcaps folder that this CPU is good for."""
    said = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--help"], capture_output=True, text=True, timeout=30).stdout
    if "x86-64-v2 (supported" not in said:
        pytest.skip("no glibc-hwcaps folder is for this CPU or this glibc")
    return 0


def test_the_loader_takes_equal_names_for_one(built: Path) -> None:
    """The loader finds `.so.01` under `.so.1`: the reason that such an entry of an image is dropped."""
    image = str(built / "image/libgpuhookprobe.so.7")
    cache = Cache(entries=(("libgpuhookprobe.so.01", image, 0x303, 0, 0),))
    ours = [("libgpuhookprobe.so.1", str(built / "ours/libgpuhookprobe.so.7"), 64)]

    assert answer_under(merge(cache, []), built) == 13
    assert answer_under(merge(cache, ours), built) == 42


def test_a_cache_of_thousands_is_searched(built: Path) -> None:
    """Among 3000 names in random order each search by halves ends at the right entry."""
    source = random.Random(3)
    path = str(built / "ours/libgpuhookprobe.so.7")
    names = sorted(
        {f"lib{source.choice('abc')}{source.randrange(10 ** source.randint(1, 9))}.so.1" for _ in range(3000)}
    )
    cache = Cache(entries=tuple((name, path, 0x303, 0, 0) for name in source.sample(names, len(names))))
    data = merge(cache, [])

    assert [answer_under(data, built, name) for name in source.sample(names, 12)] == [42] * 12


def test_the_room_stays_light() -> None:
    """A container start imports this room: nothing slow comes with it."""
    script = "import sys; import gpuhook.loader.cache, gpuhook.loader.merge, gpuhook.loader.elf; print(*sys.modules)"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-ISc", f"import sys; sys.path.insert(0, {str(root)!r}); {script}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    slow = {"re", "enum", "typing", "dataclasses", "json", "pathlib", "logging", "subprocess", "collections", "os"}

    assert not slow & set(said.stdout.split())
