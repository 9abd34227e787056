"""Which libraries are taken, from the loader's cache and from folders."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fixtures.driver.build import build
from gpuhook.driver import tables
from gpuhook.driver.libraries import find_libraries
from gpuhook.driver.machine import MACHINES, this_machine
from gpuhook.kernel.beneath import Root
from gpuhook.refusals import NotCovered
from tests.driver.roots import CORE, MACHINE, NARROW, VERSION, WIDE, cache, core, find, paths, put, write_cache


@pytest.mark.parametrize("layout", ["debian", "rhel", "driver-root"])
@pytest.mark.parametrize("with_cache", [True, False])
def test_a_whole_driver_is_found(tmp_path: Path, layout: str, with_cache: bool) -> None:
    """In every layout, with and without a cache: all libraries of the version in table order, and no others."""
    driver = build(str(tmp_path), layout=layout, cache=with_cache, libraries_version=("550.54.14", "550.90.07"))
    with Root(driver.root) as root:
        found, missing = find_libraries(root, "/etc/ld.so.cache", driver.version)
    if with_cache:
        assert [library.path for library in found] == [*driver.libraries, *driver.libraries32]
    assert {library.path for library in found} == {*driver.libraries, *driver.libraries32}
    assert [library.bits for library in found] == sorted((library.bits for library in found), reverse=True)
    assert any("cache does not exist" in line for line in missing) is not with_cache


def test_table_order_not_the_caches(tmp_path: Path) -> None:
    """The list is in the order of the tables, 64 bits before 32."""
    narrow = put(tmp_path, f"{NARROW}/libcuda.so.{VERSION}", bits=32)
    cache(tmp_path, [*core(tmp_path)[::-1], ("libcuda.so.1", narrow, 32)])
    assert [(library.stem, library.bits) for library in find(tmp_path)[0]] == [
        ("libnvidia-ml.so", 64),
        ("libcuda.so", 64),
        ("libcuda.so", 32),
    ]


def test_the_first_entry_wins(tmp_path: Path) -> None:
    """As for the loader; nvidia-container-cli takes the last."""
    first = put(tmp_path, f"/opt/a/libcuda.so.{VERSION}")
    second = put(tmp_path, f"/opt/b/libcuda.so.{VERSION}")
    cache(tmp_path, [("libcuda.so.1", first), *core(tmp_path), ("libcuda.so.1", second)])
    assert paths(tmp_path, "libcuda.so") == [first]


def test_an_entry_for_special_cpus_comes_last(tmp_path: Path) -> None:
    """The variant of a glibc-hwcaps folder is taken only where there is no plain one."""
    special = put(tmp_path, f"/opt/hwcaps/libcuda.so.{VERSION}")
    plain = put(tmp_path, f"/opt/plain/libcuda.so.{VERSION}")
    entries = core(tmp_path)[:1]
    cache(tmp_path, [*entries, ("libcuda.so.1", special, 64, 1 << 62), ("libcuda.so.1", plain)])
    assert paths(tmp_path, "libcuda.so") == [plain]
    cache(tmp_path, [*entries, ("libcuda.so.1", special, 64, 1 << 62)])
    assert paths(tmp_path, "libcuda.so") == [special]


def test_another_version_is_passed_over(tmp_path: Path) -> None:
    """A newer library that stands first in the cache is not the running module's."""
    newer = put(tmp_path, f"{WIDE}/libcuda.so.550.90.07")
    cache(tmp_path, [("libcuda.so.1", newer), *core(tmp_path)])
    assert paths(tmp_path, "libcuda.so") == [f"{WIDE}/libcuda.so.{VERSION}"]


@pytest.mark.parametrize("name", [f"libcuda.so.1{VERSION}", "libcuda.so", "libcuda.so.1"])
def test_the_name_ends_with_the_version(tmp_path: Path, name: str) -> None:
    """A version is a whole component of the name, not a mere ending."""
    wrong = put(tmp_path, f"/opt/x/{name}")
    cache(tmp_path, [("libcuda.so.1", wrong), *core(tmp_path)])
    assert paths(tmp_path, "libcuda.so") == [f"{WIDE}/libcuda.so.{VERSION}"]


def test_names_with_a_common_beginning_are_told_apart(tmp_path: Path) -> None:
    """The library libcudadebugger is not libcuda, and pkcs11-openssl3 is not pkcs11."""
    names = ("libcudadebugger.so", "libnvidia-pkcs11.so", "libnvidia-pkcs11-openssl3.so")
    cache(tmp_path, [*core(tmp_path), *((f"{name}.1", put(tmp_path, f"{WIDE}/{name}.{VERSION}")) for name in names)])
    assert {library.stem: library.path.rpartition("/")[2] for library in find(tmp_path)[0]} == {
        stem: f"{stem}.{VERSION}" for stem in (*CORE, *names)
    }


