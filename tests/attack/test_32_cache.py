"""The container's loader cache and what is around it (threats.md 3.2, AC-26 to AC-31, AC-36, AC-37)."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fixtures.driver.build import build
from fixtures.driver.elf import shared_object
from gpuhook.backend.image import read_cache
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.model import Host
from gpuhook.kernel.beneath import Root
from gpuhook.loader.cache import LIMIT, MOST_ENTRIES, MOST_TEXT, lookup, parse
from gpuhook.loader.merge import encode, merge, rank
from tests.attack.rig import Lab, Run
from tests.loader.builds import tiny_elf
from tests.rig.rootfs import make_rootfs, put

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

CACHE, CONF = "/etc/ld.so.cache", "etc/ld.so.conf"
LIBDIR = "/usr/lib/x86_64-linux-gnu"
DRIVERS = f"{LIBDIR}/libcuda.so.550.54.14"
STALE = "ldcache-stale"  # the warning that ldconfig could not make a new cache
DAMAGED = b"no cache at all"


def cache_of(run: Run) -> dict[str, str]:
    """Name → path of the cache that the container saw."""
    content = run.result.seen.content(CACHE)
    assert content is not None
    data = content.encode("utf-8", "surrogateescape")
    return {name: path for name, path, *_ in reversed(parse(data).entries)}


def start(lab: Lab, prepare: Callable[[str], object], kind: str = "debian", **fields: object) -> Run:
    """A run of a glibc image whose tree is prepared; it starts, and its cache is a file that leads to the driver."""
    run = lab.start(f"read:{CACHE}", f"stat:{CACHE}", prepare=prepare, kind=kind, **fields)
    assert run.started, run.error
    assert run.result.seen.stat(CACHE)["kind"] == "file"
    assert cache_of(run)["libcuda.so.1"].endswith("/libcuda.so.550.54.14")
    return run


def test_ac_26_cache_is_a_link_to_a_host_file(lab: Lab) -> None:
    """SAFE: a regular file afterwards; the link's text names nothing inside the image, so a small cache is written."""
    run = start(lab, lambda rootfs: put(rootfs, {CACHE: f"-> {lab.canary}/file"}))
    assert set(cache_of(run).values()) == {path for path in cache_of(run).values() if "550.54.14" in path}


def test_ac_26_cache_is_a_link_to_a_file_of_the_kernel(lab: Lab) -> None:
    """SAFE: not even read, since reading may have effects; ldconfig makes a new one."""
    run = start(lab, lambda rootfs: put(rootfs, {CACHE: "-> /proc/kmsg"}))
    assert "it leads to a file of the kernel" in run.said
    assert "libc.so.6" in cache_of(run)


def test_ac_27_cache_is_a_fifo(lab: Lab) -> None:
    """SAFE: not opened; ldconfig makes a new one from the image's libraries."""

    def prepare(rootfs: str) -> None:
        os.unlink(f"{rootfs}{CACHE}")
        os.mkfifo(f"{rootfs}{CACHE}")

    assert "libc.so.6" in cache_of(start(lab, prepare))


def fifo_of_configuration(rootfs: str) -> None:
    os.unlink(f"{rootfs}/{CONF}")
    os.mkfifo(f"{rootfs}/{CONF}")


def fifo_of_a_drop_in(rootfs: str) -> None:
    put(rootfs, {CONF: "include /etc/ld.so.conf.d/*.conf\n", "etc/ld.so.conf.d/a.conf": f"{LIBDIR}\n"})
    os.mkfifo(f"{rootfs}/etc/ld.so.conf.d/b.conf")


@pytest.mark.parametrize("form", [fifo_of_configuration, fifo_of_a_drop_in])
@pytest.mark.parametrize("damaged", [False, True])
def test_ac_27_configuration_is_a_fifo(lab: Lab, form: Callable[[str], None], damaged: bool) -> None:
    """SAFE in time: not read while the cache is good; else ldconfig hangs and is ended, and a warning tells of it."""

    def prepare(rootfs: str) -> None:
        form(rootfs)
        if damaged:
            put(rootfs, {CACHE: DAMAGED})

    run = start(lab, prepare)
    assert run.warnings == ([STALE] if damaged else [])
    assert ("libc.so.6" in cache_of(run)) != damaged
    assert "did not end within 4 s" in run.said or not damaged


def huge(rootfs: str) -> None:
    os.truncate(f"{rootfs}{CACHE}", 4 << 30)


