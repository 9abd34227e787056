"""MIG devices: found in the kernel's files, named by NVML, selected in each form that people write."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver, Mig, default_gpu
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.mig import access_numbers, minor_in
from gpuhook.driver.mignames import is_mig
from gpuhook.driver.model import Gpu, Host, Inventory, MigDevice, Selection
from gpuhook.driver.query import complete, with_mig_uuids
from gpuhook.driver.select import asks_nvml, select
from gpuhook.errors import GpuhookError, UnknownDevice
from gpuhook.kernel.beneath import Root
from gpuhook.refusals import DriverFault, NodeMissing
from gpuhook.request.model import DeviceChoice
from tests.rig.needs import need

pytestmark = pytest.mark.engine

CAPABILITIES = "/proc/driver/nvidia/capabilities"
SOURCE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    """Two GPUs whose minors are not their indices, cut in two, and one that is not cut."""
    need()
    tmp_path.chmod(0o755)
    cut = [replace(default_gpu(index, mig=True), minor=1 - index) for index in (0, 1)]
    return build(str(tmp_path / "driver"), gpus=[*cut, replace(default_gpu(2), minor=2)])


def choose(inventory: Inventory, *names: str) -> Selection:
    choice = DeviceChoice(names=names, sources=(SOURCE,))
    if asks_nvml(inventory, choice):
        inventory = complete(inventory, choice)
    return select(inventory, choice)[0]


def refusal(inventory: Inventory, *names: str) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        choose(inventory, *names)
    return caught.value


def summary(chosen: Selection) -> list[str]:
    """GPUs by index, then MIG devices by the minor of their GPU and their instances."""
    devices = [device.capabilities[1].path.removeprefix(f"{CAPABILITIES}/") for device in chosen.mig]
    return [str(gpu.index) for gpu in chosen.gpus] + [path.removesuffix("/access") for path in devices]


def test_devices_with_their_files_and_nodes(driver: FakeDriver) -> None:
    """GPU instance and compute instance have a capability each, whose node has the number that its file says."""
    gpus = take_inventory(driver.host()).gpus
    assert [(gpu.mig_capable, len(gpu.mig), gpu.minor) for gpu in gpus] == [(True, 2, 1), (True, 2, 0), (False, 0, 2)]
    device = gpus[0].mig[1]
    assert (device.index, device.gpu_instance, device.compute_instance, device.fault) == (1, 2, 0, "")
    files = [f"{CAPABILITIES}/gpu1/mig/gi2/access", f"{CAPABILITIES}/gpu1/mig/gi2/ci0/access"]
    assert [capability.path for capability in device.capabilities] == files
    nodes = [capability.node for capability in device.capabilities]
    assert [(node.path, node.major, node.minor) for node in nodes if node] == [
        ("/dev/nvidia-caps/nvidia-cap156", 237, 156),
        ("/dev/nvidia-caps/nvidia-cap157", 237, 157),
    ]


def test_order_and_instances_without_a_device(tmp_path: Path) -> None:
    """Numbers count as numbers, and a GPU instance without a compute instance is no device."""
    need()
    devices = tuple(Mig(f"MIG-{gi}-{ci}", gi, ci) for gi, ci in ((10, 0), (2, 1), (2, 0)))
    driver = build(str(tmp_path), gpus=[replace(default_gpu(0, mig=True), mig=devices)])
    os.mkdir(driver.path(f"{CAPABILITIES}/gpu0/mig/gi3"))
    os.mkdir(driver.path(f"{CAPABILITIES}/gpu0/mig/gix"))
    found = take_inventory(driver.host()).gpus[0].mig
    assert [(each.index, each.gpu_instance, each.compute_instance) for each in found] == [
        (0, 2, 0), (1, 2, 1), (2, 10, 0),
    ]  # fmt: skip


def test_an_older_driver_has_files_only(driver: FakeDriver) -> None:
    """Without nvidia-caps in /proc/devices there are no nodes, and that is no fault."""
    devices = Path(driver.proc) / "devices"
    lines = devices.read_text().splitlines(keepends=True)
    devices.write_text("".join(line for line in lines if "nvidia-caps" not in line))
    device = take_inventory(driver.host()).gpus[0].mig[0]
    assert [capability.node for capability in device.capabilities] == [None, None]
    assert device.fault == ""


@pytest.mark.attack
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no valid `DeviceFileMinor`"),
        ("DeviceFileMinor: x\n", "no valid `DeviceFileMinor`"),
        ("DeviceFileMinor: -1\n", "no valid `DeviceFileMinor`"),
        ("DeviceFileMinor: 9999999\n", "no valid `DeviceFileMinor`"),
        ("DeviceFileMinor: 1\n", "says the minor 1, but mig-minors gives gpu1/gi1/access 147"),
        (None, "cannot be read"),
    ],
)
def test_a_capability_file_that_lies(driver: FakeDriver, text: str | None, why: str) -> None:
    """The driver root does not decide which node is allowed: `all` leaves the device out, by name it is refused."""
    file = Path(driver.path(f"{CAPABILITIES}/gpu1/mig/gi1/access"))
    file.unlink()
    if text is not None:
        file.write_text(text)
    inventory = take_inventory(driver.host())
    chosen, warnings = select(inventory, DeviceChoice(names=("all",), sources=(SOURCE,)))
    assert summary(chosen) == ["0", "1", "2", "gpu1/mig/gi2/ci0", "gpu0/mig/gi1/ci0", "gpu0/mig/gi2/ci0"]
    assert [slug for slug, _ in warnings] == ["gpu-lost"]
    error = refusal(inventory, f"MIG-{driver.gpus[0].uuid}/1/0")
    assert isinstance(error, DriverFault)
    assert why in error.text


@pytest.mark.attack
@pytest.mark.parametrize("number", [None, (8, 147), (1, 1), (237, 1)])
def test_a_node_that_is_another_device(driver: FakeDriver, number: tuple[int, int] | None) -> None:
    """AC-78: it has to be the one device that it should be."""
    path = driver.path("/dev/nvidia-caps/nvidia-cap147")
    os.unlink(path)
    if number:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*number))
    error = refusal(take_inventory(driver.host()), f"MIG-{driver.gpus[0].uuid}/1/0")
    assert isinstance(error, NodeMissing)
    assert "/dev/nvidia-caps/nvidia-cap147" in error.text


def test_without_mig_minors_the_file_is_believed(driver: FakeDriver) -> None:
    """The list is a second opinion where it can be had."""
    os.unlink(f"{driver.proc}/driver/nvidia-caps/mig-minors")
    assert [device.fault for gpu in take_inventory(driver.host()).gpus for device in gpu.mig] == [""] * 4


def test_the_new_names_are_nvmls(driver: FakeDriver) -> None:
    """`MIG-<uuid>` in any case selects the device and its GPU."""
    inventory = take_inventory(driver.host())
    first, second = driver.gpus[0].mig[1].uuid, driver.gpus[1].mig[0].uuid
    assert summary(choose(inventory, first.lower())) == ["0", "gpu1/mig/gi2/ci0"]
    assert summary(choose(inventory, second.upper(), first)) == ["1", "0", "gpu0/mig/gi1/ci0", "gpu1/mig/gi2/ci0"]


def test_the_old_names_take_no_nvml(driver: FakeDriver) -> None:
    """`MIG-GPU-<uuid>/<gi>/<ci>` says all that the kernel knows."""
    inventory = take_inventory(driver.host())
    name = f"MIG-{driver.gpus[1].uuid}/2/0"
    assert not asks_nvml(inventory, DeviceChoice(names=(name,), sources=()))
    assert summary(choose(inventory, name.lower())) == ["1", "gpu0/mig/gi2/ci0"]


def test_by_index_in_nvmls_order(tmp_path: Path) -> None:
    """`<gpu>:<mig>` counts as NVML does, which need not be the order of the instances."""
    need()
    tmp_path.chmod(0o755)
    devices = (Mig("MIG-00000000-0000-0000-0000-00000000000b", 5, 0), Mig("MIG-00000000-0000-0000-0000-0c", 1, 0))
    driver = build(str(tmp_path / "driver"), gpus=[replace(default_gpu(0, mig=True), mig=devices)])
    inventory = take_inventory(driver.host())
    assert [device.gpu_instance for device in inventory.gpus[0].mig] == [1, 5]
    assert summary(choose(inventory, "0:0")) == ["0", "gpu0/mig/gi5/ci0"]
    assert summary(choose(inventory, "00:01")) == ["0", "gpu0/mig/gi1/ci0"]
    named = with_mig_uuids(inventory).gpus[0].mig
    assert [(each.index, each.uuid) for each in named] == [(0, devices[0].uuid), (1, devices[1].uuid)]


def test_a_gpu_by_name_brings_none_of_its_devices(driver: FakeDriver) -> None:
    """And `all` brings everything, without asking NVML."""
    inventory = take_inventory(driver.host())
    assert summary(choose(inventory, "0", driver.gpus[1].uuid)) == ["0", "1"]
    assert not asks_nvml(inventory, DeviceChoice(names=("all",), sources=()))
    chosen = choose(inventory, "0", "ALL")
    assert chosen.everything
    assert summary(chosen)[:3] == ["0", "1", "2"]
    assert len(chosen.mig) == 4


def test_a_device_twice_is_one(driver: FakeDriver) -> None:
    """By index and by both names, beside its GPU: each once, in the order of the request."""
    inventory = take_inventory(driver.host())
    names = ("0:1", driver.gpus[0].mig[1].uuid, f"MIG-{driver.gpus[0].uuid}/2/0", "0")
    assert summary(choose(inventory, *names)) == ["0", "gpu1/mig/gi2/ci0"]


@pytest.mark.parametrize(
    "name",
    [
        "MIG-00000000-0000-0000-0000-000000000009",
        "MIG-",
        "mig-x",
        "0:2",
        "2:0",
        "9:0",
        "MIG-GPU-x/1/0",
        "0:99999999999",
    ],
)
def test_an_unknown_device_is_told_what_exists(driver: FakeDriver, name: str) -> None:
    """The line has every name that would do."""
    error = refusal(take_inventory(driver.host()), name)
    assert isinstance(error, UnknownDevice)
    assert error.text.startswith(f"the MIG device {name} was requested, and this host has 4: 0:0 = MIG-")
    assert "(GPU instance 1/0)" in error.text
    assert error.where == SOURCE


def test_on_a_host_without_mig(tmp_path: Path) -> None:
    """There is nothing to ask NVML for, and the message says that there are none."""
    driver = build(str(tmp_path))
    inventory = take_inventory(driver.host())
    error = refusal(inventory, "MIG-00000000-0000-0000-0000-000000000001")
    assert "this host has none" in error.text
    assert "nvidia-smi mig" in error.hint


def test_an_nvml_that_fails_refuses_names_that_need_it(driver: FakeDriver) -> None:
    """A guess could give another container's device."""
    inventory = take_inventory(driver.host())
    Path(driver.path(driver.library("libnvidia-ml.so"))).write_bytes(b"no library")
    assert isinstance(refusal(inventory, driver.gpus[0].mig[0].uuid), DriverFault)
    assert isinstance(refusal(inventory, "0:1"), DriverFault)
    assert summary(choose(inventory, f"MIG-{driver.gpus[0].uuid}/1/0")) == ["0", "gpu1/mig/gi1/ci0"]