def test_a_stale_entry_is_skipped_and_noted(tmp_path: Path) -> None:
    """A cache that names what is gone costs nobody the start; the folder has the rest."""
    core(tmp_path)
    cache(tmp_path, [("libcuda.so.1", f"/gone/libcuda.so.{VERSION}")])
    assert paths(tmp_path) == [f"{WIDE}/libnvidia-ml.so.{VERSION}", f"{WIDE}/libcuda.so.{VERSION}"]
    assert f"ldcache-stale: /gone/libcuda.so.{VERSION}" in find(tmp_path)[1]


def test_many_stale_entries_do_not_flood_the_notes(tmp_path: Path) -> None:
    """Twenty lines and a count."""
    core(tmp_path)
    cache(tmp_path, [("libcuda.so.1", f"/gone/{number}/libcuda.so.{VERSION}") for number in range(50)])
    lines = [line for line in find(tmp_path)[1].split("\n") if line.startswith("ldcache-stale")]
    assert len(lines) == 21
    assert "30 more" in lines[-1]


@pytest.mark.parametrize("folder", [f for f in tables.library_folders(MACHINE.triplets, VERSION) if f])
def test_every_folder_is_searched(tmp_path: Path, folder: str) -> None:
    """Without a cache, a driver in any of the usual folders is found."""
    core(tmp_path, folder)
    assert paths(tmp_path) == [f"{folder}/{stem}.{VERSION}" for stem in CORE]


def test_split_folders_are_put_together(tmp_path: Path) -> None:
    """Debian keeps one half in nvidia/current and the other half beside it."""
    put(tmp_path, f"{WIDE}/nvidia/current/libcuda.so.{VERSION}")
    put(tmp_path, f"{WIDE}/libnvidia-ml.so.{VERSION}")
    assert paths(tmp_path) == [
        f"{WIDE}/libnvidia-ml.so.{VERSION}",
        f"{WIDE}/nvidia/current/libcuda.so.{VERSION}",
    ]


def test_a_folder_may_hold_both_sizes(tmp_path: Path) -> None:
    """/usr/lib is 64-bit here and 32-bit there: the file's header decides."""
    core(tmp_path)
    put(tmp_path, f"/usr/lib/libcuda.so.{VERSION}", bits=32)
    assert paths(tmp_path, bits=32) == [f"/usr/lib/libcuda.so.{VERSION}"]


def test_paths_are_resolved(tmp_path: Path) -> None:
    """The path that is given holds no link: it is mounted, and its name is kept."""
    core(tmp_path, "/store/driver")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/opengl-driver").symlink_to("/store")
    (tmp_path / "store/lib").symlink_to("driver")
    assert paths(tmp_path)[0] == f"/store/driver/libnvidia-ml.so.{VERSION}"


def test_the_soname_is_the_files_own(tmp_path: Path) -> None:
    """From the ELF file, not from the cache."""
    core(tmp_path)
    put(tmp_path, f"{WIDE}/libnvidia-nscq.so.{VERSION}", soname="libnvidia-nscq.so.2")
    assert find(tmp_path)[0][1].soname == "libnvidia-nscq.so.2"


@pytest.mark.parametrize("soname", ["libc.so.6", "libnvidia-nscq.so.1/../../x", "../x", "libnvidia-nscq.so.1\n"])
def test_a_soname_of_somebody_else_is_not_taken(tmp_path: Path, soname: str) -> None:
    """A driver library must not put itself in the place of the container's C library."""
    core(tmp_path)
    put(tmp_path, f"{WIDE}/libnvidia-nscq.so.{VERSION}", soname=soname)
    assert find(tmp_path)[0][1].soname == f"libnvidia-nscq.so.{VERSION}"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"text", "no shared library"),
        (b"", "no shared library"),
        (b"\x7fELF" + bytes(60), "no shared library"),
    ],
)
def test_files_that_are_no_library(tmp_path: Path, data: bytes, says: str) -> None:
    """The right name alone is not enough."""
    core(tmp_path)
    (tmp_path / f"{WIDE}/libnvidia-nscq.so.{VERSION}".lstrip("/")).write_bytes(data)
    found, missing = find(tmp_path)
    assert [library.stem for library in found] == list(CORE)
    assert says in missing


def test_another_machines_library(tmp_path: Path) -> None:
    """An ELF file of a foreign machine is left out with its number."""
    core(tmp_path)
    put(tmp_path, f"{WIDE}/libnvidia-nscq.so.{VERSION}", machine=243)
    assert "64-bit code for machine 243" in find(tmp_path)[1]


