"""AC-78: a driver root full of traps. Nothing from outside of it, nothing that is not a regular file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.driver.roots import CORE, VERSION, WIDE, cache, core, find, put
from tests.rig.needs import need

pytestmark = pytest.mark.attack
NAME = f"{WIDE}/libnvidia-nscq.so.{VERSION}"


@pytest.fixture(params=[True, False], ids=["in the cache", "in a folder"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A driver with its core, beside other people's files; the trap is in the cache or in a folder only."""
    (tmp_path / "outside").mkdir()
    put(tmp_path, f"/outside/libnvidia-nscq.so.{VERSION}")
    place = tmp_path / "root"
    entries = core(place)
    if request.param:
        cache(place, [*entries, ("libnvidia-nscq.so.1", NAME)])
    return place


def assert_left_out(root: Path, why: str = "") -> None:
    found, missing = find(root)
    assert [library.stem for library in found] == list(CORE)
    assert "libnvidia-nscq.so: not installed" in missing
    assert why in missing


@pytest.mark.parametrize(
    "target",
    [
        "/etc/shadow",
        "../../../../etc/shadow",
        f"../../../../outside/libnvidia-nscq.so.{VERSION}",
        f"/outside/libnvidia-nscq.so.{VERSION}",
        f"/../outside/libnvidia-nscq.so.{VERSION}",
        "/proc/self/exe",
        "loop",
    ],
)
def test_links_in_place_of_a_library(root: Path, target: str) -> None:
    """A link leads inside the root or nowhere; what it leads to must have a driver library's name."""
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/shadow").write_text("secret")
    (root / WIDE.lstrip("/") / "loop").symlink_to("loop")
    (root / NAME.lstrip("/")).symlink_to(target)
    assert_left_out(root)


def test_an_absolute_link_to_an_outside_path(root: Path) -> None:
    """The real path of a file outside, as a link's target, is looked up inside."""
    (root / NAME.lstrip("/")).symlink_to(root.parent / f"outside/libnvidia-nscq.so.{VERSION}")
    assert_left_out(root)


def test_a_fifo(root: Path) -> None:
    """It is not opened: nobody would ever write into it."""
    os.mkfifo(root / NAME.lstrip("/"))
    assert_left_out(root, "a FIFO, not a regular file")


def test_a_folder(root: Path) -> None:
    """A folder of the right name is none."""
    (root / NAME.lstrip("/")).mkdir()
    assert_left_out(root, "a folder, not a regular file")


def test_a_socket(root: Path) -> None:
    """Nor is a socket."""
    folder = os.open(root / WIDE.lstrip("/"), os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{NAME.rpartition('/')[2]}")
    os.close(folder)
    assert_left_out(root, "a socket, not a regular file")


@pytest.mark.engine
def test_a_device(root: Path) -> None:
    """Nor a device, whose opening could have effects."""
    need()
    os.mknod(root / NAME.lstrip("/"), 0o020666, os.makedev(1, 5))
    assert_left_out(root, "a character device, not a regular file")


def test_a_folder_that_links_out(root: Path) -> None:
    """A link as one of the usual folders does not help."""
    (root / "usr/lib64").symlink_to(root.parent / "outside")
    (root / "usr/local").symlink_to("../../outside")
    assert_left_out(root)


def test_a_library_that_leads_to_another_one(root: Path) -> None:
    """One library does not stand for another, even of the right version."""
    (root / NAME.lstrip("/")).symlink_to(f"libcuda.so.{VERSION}")
    assert_left_out(root)


def test_a_huge_sparse_library_costs_nothing(root: Path) -> None:
    """40 GiB of zeros are judged by their first bytes."""
    with open(root / NAME.lstrip("/"), "wb") as file:
        file.truncate(40 << 30)
    assert_left_out(root)
