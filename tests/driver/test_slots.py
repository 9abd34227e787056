"""Debian's slots: several series of the driver side by side, each with folders for its libraries and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.driver.kernel_view import proc_driver
from gpuhook.driver import tables
from gpuhook.driver.inventory import identity, take_inventory
from gpuhook.driver.model import Host
from tests.driver.roots import VERSION, WIDE, core


def touch(root: Path, path: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    proc_driver(f"{tmp_path}/proc", VERSION, ())
    return Host(driver_root=str(tmp_path), proc=f"{tmp_path}/proc", sys=f"{tmp_path}/sys")


@pytest.mark.parametrize("slot", ["current", "tesla", "tesla-550", "legacy-550xx"])
def test_programs_come_from_the_slot_of_libcuda(tmp_path: Path, host: Host, slot: str) -> None:
    """Even where /usr/bin leads to another series' program."""
    core(tmp_path, f"{WIDE}/nvidia/{slot}")
    touch(tmp_path, f"/usr/lib/nvidia/{slot}/nvidia-smi")
    touch(tmp_path, "/usr/lib/nvidia/other/nvidia-smi")
    touch(tmp_path, "/usr/bin/nvidia-debugdump")
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/other/nvidia-smi")
    assert take_inventory(host).binaries == (f"/usr/lib/nvidia/{slot}/nvidia-smi", "/usr/bin/nvidia-debugdump")


def test_without_a_slot_no_slot_is_searched(tmp_path: Path, host: Host) -> None:
    """A program of some series that nobody installed for this driver is not taken."""
    core(tmp_path)
    touch(tmp_path, "/usr/lib/nvidia/current/nvidia-smi")
    assert take_inventory(host).binaries == ()


@pytest.mark.parametrize(
    "libcuda", ["/usr/lib/x/libcuda.so.1", "/nvidia/current/x/libcuda.so.1", "/usr/lib/x/nvidia/../libcuda.so.1", ""]
)
def test_only_a_known_slot_counts(libcuda: str) -> None:
    """A folder's name that is none of Debian's does not become a place to search."""
    assert tables.slot_folder(libcuda, VERSION) == ""


def test_a_new_program_in_a_slot_changes_the_identity(tmp_path: Path, host: Host) -> None:
    """So that what is kept does not outlive it."""
    touch(tmp_path, "/usr/lib/nvidia/current/nvidia-smi")
    before = identity(host)
    touch(tmp_path, "/usr/lib/nvidia/current/nvidia-debugdump")
    assert identity(host) != before
