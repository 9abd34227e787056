"""`configure --dry-run`: what would be done, in lines or as JSON, without doing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.driver.elf import shared_object
from fixtures.driver.model import FakeDriver
from tests.engine_cli.cli import Cli, as_nobody, open_folders
from tests.rig.rootfs import TRIPLET, make_rootfs, put
from tests.rig.snapshot import snapshot


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A tree of each kind."""
    folder = tmp_path_factory.mktemp("trees")
    return {kind: make_rootfs(f"{folder}/{kind}", kind) for kind in ("debian", "rhel", "busybox")}


def test_nothing_is_changed(cli: Cli, driver: FakeDriver, trees: dict[str, str]) -> None:
    """Neither the host, nor the tree, nor the mount table; no process is needed."""
    before = snapshot(trees["debian"], driver.folder)
    for words in ((), ("--json",), ("--pid=1",), ("--pid=4999999",)):
        assert cli("configure", "--dry-run", "-dall", "-cugvDn", "--compat32", *words, trees["debian"]).status == 0
    assert before.differences(snapshot(trees["debian"], driver.folder)) == []


@pytest.mark.parametrize(
    ("kind", "folder"), [("debian", f"/usr/lib/{TRIPLET}"), ("rhel", "/usr/lib64"), ("busybox", "/usr/lib64")]
)
def test_libraries_go_where_the_image_looks(
    cli: Cli, driver: FakeDriver, trees: dict[str, str], kind: str, folder: str
) -> None:
    """The plan is that of this very tree."""
    lines = cli.lines("configure", "--dry-run", "-d0", "-c", trees[kind])
    source = f"{driver.root}{driver.library('libcuda.so')}"
    assert f"bind file {source} at {folder}/libcuda.so.550.54.14 (ro,nosuid,nodev)" in lines


def test_lines_are_in_the_order_of_doing(cli: Cli, trees: dict[str, str]) -> None:
    """Procfs, programs, libraries, links, firmware, sockets, nodes, cache; a rule behind each node."""
    lines = cli.lines("configure", "--dry-run", "-d1", "--utility", trees["debian"])
    words = [line.split(" ")[0] for line in lines]
    assert words[0] == "tmpfs"
    assert words[-1] == "merge"
    assert lines[lines.index(next(line for line in lines if "/dev/nvidia0" in line)) + 1] == "allow c 195:0 rw"
    texts = ("nvidia-smi", "libnvidia-ml.so.550", "link ", "/lib/firmware", "bind socket", "/dev/nvidiactl")
    places = [next(place for place, line in enumerate(lines) if text in line) for text in texts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("option", "gone"),
    [
        ("--no-cgroups", ["allow c 195:255 rw", "allow c 195:2 rw"]),
        ("--no-persistenced", ["nvidia-persistenced/socket"]),
        ("--no-fabricmanager", ["nvidia-fabricmanager/socket"]),
        ("--no-gsp-firmware", ["gsp_ga10x.bin", "gsp_tu10x.bin"]),
        ("--no-devbind", ["bind device"]),
    ],
)
def test_what_options_leave_out(cli: Cli, trees: dict[str, str], option: str, gone: list[str]) -> None:
    """Exactly the lines that they are about."""
    base = cli.lines("configure", "--dry-run", "-d0", "-u", trees["debian"])
    less = cli.lines("configure", "--dry-run", "-d0", "-u", option, trees["debian"])
    assert less == [line for line in base if not any(text in line for text in gone)]
    assert less != base


def test_json_has_the_operations(cli: Cli, driver: FakeDriver, trees: dict[str, str]) -> None:
    """Each with its kind and its fields, the GPUs, the driver's version."""
    table = json.loads(cli("configure", "--dry-run", "--json", "-d", "2,0", "-c", trees["debian"]).stdout)
    assert table["driver_version"] == "550.54.14"
    assert table["rootfs"] == trees["debian"]
    assert table["gpus"] == [driver.gpus[2].uuid, driver.gpus[0].uuid]
    bind = next(op for op in table["operations"] if op.get("target") == "/dev/nvidia1")
    fields = {
        "operation": "bind",
        "source": f"{driver.root}/dev/nvidia1",
        "target": "/dev/nvidia1",
        "kind": "device",
        "flags": ["ro", "nosuid", "noexec"],
        "device": [195, 1],
        "optional": False,
    }
    assert {name: bind[name] for name in fields} == fields
    assert {"operation": "allow", "major": 195, "minor": 1} in table["operations"]
    kinds = {op["operation"] for op in table["operations"]}
    assert kinds == {"tmpfs", "bind", "link", "allow", "mergecache"}
    merged = next(op for op in table["operations"] if op["operation"] == "mergecache")
    assert {"soname": "libcuda.so.1", "path": driver.library("libcuda.so"), "bits": 64} in merged["entries"]


def test_root_is_not_needed(driver: FakeDriver, trees: dict[str, str], cli: Cli) -> None:
    """Anybody who can read the files can ask."""
    open_folders(trees["debian"])
    words = ("configure", "--dry-run", "-dall", "-cu", "--no-cgroups", trees["debian"])
    assert as_nobody(driver.root, *words) == (0, "".join(f"{line}\n" for line in cli.lines(*words)), "")


@pytest.mark.parametrize(
    ("rootfs", "why"), [("/nowhere/at/all", "no such file or directory"), ("/etc/passwd", "not a directory")]
)
def test_a_tree_that_is_none(cli: Cli, rootfs: str, why: str) -> None:
    """There is nothing to plan for."""
    assert cli.refusal("configure", "--dry-run", rootfs) == f"container error: open failed: {rootfs}: {why}"


def test_modules_are_not_loaded(program: str, tmp_path: Path, trees: dict[str, str]) -> None:
    """Not even with --load-kmods: missing nodes stay missing."""
    from fixtures.driver.build import build

    driver = build(f"{tmp_path}/root", gpus=[{}, {"state": "no-node"}])
    before = snapshot(driver.folder)
    assert Cli(program, driver.root)("configure", "--dry-run", "-d0", trees["debian"], top=("-k",)).status == 0
    assert before.differences(snapshot(driver.folder)) == []


@pytest.mark.parametrize(("mode", "there"), [("ldconfig", True), ("mount", True), ("disabled", False), ("", True)])
def test_the_images_newer_cuda_libraries(cli: Cli, tmp_path: Path, mode: str, there: bool) -> None:
    """They are named in the loader's cache, or with `disabled` not at all; the default is `mount`."""
    rootfs = make_rootfs(f"{tmp_path}/rootfs", "debian")
    compat = "usr/local/cuda/compat/libcuda.so.575.57.08"
    put(rootfs, {compat: shared_object("libcuda.so.1")})
    option = (f"--cuda-compat-mode={mode}",) if mode else ()
    table = json.loads(cli("configure", "--dry-run", "--json", "-d0", "-c", *option, rootfs).stdout)
    merged = next(op for op in table["operations"] if op["operation"] == "mergecache")
    assert (f"/{compat}" in {entry["path"] for entry in merged["entries"]}) == there
