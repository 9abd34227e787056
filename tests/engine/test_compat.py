"""The image's newer CUDA libraries: named in its loader cache where they can work, never mounted, never trusted."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.driver.build import build
from fixtures.driver.elf import shared_object
from fixtures.driver.native_build import libcuda
from gpuhook.backend.compat import FOLDER, find_compat
from gpuhook.kernel.beneath import Root
from gpuhook.plan.ops import CacheEntry
from tests.rig.init import Init
from tests.rig.needs import unified_host
from tests.rig.rootfs import TRIPLET, index, make_rootfs, put
from tests.runtime.node import RULES, Node

pytestmark = pytest.mark.engine

GROUP = not unified_host()
LIBDIR = f"/usr/lib/{TRIPLET}"
REAL = "/usr/local/cuda-12.8/compat"
COMPUTE = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"


def image(folder: Path, version: str = "575.51.03", real: str = REAL) -> str:
    """A tree with CUDA's libraries of this version as NVIDIA's images have them."""
    rootfs = make_rootfs(str(folder), "debian")
    put(
        rootfs,
        {
            "usr/local/cuda": f"-> {os.path.dirname(real)}",
            f"{real}/libcuda.so.{version}": libcuda((12, 9)),
            f"{real}/libcuda.so.1": f"-> libcuda.so.{version}",
            f"{real}/libcuda.so": "-> libcuda.so.1",
            f"{real}/libnvidia-nvvm.so.{version}": shared_object("libnvidia-nvvm.so.4"),
            f"{real}/libnvidia-gpucomp.so.{version}": shared_object(f"libnvidia-gpucomp.so.{version}"),
            f"{real}/other.so.{version}": shared_object("libc.so.6"),
        },
    )
    index(rootfs)
    return rootfs


@pytest.mark.parametrize(
    ("version", "mode", "model", "cuda"),
    [
        ("575.51.03", "ldconfig", "Tesla T4", 12090),
        ("575.51.03", "mount", "Tesla T4", 12090),
        ("575.51.03", "disabled", "Tesla T4", 12040),
        ("575.51.03", "hook", "Tesla T4", 12040),
        ("575.51.03", "ldconfig", "NVIDIA GeForce RTX 3090", 12040),
        ("550.90.07", "ldconfig", "Tesla T4", 12040),
        ("470.1", "ldconfig", "Tesla T4", 12040),
    ],
)
def test_the_newer_libraries_win_where_they_can_work(
    node: Node, tmp_path: Path, version: str, mode: str, model: str, cuda: int
) -> None:
    """Newer by a major version, on a GPU that supports it, and not switched off; nothing of them is mounted."""
    driver = build(str(tmp_path / "driver"), gpus=[{"index": 0, "name": model}])
    text = f'[nvidia-container-runtime.modes.legacy]\ncuda-compat-mode = "{mode}"\n'
    config = node.config(cli={**RULES, "root": driver.root}, text=text)
    with Init(image(tmp_path / "rootfs", version), group=GROUP) as init:
        done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=all", COMPUTE, config=config)
        assert (done.status, done.stderr) == (0, "")
        seen = init.run("/bin/probe", "dlopen:libcuda.so.1", "dlopen:libcuda.so", "dlopen:libnvidia-ml.so.1").seen
        assert not [point for point in init.mount_points if "compat" in point or version in point]
    for name in ("libcuda.so.1", "libcuda.so"):
        assert seen.library(name)["cuda"] == cuda
    assert seen.library("libcuda.so.1")["file"].startswith(REAL if cuda == 12090 else LIBDIR)
    assert seen.library("libnvidia-ml.so.1")["file"] == f"{LIBDIR}/libnvidia-ml.so.550.54.14"


def test_without_cuda_nobody_looks(node: Node, tmp_path: Path) -> None:
    """A container that wants nvidia-smi only."""
    with Init(image(tmp_path / "rootfs"), group=GROUP) as init:
        done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility")
        assert done.status == 0
        assert "575" not in Path(init.path("/etc/ld.so.cache")).read_bytes().decode("latin-1")


def found(rootfs: Path) -> tuple[tuple[CacheEntry, ...], str]:
    with Root(str(rootfs)) as root:
        return find_compat(root)


def tree(folder: Path, **files: bytes) -> Path:
    """A tree with these files in the compat folder, where `_` is a dot."""
    place = Path(f"{folder}{FOLDER}")
    place.mkdir(parents=True)
    for name, content in files.items():
        (place / name.replace("_", ".")).write_bytes(content)
    return folder


def test_names_and_places(tmp_path: Path) -> None:
    """SONAME, file name and libcuda's plain name lead to the real file; what is not CUDA's stays out."""
    entries, version = found(Path(image(tmp_path / "rootfs")))
    assert version == "575.51.03"
    assert {(entry.soname, entry.path.rpartition("/")[2]) for entry in entries} == {
        ("libcuda.so.1", "libcuda.so.575.51.03"),
        ("libcuda.so.575.51.03", "libcuda.so.575.51.03"),
        ("libcuda.so", "libcuda.so.575.51.03"),
        ("libnvidia-nvvm.so.4", "libnvidia-nvvm.so.575.51.03"),
        ("libnvidia-nvvm.so.575.51.03", "libnvidia-nvvm.so.575.51.03"),
        ("libnvidia-gpucomp.so.575.51.03", "libnvidia-gpucomp.so.575.51.03"),
    }
    assert {entry.path.rpartition("/")[0] for entry in entries} == {REAL}


def test_the_newest_of_several(tmp_path: Path) -> None:
    """By number, not by text; only files of one version go together."""
    cuda, nvvm = shared_object("libcuda.so.1"), shared_object("libnvidia-nvvm.so.4")
    root = tree(tmp_path, libcuda_so_99_1=cuda, libcuda_so_560_35=cuda, **{"libnvidia-nvvm_so_99_1": nvvm})
    assert [entry.soname for entry in found(root)[0]] == ["libcuda.so.1", "libcuda.so.560.35", "libcuda.so"]
    assert found(root)[1] == "560.35"


@pytest.mark.attack
def test_a_folder_of_hundreds_of_thousands(tmp_path: Path) -> None:
    """AC-25: listing stops early, and the folder is not used."""
    root = tree(tmp_path, libcuda_so_575_1=shared_object("libcuda.so.1"))
    for number in range(5000):
        os.mknod(f"{tmp_path}{FOLDER}/{number:0250}")
    assert found(root) == ((), "")


HOSTILE = {
    "a text": b"x" * 100,
    "nothing": b"",
    "cut": shared_object("libcuda.so.1")[:70],
    "another library": shared_object("libc.so.6"),
    "a path": shared_object("libcuda.so.1/../x"),
    "32 bits": shared_object("libcuda.so.1", bits=32),
    "another machine": shared_object("libcuda.so.1")[:18]
    + struct.pack("<H", 243)
    + shared_object("libcuda.so.1")[20:],
}


@pytest.mark.attack
@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_library_of_cuda(tmp_path: Path, what: str) -> None:
    """AC-37: ignored."""
    assert found(tree(tmp_path, libcuda_so_575_1=HOSTILE[what])) == ((), "")


@pytest.mark.attack
@pytest.mark.parametrize(
    "name",
    [f"libcuda.so.{'9' * 10_000}"[:255], "libcuda.so.1;x", "libcuda.so.575.1\n", "libcuda.so.575", "libcuda.so."],
)
def test_names_that_are_no_version(tmp_path: Path, name: str) -> None:
    """AC-37: no version, no library."""
    os.makedirs(f"{tmp_path}{FOLDER}")
    Path(f"{tmp_path}{FOLDER}/{name}").write_bytes(shared_object("libcuda.so.1"))
    assert found(tmp_path) == ((), "")


@pytest.mark.attack
@pytest.mark.parametrize("kind", ["FIFO", "device", "folder", "link out", "huge"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    """AC-37: not opened, or read in part only."""
    os.makedirs(f"{tmp_path}{FOLDER}")
    path = f"{tmp_path}{FOLDER}/libcuda.so.575.1"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o020666, os.makedev(1, 5))
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "link out":
        os.symlink("../../../../../../../../../../../etc/passwd", path)
    else:
        with open(path, "wb") as file:
            file.truncate(40 << 30)
    assert found(tmp_path) == ((), "")


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300), st.integers(0, 2000))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes, place: int) -> None:
    """Mutated libraries give entries with their own name and place, or nothing."""
    good = shared_object("libcuda.so.1")
    content = good[:place] + data + good[place + len(data) :]
    entries, _ = found(tree(tmp_path_factory.mktemp("image"), libcuda_so_575_1=content))
    assert {entry.path for entry in entries} <= {f"{FOLDER}/libcuda.so.575.1"}