def device(rootfs: str) -> None:
    os.unlink(f"{rootfs}{CACHE}")
    os.mknod(f"{rootfs}{CACHE}", 0o020666, os.makedev(1, 5))


@pytest.mark.parametrize("form", [huge, device])
def test_ac_28_cache_is_huge(lab: Lab, form: Callable[[str], None]) -> None:
    """SAFE: not read to its end, replaced by what ldconfig makes of the image."""
    run = start(lab, form)
    assert "libc.so.6" in cache_of(run)
    assert run.report.memory < 64 << 10


def test_ac_28_the_largest_cache_that_is_one(lab: Lab) -> None:
    """SAFE within the limits of time and memory: as many entries, and as much text, as is read at all."""
    folder = "x" * (MOST_TEXT // MOST_ENTRIES - 40)
    names = [f"lib{number:05}.so" for number in range(MOST_ENTRIES)]
    entries = [(name, f"/usr/lib/{folder}/{name}", 0x0303, 0, 0) for name in names]
    data = encode(sorted(entries, key=rank, reverse=True))
    assert len(parse(data).entries) == MOST_ENTRIES
    run = lab.start(f"stat:{CACHE}", prepare=lambda rootfs: put(rootfs, {CACHE: data}), kind="debian")
    assert run.started


# --- AC-29: corrupt caches ---


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """A good cache of the new format, damaged in every way."""
    count = struct.unpack_from("<I", data, 20)[0]
    table = 48 + 24 * count

    def patched(offset: int, form: str, *values: int) -> bytes:
        copy = bytearray(data)
        struct.pack_into(form, copy, offset, *values)
        return bytes(copy)

    yield "count 0xffffffff", patched(20, "<I", 0xFFFFFFFF)
    yield "count one too many", patched(20, "<I", count + 1)
    yield "size of the texts 0xffffffff", patched(24, "<I", 0xFFFFFFFF)
    yield "extensions past the end", patched(32, "<I", len(data) + 4)
    yield "extensions at an odd place", patched(32, "<I", 3)
    yield "other byte order", patched(28, "<B", 3)
    for name, place in (("flags", 48), ("name", 52), ("path", 56)):
        yield f"negative {name}", patched(place, "<i", -1)
        yield f"{name} past the end", patched(place, "<I", len(data) + 1)
        yield f"{name} in the header", patched(place, "<I", 0)
    yield "unterminated last text", data[: table + struct.unpack_from("<I", data, 24)[0]].rstrip(b"\0") + b"x"
    yield "both headers nested", b"ld.so-1.7.0\0" + struct.pack("<I", 0) + data + b"ld.so-1.7.0\0" + data
    yield "old header with 0xffffffff", b"ld.so-1.7.0\0" + struct.pack("<I", 0xFFFFFFFF) + data
    yield "old header alone", b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12) + b"a\0/a\0"
    yield "texts without an end", data[:table] + b"x" * (len(data) - table)
    yield "path with ..", data.replace(b"/usr/lib", b"/../../b")
    yield "path with a newline", data.replace(b"/usr/lib", b"/usr\nlib")
    yield "relative path", data.replace(b"/usr/lib", b"usr///li")
    yield "larger than the limit", data + bytes(LIMIT)
    yield "empty", b""
    yield "zeros", bytes(4096)
    for length in range(1, 65):
        yield f"cut to {length} bytes", data[:length]


def good_cache(folder: str) -> bytes:
    return Path(make_rootfs(folder, "debian"), CACHE[1:]).read_bytes()


def test_ac_29_every_corrupt_cache_of_a_container_is_ignored(lab: Lab) -> None:
    """SAFE: each is read to None or to entries that are sound, and merges; nothing is raised, in no time."""
    rootfs = f"{lab.folder}/rootfs"
    names = []
    for name, data in damages(good_cache(rootfs)):
        put(rootfs, {CACHE: data})
        with Root(rootfs) as root:
            cache, _ = read_cache(root)
        merged = parse(merge(cache, [("libcuda.so.1", DRIVERS, 64)]))
        assert lookup(merged, "libcuda.so.1", 64) == DRIVERS
        assert all(path.startswith("/") and "/../" not in path for _, path, *_ in merged.entries)
        names.append(name)
    assert len(names) > 80


