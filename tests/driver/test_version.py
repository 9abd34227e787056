"""The module's version, and the reasons for its absence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.driver.model import Host
from gpuhook.driver.version import module_version, open_root, parse_version
from gpuhook.errors import GpuhookError
from gpuhook.refusals import DriverFault, DriverNotLoaded, DriverRootWrong, NoAdapter, NotCovered

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue May 13 01:41:01 UTC 2025\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (b@h)  Thu Feb 22\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (PROPRIETARY, "535.261.03"),
        (OPEN, "550.54.14"),
        (OPEN.replace("x86_64", "aarch64"), "550.54.14"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed\nGCC version: gcc 12.2.0\n", "390.157"),
        ("GCC version:  gcc version 12.2.0\n" + PROPRIETARY, "535.261.03"),
        ("", ""),
        ("NVRM version:", ""),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  12:00 1.2.3.4.5 ../../etc", ""),
        ("GCC version: Kernel Module  12.2.0", ""),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  ٥٣٥.٢", ""),
    ],
)
def test_versions_are_found_in_the_modules_own_line(text: str, version: str) -> None:
    """Both kinds of module say it after the words Kernel Module; nothing else is taken for it."""
    assert parse_version(text) == version


def failure(root: Path, **host: str) -> GpuhookError:
    views = {"driver_root": str(root), "proc": f"{root}/none", "sys": f"{root}/none", **host}
    where = Host(driver_root=views["driver_root"], proc=views["proc"], sys=views["sys"])
    with pytest.raises(GpuhookError) as caught, open_root(where) as opened:
        module_version(opened, where)
    return caught.value


def loaded(folder: Path, text: str = OPEN) -> None:
    (folder / "driver/nvidia").mkdir(parents=True)
    (folder / "driver/nvidia/version").write_text(text)


def test_the_driver_roots_own_proc_counts(tmp_path: Path) -> None:
    """The version is read below the driver root."""
    loaded(tmp_path / "proc")
    host = Host(driver_root=str(tmp_path))
    with open_root(host) as root:
        assert module_version(root, host) == "550.54.14"


def test_a_driver_root_that_does_not_exist(tmp_path: Path) -> None:
    """The path and the key of config.toml are named."""
    error = failure(tmp_path / "gone")
    assert isinstance(error, DriverRootWrong)
    assert str(tmp_path / "gone") in error.text
    assert "nvidia-container-cli.root" in error.where


def test_an_empty_driver_root(tmp_path: Path) -> None:
    """The driver container does not run: that is said, not that the module is missing."""
    error = failure(tmp_path)
    assert isinstance(error, DriverRootWrong)
    assert "is empty" in error.text


def test_a_driver_root_without_its_own_proc(tmp_path: Path) -> None:
    """The module runs, and the driver root does not show it."""
    loaded(tmp_path / "hostproc")
    (tmp_path / "root/usr").mkdir(parents=True)
    error = failure(tmp_path / "root", proc=str(tmp_path / "hostproc"))
    assert isinstance(error, DriverRootWrong)
    assert "its own /proc" in error.hint


def test_a_module_without_a_version(tmp_path: Path) -> None:
    """A file that says nothing is the driver's fault, with the file's name."""
    loaded(tmp_path / "proc", "nonsense\n")
    error = failure(tmp_path)
    assert isinstance(error, DriverFault)
    assert error.where == "/proc/driver/nvidia/version"


def test_machines_that_are_not_served(tmp_path: Path) -> None:
    """A Tegra is refused by name, with the program that serves it."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").touch()
    error = failure(tmp_path)
    assert isinstance(error, NotCovered)
    assert "Tegra" in error.text
    assert "nvidia-container-cli" in error.hint


def test_wsl_without_a_gpu(tmp_path: Path) -> None:
    """WSL1, or WSL2 on a Windows without a GPU: there is no module to load."""
    (tmp_path / "none").mkdir()
    (tmp_path / "none/version").write_text("Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)\n")
    error = failure(tmp_path, driver_root="/")
    assert isinstance(error, NoAdapter)
    assert "/dev/dxg" in error.text


def pci(sys: Path, address: str, vendor: str = "0x10de", kind: str = "0x030200", driver: str = "") -> None:
    folder = sys / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")
    if driver:
        (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


@pytest.mark.parametrize(
    ("devices", "says", "hint"),
    [
        ([], "no NVIDIA GPU is on the PCI bus", "without a GPU"),
        ([{"vendor": "0x8086"}], "no NVIDIA GPU", "without a GPU"),
        ([{"kind": "0x040300"}], "no NVIDIA GPU", "without a GPU"),
        ([{}], "1 NVIDIA GPU: 0000:00:00.0", "modprobe nvidia"),
        ([{"driver": "nouveau"}], "0000:00:00.0 is driven by nouveau", "blacklist nouveau"),
        ([{"driver": "vfio-pci"}], "driven by vfio-pci", "virtual machine"),
    ],
)
def test_why_the_module_is_not_loaded(tmp_path: Path, devices: list[dict[str, str]], says: str, hint: str) -> None:
    """The PCI bus tells whether there is a GPU at all and who has it."""
    (tmp_path / "root/usr").mkdir(parents=True)
    for number, device in enumerate(devices):
        pci(tmp_path / "sys", f"0000:{number:02x}:00.0", **device)
    error = failure(tmp_path / "root", sys=str(tmp_path / "sys"))
    assert isinstance(error, DriverNotLoaded)
    assert says in error.text
    assert hint in error.hint
