"""gpuhook-cli on real driver roots: what `list` and `info` print is what the packages ship."""

from __future__ import annotations

import os

import pytest

from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.model import Inventory
from gpuhook.engine_cli import main
from tests.real_driver.roots import Real

pytestmark = pytest.mark.real_driver


@pytest.fixture
def inventory(real: Real) -> Inventory:
    return take_inventory(real.host)


def printed(capfd: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    """The lines that a command prints; it succeeds."""
    capfd.readouterr()
    assert main(list(argv)) == 0
    return capfd.readouterr().out.splitlines()


def paths(inventory: Inventory, bits: int) -> list[str]:
    return [library.path for library in inventory.libraries if library.bits == bits]


def test_list_prints_the_libraries_of_the_root(
    real: Real, inventory: Inventory, capfd: pytest.CaptureFixture[str]
) -> None:
    """64-bit ones with -l, then the 32-bit ones with --compat32; each is a file of the root."""
    wide, narrow = paths(inventory, 64), paths(inventory, 32)
    assert wide == printed(capfd, f"--root={real.root}", "list", "-l")
    assert [*wide, *narrow] == printed(capfd, f"--root={real.root}", "list", "-l", "--compat32")
    assert narrow
    assert all(os.path.isfile(f"{real.root}{path}") for path in (*wide, *narrow))


def test_list_prints_the_blocks_that_are_asked_for(
    real: Real, inventory: Inventory, capfd: pytest.CaptureFixture[str]
) -> None:
    """Programs, firmware, and everything without an option, in the order of the blocks."""
    root = f"--root={real.root}"
    assert list(inventory.binaries) == printed(capfd, root, "list", "-b")
    assert list(inventory.firmware) == printed(capfd, root, "list", "-f")
    everything = printed(capfd, root, "list")
    blocks = [
        *inventory.binaries,
        *paths(inventory, 64),
        *paths(inventory, 32),
        *inventory.sockets,
        *inventory.firmware,
    ]
    assert everything[-len(blocks) :] == blocks


def test_info_without_a_gpu_says_what_nvml_says(real: Real, capfd: pytest.CaptureFixture[str]) -> None:
    """The real NVML of this driver is asked, and finds no module: NVML's own words, in nvidia-container-cli's form."""
    assert main([f"--root={real.root}", "info"]) == 1
    first = capfd.readouterr().err.splitlines()[0]
    assert first == "nvidia-container-cli: initialization error: nvml error: driver not loaded"