def test_ac_29_every_corrupt_cache_of_a_driver_root_is_survived(lab: Lab) -> None:
    """SAFE: its entries are dropped, and the same libraries are found in the usual folders; nothing is raised."""
    driver = build(f"{lab.folder}/driver")
    host = Host(driver_root=driver.root, proc=driver.proc)
    good = Path(driver.root, CACHE[1:]).read_bytes()
    wanted = {library.path for library in take_inventory(host).libraries}
    for name, data in damages(good):
        Path(driver.root, CACHE[1:]).write_bytes(data)
        assert {library.path for library in take_inventory(host).libraries} == wanted, name


SOME = ["count 0xffffffff", "path past the end", "unterminated last text", "both headers nested", "path with ..",
        "path with a newline", "cut to 47 bytes", "cut to 20 bytes"]  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_ac_29_a_corrupt_cache_under_the_runtime(lab: Lab, name: str) -> None:
    """SAFE: as the container's it is made anew, as the driver root's it is passed over."""
    with TemporaryDirectory() as folder:
        data = dict(damages(good_cache(f"{folder}/good")))[name]
    run = start(lab, lambda rootfs: put(rootfs, {CACHE: data}))
    assert "libc.so.6" in cache_of(run) or name in ("both headers nested",)
    driver = build(f"{lab.folder}/driver", gpus=lab.node.driver.gpus)
    damaged = dict(damages(Path(driver.root, CACHE[1:]).read_bytes()))[name]
    Path(driver.root, CACHE[1:]).write_bytes(damaged)
    start(lab, lambda rootfs: None, config=lab.config(root=driver.root))


# --- AC-30 and AC-31: what ldconfig reads ---

INCLUDES = {
    "through process 1": "include /proc/1/root/CANARY/*.conf\ninclude /proc/1/root/CANARY/dir/x.conf\n",
    "climbing": "include ../../../../../../../../CANARY/*.conf\ninclude ../../../../../../CANARY/ld.so.conf\n",
    "absolute": "include /CANARY/*.conf\n/CANARY/dir\n",
    "every folder": "include /*/*/*/*/*/*\n",
    "itself": "include /etc/ld.so.conf\n",
    "100 000 includes": "include /etc/ld.so.conf.d/*.conf\n" * 100_000,
    "a device": "include /dev/zero\ninclude /image-zero\n",
    "a long line": f"include /{'x' * (1 << 20)}\n/{'y' * (1 << 20)}\n",
}


@pytest.mark.parametrize("form", INCLUDES)
@pytest.mark.parametrize("damaged", [False, True])
def test_ac_30_includes_that_leave_the_root(lab: Lab, form: str, damaged: bool) -> None:
    """SAFE in time: nothing of the host is read; where ldconfig fails over it, a small cache and a warning."""
    text = INCLUDES[form].replace("CANARY", lab.canary[1:]) + f"{LIBDIR}\n"

    def prepare(rootfs: str) -> None:
        put(rootfs, {CONF: text, "etc/ld.so.conf.d/a.conf": f"{LIBDIR}\n"})
        os.mknod(f"{rootfs}/image-zero", 0o020666, os.makedev(1, 5))
        if damaged:
            put(rootfs, {CACHE: DAMAGED})

    put(lab.canary, {"lib.conf": f"{lab.canary}/dir\n", "dir/libcanary.so.1": shared_object("libcanary.so.1")})
    run = start(lab, prepare)
    assert run.warnings in ([], [STALE])
    assert not any("canary" in path for path in cache_of(run).values())
    assert ("libc.so.6" in cache_of(run)) == (run.warnings == [])


@pytest.mark.parametrize("damaged", [False, True])
def test_ac_31_drop_in_folder_is_a_link(lab: Lab, damaged: bool) -> None:
    """SAFE: nobody writes a drop-in; what the link leads to is not in the image, and not read."""

    def prepare(rootfs: str) -> None:
        put(
            rootfs, {CONF: f"include /etc/ld.so.conf.d/*.conf\n{LIBDIR}\n", "etc/ld.so.conf.d": f"-> {lab.canary}/dir"}
        )
        if damaged:
            put(rootfs, {CACHE: DAMAGED})

    run = start(lab, prepare)
    assert "libc.so.6" in cache_of(run)


