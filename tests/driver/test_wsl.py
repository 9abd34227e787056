"""WSL2: Windows' driver is found without loading anything, and without a kernel module."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fixtures.driver.model import default_gpu
from fixtures.driver.wsl import COMPONENTS, DRIVER, LIBRARIES, OLD_DRIVER, STORE, VERSION, build_wsl
from gpuhook.driver import kept
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.model import Host, Inventory, Node, Selection
from gpuhook.driver.query import complete, cuda_version, gpu_facts
from gpuhook.driver.select import asks_nvml, select
from gpuhook.errors import GpuhookError, UnknownDevice
from gpuhook.refusals import NoAdapter
from gpuhook.request.model import DeviceChoice
from tests.rig.needs import need

pytestmark = pytest.mark.engine


@pytest.fixture
def host(tmp_path: Path) -> Host:
    need("gcc")
    tmp_path.chmod(0o755)
    root = build_wsl(str(tmp_path / "wsl"))
    return Host(driver_root=root, proc=f"{root}/proc", sys=f"{root}/sys")


def choose(inventory: Inventory, *names: str) -> Selection:
    choice = DeviceChoice(names=names, sources=("X",))
    return select(complete(inventory, choice) if asks_nvml(inventory, choice) else inventory, choice)[0]


def refusal(host: Host) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        take_inventory(host)
    return caught.value


def test_what_there_is(host: Host) -> None:
    """One node, the libraries by their SONAMEs whatever their version, and what Windows' drivers have."""
    inventory = take_inventory(host)
    assert inventory.wsl
    assert inventory.nodes == (Node(path="/dev/dxg", major=10, minor=125),)
    assert [(each.path.removeprefix(f"{LIBRARIES}/"), each.soname) for each in inventory.libraries] == [
        ("libnvidia-ml.so.1", "libnvidia-ml.so.1"),
        ("libcuda.so.1", "libcuda.so.1"),
        ("libnvidia-encode.so.1", "libnvidia-encode.so.1"),
        ("libnvoptix.so.1", "libnvoptix.so.1"),
        ("libdxcore.so", "libdxcore.so"),
    ]
    assert inventory.binaries == (f"{DRIVER}/nvidia-smi",)
    assert (inventory.gpus, inventory.firmware, inventory.proc_files) == ((), (), ())
    assert inventory.store == (*(f"{DRIVER}/{name}" for name in COMPONENTS), f"{OLD_DRIVER}/libcuda.so.1.1")


def test_nothing_is_kept_of_it(host: Host, tmp_path: Path) -> None:
    """The snapshot is for drivers of Linux."""
    assert kept.installed(host, folder=str(tmp_path / "run")) is None
    assert not (tmp_path / "run").exists()


def test_a_linux_module_is_no_wsl(host: Host) -> None:
    """A node of that name alone says nothing."""
    version = Path(host.driver_root, "proc/driver/nvidia/version")
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  x\n")
    assert not isinstance(refusal(host), NoAdapter)


def test_all_needs_no_nvml(host: Host) -> None:
    """Every GPU is behind the one node anyway."""
    shutil.rmtree(f"{host.driver_root}{LIBRARIES}")
    os.makedirs(f"{host.driver_root}{LIBRARIES}")
    for name in ("libdxcore.so", "libcuda.so.1"):
        shutil.copy("/lib64/ld-linux-x86-64.so.2", f"{host.driver_root}{LIBRARIES}/{name}")
    chosen = choose(take_inventory(host), "all")
    assert chosen.everything


@pytest.mark.parametrize(
    ("names", "indices"),
    [(("0",), [0]), ((default_gpu(1).uuid,), [1]), (("1", "0"), [1, 0]), (("0000:3f:00.0",), [1])],
)
def test_gpus_are_nvmls(host: Host, names: tuple[str, ...], indices: list[int]) -> None:
    """Names are checked against what NVML lists; there is no minor and no node."""
    chosen = choose(take_inventory(host), *names)
    assert [gpu.index for gpu in chosen.gpus] == indices
    assert {(gpu.minor, gpu.node, gpu.proc_folder) for gpu in chosen.gpus} == {(0, None, "")}


def test_an_unknown_gpu(host: Host) -> None:
    """As elsewhere, with what there is."""
    with pytest.raises(UnknownDevice, match="this host has 2: 0 = GPU-"):
        choose(take_inventory(host), "2")


def test_versions_and_facts(host: Host) -> None:
    """The driver's version is NVML's, CUDA's is libcuda's."""
    inventory = take_inventory(host)
    assert cuda_version(inventory) == "12.4"
    full = complete(inventory, DeviceChoice(names=("0",), sources=()))
    assert full.driver_version == VERSION
    assert gpu_facts(full, full.gpus)[full.gpus[0].bus_id].arch == "7.5"


@pytest.mark.parametrize(
    ("removed", "says"),
    [
        (STORE, "no adapters were found"),
        (DRIVER, None),
        (f"{LIBRARIES}/libdxcore.so", "no libdxcore.so"),
        (LIBRARIES, "no libdxcore.so"),
    ],
)
def test_what_lacks(host: Host, removed: str, says: str | None) -> None:
    """Without NVIDIA's driver in Windows, or without WSL's own library, there is no GPU to give."""
    path = f"{host.driver_root}{removed}"
    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    if says is None:
        assert take_inventory(host).binaries == (f"{LIBRARIES}/nvidia-smi",)
        return
    error = refusal(host)
    assert isinstance(error, NoAdapter)
    assert says in error.text
    assert "Windows" in error.hint


@pytest.mark.attack
@pytest.mark.parametrize("number", [(10, 61), (1, 1), (8, 125), None])
def test_a_node_of_another_device(host: Host, number: tuple[int, int] | None) -> None:
    """AC-78: /proc/misc says which one is dxg."""
    path = f"{host.driver_root}/dev/dxg"
    os.unlink(path)
    if number:
        os.mknod(path, 0o020666, os.makedev(*number))
    else:
        Path(path).touch()
    assert "not WSL's device" in refusal(host).text


@pytest.mark.attack
def test_links_in_the_store_are_not_followed(host: Host) -> None:
    """What Windows shares are files."""
    for name in ("nvcubins.bin", "nvidia-smi"):
        os.unlink(f"{host.driver_root}{DRIVER}/{name}")
        os.symlink("/etc/passwd", f"{host.driver_root}{DRIVER}/{name}")
    inventory = take_inventory(host)
    assert not [path for path in inventory.store if path.endswith(("nvcubins.bin", "nvidia-smi"))]
    assert inventory.binaries == (f"{LIBRARIES}/nvidia-smi",)