def test_a_cache_entry_of_the_wrong_size(tmp_path: Path) -> None:
    """An entry that promises 64 bits and leads to 32 is not taken for either."""
    cache(
        tmp_path, [*core(tmp_path), ("libnvidia-nscq.so.1", put(tmp_path, f"/x/libnvidia-nscq.so.{VERSION}", bits=32))]
    )
    found, missing = find(tmp_path)
    assert [library.stem for library in found] == list(CORE)
    assert "32-bit code" in missing


@pytest.mark.parametrize(("abi", "taken"), [((2, 3, 99), True), (None, True), ((2, 2, 5), False)])
def test_the_tls_variant(tmp_path: Path, abi: tuple[int, int, int] | None, taken: bool) -> None:
    """Of the old two, the one for modern threads; a file without a note is no reason to fail."""
    core(tmp_path)
    path = put(tmp_path, f"{WIDE}/libnvidia-tls.so.{VERSION}", abi=abi)
    assert (path in paths(tmp_path)) is taken


def test_absent_libraries_are_noted(tmp_path: Path) -> None:
    """Each name that is not there has a line, so that `--debug` answers the question."""
    core(tmp_path)
    assert "library libnvidia-encode.so: not installed" in find(tmp_path)[1]


GOOD = (
    struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", 1, 8) + struct.pack("<iIIIQ", 3, 72, 76, 0, 0) + b"abc\0/a\0\0"
)


@pytest.mark.attack
@pytest.mark.parametrize(
    "data",
    [
        *(GOOD[:length] for length in range(64)),
        GOOD.replace(struct.pack("<II", 1, 8), b"\xff\xff\xff\xff\x08\0\0\0", 1),
        GOOD.replace(struct.pack("<II", 72, 76), struct.pack("<II", 72, 1 << 31)),
        GOOD.replace(struct.pack("<iI", 3, 72), struct.pack("<iI", -3, 72)),
        GOOD[:-2] + b"xx",
        b"ld.so-1.7.0\0" + struct.pack("<I", 0xFFFFFFFF) + GOOD,
        b"\0" * 100_000,
    ],
)
def test_a_corrupt_cache_is_put_aside(tmp_path: Path, data: bytes) -> None:
    """AC-29, the driver root's cache: folders are searched instead, and the reason is noted."""
    core(tmp_path)
    write_cache(tmp_path, data)
    assert paths(tmp_path) == [f"{WIDE}/{stem}.{VERSION}" for stem in CORE]
    assert "not usable as a loader's cache" in find(tmp_path)[1]


@pytest.mark.attack
@pytest.mark.parametrize(
    "path", ["/etc/shadow", "../../x", "relative/libcuda.so.1", "/../../etc/shadow", "/a\n/b", "/proc/self/exe", ""]
)
def test_a_cache_that_names_other_files(tmp_path: Path, path: str) -> None:
    """AC-29 and AC-78: a cache does not make a library of a file."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/shadow").write_text("secret")
    core(tmp_path)
    cache(tmp_path, [("libcuda.so.1", path)])
    assert paths(tmp_path) == [f"{WIDE}/{stem}.{VERSION}" for stem in CORE]


def test_the_cache_may_be_elsewhere(tmp_path: Path) -> None:
    """`[nvidia-container-cli] ldcache` is a path inside the driver root."""
    cache(tmp_path, core(tmp_path, "/opt/odd"))
    (tmp_path / "etc/ld.so.cache").rename(tmp_path / "cache")
    with Root(str(tmp_path)) as root:
        assert len(find_libraries(root, "/cache", VERSION)[0]) == 2


def test_a_cache_that_is_a_folder(tmp_path: Path) -> None:
    """Whatever stands there, the folders are searched."""
    core(tmp_path)
    (tmp_path / "etc/ld.so.cache").mkdir(parents=True)
    assert "a folder, not a regular file" in find(tmp_path)[1]


def test_the_host_itself_has_no_driver_or_one() -> None:
    """A machine that we run on is known."""
    assert this_machine() in MACHINES


def test_an_unknown_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no NVIDIA driver for it."""
    monkeypatch.setattr("gpuhook.driver.machine.MACHINES", ())
    with pytest.raises(NotCovered, match="machines of kind"):
        this_machine()


@pytest.mark.parametrize(
    ("name", "flags", "bits"),
    [
        ("x86_64", 0x0303, 64),
        ("x86_64", 0x0003, 32),
        ("x86_64", 0x0803, 0),
        ("x86_64", 0x0302, 0),
        ("aarch64", 0x0A03, 64),
        ("aarch64", 0x0903, 32),
        ("aarch64", 0x0003, 0),
        ("ppc64le", 0x0503, 64),
        ("ppc64le", 0x0003, 0),
    ],
)
def test_flags_of_the_cache(name: str, flags: int, bits: int) -> None:
    """Which entries are whose: bit 0 says ELF, the second byte says the architecture."""
    (machine,) = (each for each in MACHINES if each.name == name)
    assert machine.bits(flags) == bits