@pytest.mark.parametrize("form", ["the folder is a link", "link", "FIFO", "folder"])
def test_ac_36_auxiliary_cache(lab: Lab, form: str) -> None:
    """SAFE: ldconfig neither reads nor writes it, in the image or elsewhere."""
    place = "var/cache/ldconfig"

    def prepare(rootfs: str) -> None:
        put(rootfs, {CACHE: DAMAGED})
        if form == "the folder is a link":
            if os.path.isdir(f"{rootfs}/{place}"):
                os.rename(f"{rootfs}/{place}", f"{rootfs}/{place}.aside")
            os.symlink(f"{lab.canary}/dir", f"{rootfs}/{place}")
            return
        put(rootfs, {f"{place}/aux-cache": f"-> {lab.canary}/file"})
        if form != "link":
            os.unlink(f"{rootfs}/{place}/aux-cache")
            (os.mkfifo if form == "FIFO" else os.mkdir)(f"{rootfs}/{place}/aux-cache")

    run = start(lab, prepare)
    assert "libc.so.6" in cache_of(run)
    assert run.warnings == []
    assert not any(path.startswith(f"/{place}") for path in run.changes)


# --- AC-37: hostile objects ---


def hostile_objects() -> dict[str, bytes]:
    """Files that are nearly libraries."""
    good = shared_object("libcuda.so.1")

    def patched(offset: int, form: str, value: int) -> bytes:
        copy = bytearray(good)
        struct.pack_into(form, copy, offset, value)
        return bytes(copy)

    return {
        "libcuda.so.901.1": patched(60, "<H", 65535),  # sections
        "libcuda.so.902.1": patched(56, "<H", 65535),  # segments
        "libcuda.so.903.1": patched(32, "<Q", 1 << 62),  # offset of the segments
        "libcuda.so.904.1": patched(40, "<Q", (1 << 64) - 1),  # offset of the sections
        "libcuda.so.905.1": good[:100],
        "libcuda.so.906.1": good[:64] + b"\xff" * 4096,
        "libcuda.so.907.1": b"\x7fELF",
        f"libcuda.so.{'9' * 240}": good,
        f"libcuda.so.908.{'1.' * 100}1": good,
        "libcuda.so.1;x": good,
        "libcuda.so.1\n": good,
        "libcuda.so.$(id)": good,
        "libnvidia-ml.so.909": shared_object(f"libnvidia-ml.so.{'9' * 10_000}"),
        "libcuda.so.910.1": shared_object("../../../etc/passwd"),
        "libcuda.so.911.1": shared_object("libcuda.so.1\nx"),
        "libcuda.so.912.1": shared_object("libc.so.6"),
        "libcuda.so.913.1": with_note(0xFFFFFFFF, 0xFFFFFFFF),  # a note that leads back into itself
        "libcuda.so.914.1": with_note(0, 0),
        "libcuda.so.915.1": with_note(0xFFFFFFF4, 0),
    }


def with_note(owner: int, size: int) -> bytes:
    """A library, of no CUDA by its SONAME, whose first note says that owner and content have these sizes."""
    good = tiny_elf(b"libcuda.so.x", abi=(2, 3, 99))
    sizes = struct.pack("<III", 4, 16, 1)
    assert good.count(sizes) == 1
    return good.replace(sizes, struct.pack("<III", owner, size, 1))


@pytest.mark.parametrize("damaged", [False, True])
def test_ac_37_hostile_objects_in_the_compat_folder(lab: Lab, damaged: bool) -> None:
    """SAFE: none of them is mounted, and none takes the driver's place; ldconfig survives them or is ended."""
    folders = ("usr/local/cuda/compat", LIBDIR[1:])

    def prepare(rootfs: str) -> None:
        for folder in folders:
            put(rootfs, {f"{folder}/{name}": data for name, data in hostile_objects().items()})
            with open(f"{rootfs}/{folder}/libcuda.so.999", "wb") as file:
                file.truncate(40 << 30)
        if damaged:
            put(rootfs, {CACHE: DAMAGED})

    run = start(lab, prepare)
    sources = [line.split(" ")[3] for line in run.result.seen.mounts]
    assert not any("compat" in source or "libcuda.so.9" in source for source in sources)
    assert cache_of(run)["libcuda.so.1"] == DRIVERS
    assert "/etc/passwd" not in str(cache_of(run))


def test_ac_37_a_compat_library_is_a_file_of_the_kernel(lab: Lab) -> None:
    """SAFE: not even read, since reading may have effects."""
    run = start(lab, lambda rootfs: put(rootfs, {"usr/local/cuda/compat/libcuda.so.999.1": "-> /proc/kmsg"}))
    assert "it leads to a file of the kernel" in run.said
