"""Where libraries go: into the folder that the image's own loader searches, told by its cache, its ELF interpreter."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.backend.image import look, read_cache
from gpuhook.kernel.beneath import Root
from gpuhook.loader.merge import encode
from gpuhook.plan.ops import Image
from tests.rig.init import Init
from tests.rig.needs import unified_host
from tests.rig.rootfs import TRIPLET, make_rootfs, put
from tests.runtime.node import Node

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the interpreter's name and folders are x86-64's"),
]

GROUP = not unified_host()
MULTIARCH = f"/usr/lib/{TRIPLET}"
INTERPRETER = "lib64/ld-linux-x86-64.so.2"
DEBIAN = {"etc/debian_version": "12.5\n"}
FOLDERS = {"debian": (b"/lib/x86_64-linux-gnu/", b"/usr/lib/x86_64-linux-gnu/"), "rhel": (b"/lib64/", b"/usr/lib64/")}


def interpreter(kind: str) -> bytes:
    """The interpreter of this machine as this family of distributions builds it."""
    data = Path(f"/{INTERPRETER}").read_bytes()
    for folders in FOLDERS.values():
        if folders[1] + b"\0" in data:
            there = b"\0".join(folders) + b"\0"
            wanted = b"\0".join(FOLDERS[kind]) + b"\0"
            return data.replace(there, wanted.ljust(len(there), b"\0"))
    raise ValueError("the interpreter of this machine has no list of folders that we know")


def cache_of(*folders: str) -> bytes:
    """A loader cache with a library in each of these folders."""
    return encode([(f"lib{n}.so", f"{folder}/lib{n}.so", 0x303, 0, 0) for n, folder in enumerate(folders)][::-1])


def judged(folder: Path, files: dict[str, str | bytes | None]) -> Image:
    """What is thought of an image with these files."""
    put(str(folder), files)
    with Root(str(folder)) as root:
        return look(root, read_cache(root)[0])


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        ((MULTIARCH,), MULTIARCH),
        ((f"/lib/{TRIPLET}",), MULTIARCH),
        (("/usr/local/lib", "/lib64"), "/usr/lib64"),
        (("/usr/lib", "/usr/lib64"), "/usr/lib64"),
        (("/usr/lib",), "/usr/lib"),
        (("/usr/lib64", MULTIARCH), MULTIARCH),
    ],
)
@pytest.mark.parametrize("marks", [{}, DEBIAN])
def test_the_cache_tells(tmp_path: Path, folders: tuple[str, ...], expected: str, marks: dict[str, str]) -> None:
    """The usual folder that the image's own cache names, whatever mark of a distribution there is."""
    assert judged(tmp_path, {"etc/ld.so.cache": cache_of(*folders), **marks}).lib64 == expected


@pytest.mark.parametrize("marks", [{}, DEBIAN, {f"{MULTIARCH}/x": ""}])
@pytest.mark.parametrize("cache", [None, b"damaged", cache_of("/opt/lib")])
@pytest.mark.parametrize(("kind", "expected"), [("debian", MULTIARCH), ("rhel", "/usr/lib64")])
def test_without_a_telling_cache_the_interpreter_does(
    tmp_path: Path, kind: str, expected: str, cache: bytes | None, marks: dict[str, str]
) -> None:
    """The folder that it searches without any cache, though the image has marks of another family."""
    files = {INTERPRETER: interpreter(kind), "etc/ld.so.cache": cache, "usr/lib/x": "", **marks}
    image = judged(tmp_path, files)
    assert image.lib64 == expected
    assert image.lib32 == ("/usr/lib/i386-linux-gnu" if kind == "debian" else "/usr/lib")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "/usr/lib64"),
        (DEBIAN, MULTIARCH),
        ({"etc/debian_version": "-> nowhere"}, "/usr/lib64"),
        ({f"{MULTIARCH}/x": ""}, MULTIARCH),
        ({INTERPRETER: b"of another C library", **DEBIAN}, MULTIARCH),
        ({INTERPRETER: b"of another C library"}, "/usr/lib64"),
    ],
)
def test_then_the_marks_do(tmp_path: Path, files: dict[str, str | bytes | None], expected: str) -> None:
    """An image without a loader that we know, as one of static programs: as nvidia-container-cli does."""
    assert judged(tmp_path, files).lib64 == expected


def sparse(path: str) -> None:
    with open(path, "wb") as file:
        file.truncate(40 << 30)


ODD: dict[str, Callable[[str], object]] = {
    "FIFO": os.mkfifo,
    "device": lambda path: os.mknod(path, 0o020666, os.makedev(1, 5)),
    "folder": os.mkdir,
    "40 GiB": sparse,
    "link out": lambda path: os.symlink("../" * 20 + f"lib/{TRIPLET}/ld-linux-x86-64.so.2", path),
    "link to a file of the kernel": lambda path: os.symlink("/proc/kmsg", path),
    "magic link": lambda path: os.symlink("/proc/self/exe", path),
    "loop": lambda path: os.symlink(os.path.basename(path), path),
}


@pytest.mark.attack
@pytest.mark.parametrize("form", ODD)
def test_an_interpreter_that_is_none(tmp_path: Path, form: str) -> None:
    """It is not waited for and not read as a whole; the marks tell then."""
    (tmp_path / "lib64").mkdir()
    ODD[form](f"{tmp_path}/{INTERPRETER}")
    tracemalloc.start()
    assert judged(tmp_path, {}).lib64 == "/usr/lib64"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_the_loader_finds_the_driver_without_any_cache(node: Node, tmp_path: Path) -> None:
    """No mark, no cache, an /etc that is somebody else's, so that none can be written: the folder is the right one.

    The tree is one from before the merge of / and /usr, so that the folder does not exist either.
    """
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    os.unlink(f"{rootfs}/lib")
    shutil.move(f"{rootfs}/usr/lib/{TRIPLET}", f"{rootfs}/lib/{TRIPLET}")
    os.unlink(f"{rootfs}/etc/debian_version")
    os.unlink(f"{rootfs}/etc/ld.so.cache")
    (tmp_path / "etc").mkdir()
    with Init(rootfs, group=GROUP, binds=[(str(tmp_path / "etc"), "/etc")]) as init:
        done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=all")
        assert done.status == 0, done.stderr
        seen = init.run("/bin/probe", "dlopen:libcuda.so.1").seen
    assert seen.library("libcuda.so.1")["file"] == f"{MULTIARCH}/libcuda.so.550.54.14"
    assert os.listdir(tmp_path / "etc") == []