def test_access_to_mig_has_the_kernels_numbers(driver: FakeDriver) -> None:
    """The global node, and every node that mig-minors has for a GPU's minor; a GPU without MIG adds nothing."""
    host, gpus = driver.host(), take_inventory(driver.host()).gpus
    with Root(host.driver_root) as root:
        config = access_numbers(root, host, (gpus[0], gpus[2]), ["mig/config"])
        both = access_numbers(root, host, gpus[2:], ["mig/config", "mig/monitor"])
    assert config[:2] == ((237, 1), (237, 138))
    assert len(config) == 1 + 135
    assert both == ((237, 1), (237, 2))


def test_access_without_nodes(driver: FakeDriver) -> None:
    """An older driver has none."""
    (Path(driver.proc) / "devices").write_text("Character devices:\n195 nvidia\n")
    with Root(driver.root) as root:
        assert access_numbers(root, driver.host(), take_inventory(driver.host()).gpus, ["mig/config"]) == ()


@given(st.text())
def test_any_capability_text(text: str) -> None:
    """Whatever stands in the file, the answer is a number that a node may have, or -1."""
    assert -1 <= minor_in(text) < 1 << 20
    assert minor_in(f"DeviceFileMinor: 7\n{text}") == 7


NAMES = ("MIG-x", "MIG-GPU-/1/0", "0:0", "0:1", "1:", ":", "MIG-GPU-aaaaaaaa-0000-0000-0000-000000000001/1/0")


@given(st.one_of(st.text(max_size=20), st.sampled_from(NAMES)))
def test_any_name_of_a_mig_device(name: str) -> None:
    """Pure and total: a device, or nothing."""
    device = MigDevice(index=0, uuid="MIG-x", gpu_instance=1, compute_instance=0)
    uuid = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
    gpu = Gpu(index=0, minor=0, uuid=uuid, bus_id="", model="", proc_folder="", node=None, mig=(device,))
    inventory = Inventory(host=Host(), driver_version="", gpus=(gpu,), libraries=())
    found: tuple[MigDevice, ...] = ()
    said = ""
    try:
        found = select(inventory, DeviceChoice(names=(name,), sources=()))[0].mig
    except UnknownDevice as error:
        said = error.render()
    assert all(line.isprintable() for line in said.split("\n"))
    assert not found or is_mig(name.strip()) or name.strip().lower() == "all"
