"""load-kmods: modules and nodes that lack are seen to, and nothing else of the host is changed."""

from __future__ import annotations

import os
import posix
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver, default_gpu
from gpuhook import note
from gpuhook.backend import kmods
from gpuhook.backend.hostnodes import mend
from gpuhook.backend.kmods import load
from gpuhook.backend.survey import Needs, may_change_host, take
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.model import Host
from gpuhook.settings.values import Settings
from tests.rig.init import Init
from tests.rig.needs import need, unified_host
from tests.rig.rootfs import make_rootfs
from tests.rig.snapshot import snapshot
from tests.runtime.node import COMMON, RULES, Node

pytestmark = pytest.mark.engine

GROUP = not unified_host()
ALL = ("compute", "display", "utility")


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    """Two GPUs in slices, whose minors are not their indices, and one IMEX channel; a folder /dev/char."""
    need()
    gpus = [replace(default_gpu(index, mig=True), minor=1 - index) for index in (0, 1)]
    driver = build(str(tmp_path / "driver"), gpus=gpus, imex_channels=(0,))
    os.mkdir(driver.path("/dev/char"))
    return driver


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(note, "log", lambda level, text: said.append(text))
    return said


def node_of(path: str) -> tuple[str, int, int, int, int]:
    """Number, owner and mode of a character device."""
    status = os.lstat(path)
    assert stat.S_ISCHR(status.st_mode)
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return number, status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), status.st_nlink


def params(driver: FakeDriver, **changes: int) -> None:
    """Change the driver's parameters."""
    file = Path(driver.path("/proc/driver/nvidia/params"))
    text = file.read_text()
    for name, value in changes.items():
        text = "\n".join(f"{name}: {value}" if line.startswith(f"{name}:") else line for line in text.split("\n"))
    file.chmod(0o644)
    file.write_text(text)


@pytest.mark.parametrize(
    "name", ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia0", "nvidia1"]
)
def test_a_missing_node_is_made(driver: FakeDriver, name: str) -> None:
    """With its number, for everybody, and with its name by number; the next look finds it."""
    before = snapshot(driver.root, mounts=False)
    os.unlink(driver.path(f"/dev/{name}"))
    inventory = take(driver.host(), "", Needs(capabilities=ALL))
    number = "{}:{}".format(*driver.nodes[f"/dev/{name}"])
    assert node_of(driver.path(f"/dev/{name}")) == (number, 0, 0, 0o666, 1)
    assert os.readlink(driver.path(f"/dev/char/{number}")) == f"../{name}"
    assert len(inventory.nodes) == 4
    assert [gpu.fault for gpu in inventory.gpus] == ["", ""]
    os.unlink(driver.path(f"/dev/char/{number}"))
    assert before.differences(snapshot(driver.root, mounts=False)) == []


def test_owner_and_mode_are_the_drivers(driver: FakeDriver) -> None:
    """NVreg_DeviceFileUID and its siblings count, but for UVM's nodes."""
    params(driver, DeviceFileUID=7, DeviceFileGID=44, DeviceFileMode=0o660)
    for name in ("nvidiactl", "nvidia1", "nvidia-uvm"):
        os.unlink(driver.path(f"/dev/{name}"))
    take(driver.host(), "", Needs(capabilities=ALL))
    assert node_of(driver.path("/dev/nvidiactl"))[1:4] == (7, 44, 0o660)
    assert node_of(driver.path("/dev/nvidia1"))[1:4] == (7, 44, 0o660)
    assert node_of(driver.path("/dev/nvidia-uvm"))[1:4] == (0, 0, 0o666)


def test_an_administrator_who_makes_the_nodes_himself(driver: FakeDriver, notes: list[str]) -> None:
    """NVreg_ModifyDeviceFiles=0: none is made."""
    params(driver, ModifyDeviceFiles=0)
    os.unlink(driver.path("/dev/nvidia0"))
    assert [gpu.node is None for gpu in take(driver.host(), "", Needs()).gpus] == [False, True]
    assert any("/dev/nvidia0 is not made" in text for text in notes)


def test_nodes_of_mig_devices(driver: FakeDriver) -> None:
    """With the mode of their capability file, and their folder."""
    for name in os.listdir(driver.path("/dev/nvidia-caps")):
        os.unlink(driver.path(f"/dev/nvidia-caps/{name}"))
    os.rmdir(driver.path("/dev/nvidia-caps"))
    inventory = take(driver.host(), "", Needs())
    assert [device.fault for gpu in inventory.gpus for device in gpu.mig] == [""] * 4
    assert node_of(driver.path("/dev/nvidia-caps/nvidia-cap156")) == ("237:156", 0, 0, 0o444, 1)
    assert stat.S_IMODE(os.stat(driver.path("/dev/nvidia-caps")).st_mode) == 0o755


@pytest.mark.attack
def test_channels_are_those_that_the_driver_has(driver: FakeDriver) -> None:
    """AC-48: channels that were asked for get nodes, none of them where one is beyond the driver's count."""
    mend(take_inventory(driver.host()), (), (6, 2048, 1048575))
    assert mend(take_inventory(driver.host()), (), (5,))
    assert sorted(os.listdir(driver.path("/dev/nvidia-caps-imex-channels"))) == ["channel0", "channel5"]
    assert node_of(driver.path("/dev/nvidia-caps-imex-channels/channel5"))[0] == "234:5"


@pytest.mark.attack
@pytest.mark.parametrize("what", ["file", "link", "folder", "other device"])
def test_what_stands_there_stays(driver: FakeDriver, what: str) -> None:
    """Nothing is replaced, corrected or followed."""
    path = driver.path("/dev/nvidia0")
    os.unlink(path)
    if what == "file":
        Path(path).write_text("x")
    elif what == "link":
        os.symlink("/dev/gone", path)
    elif what == "folder":
        os.mkdir(path)
    else:
        os.mknod(path, 0o020600, os.makedev(1, 5))
    before = snapshot(driver.root, mounts=False)
    assert take(driver.host(), "", Needs(capabilities=ALL)).gpus[1].fault
    assert before.differences(snapshot(driver.root, mounts=False)) == []


def test_a_complete_host_is_not_touched(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual case does not even load the code for it; modeset and UVM do not count where nobody wants them."""
    for name in ("nvidia-uvm", "nvidia-modeset"):
        os.unlink(driver.path(f"/dev/{name}"))
    monkeypatch.setattr("gpuhook.backend.hostnodes.mend", lambda *_: pytest.fail("it was called"))
    take(driver.host(), "", Needs(capabilities=("utility", "graphics"), channels=(0,)))


def test_only_root_of_the_machine_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a user namespace, not as another user, and not where the configuration forbids it."""
    assert may_change_host(Settings())
    assert not may_change_host(Settings(load_kmods=False))
    monkeypatch.setattr("gpuhook.backend.survey.in_user_namespace", lambda: True)
    assert not may_change_host(Settings())


def test_a_failure_is_a_note(driver: FakeDriver, notes: list[str]) -> None:
    """A /dev that takes no nodes: the start then fails for the lack itself."""
    os.unlink(driver.path("/dev/nvidia0"))
    os.rename(driver.path("/dev"), driver.path("/elsewhere"))
    Path(driver.path("/dev")).write_text("")
    take(driver.host(), "", Needs())
    assert any("/dev/nvidia0 cannot be made" in text for text in notes)


def machine(
    folder: Path, *, gpu_driver: str = "", helper: str = "", modprobe: str = ""
) -> tuple[Host, tuple[str, ...]]:
    """A host whose PCI bus has a GPU, and the path of its nvidia-modprobe."""
    folder.chmod(0o755)
    device = folder / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030000\n")
    if gpu_driver:
        (folder / gpu_driver).mkdir()
        (device / "driver").symlink_to(folder / gpu_driver)
    (folder / "sys/module").mkdir()
    (folder / "proc/sys/kernel").mkdir(parents=True)
    (folder / "proc/sys/kernel/modprobe").write_text(f"{folder}/modprobe\n")
    for name, text in (("nvidia-modprobe", helper), ("modprobe", modprobe)):
        if text:
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
    return Host(proc=f"{folder}/proc", sys=f"{folder}/sys"), (f"{folder}/nvidia-modprobe",)


TOLD = 'env > {0}/env; echo "$@" > {0}/args; mkdir {0}/sys/module/{1}'


@pytest.mark.parametrize(("module", "arguments"), [("nvidia", ""), ("nvidia-uvm", "-u"), ("nvidia-modeset", "-m")])
def test_nvidia_modprobe_comes_first(tmp_path: Path, module: str, arguments: str) -> None:
    """With the option for the module, and an environment that is nobody's."""
    script = TOLD.format(tmp_path, module.replace("-", "_"))
    host, helpers = machine(tmp_path, helper=script, modprobe="exit 1")
    assert load(host, module, helpers)
    assert (tmp_path / "args").read_text().strip() == arguments
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().split()}
    assert names <= {"PATH", "PWD", "SHLVL", "_"}
    assert not load(host, module, helpers)  # it is loaded now


def test_then_the_kernels_own_program(tmp_path: Path) -> None:
    """As /proc/sys/kernel/modprobe names it, with the module's name."""
    host, helpers = machine(tmp_path, modprobe=TOLD.format(tmp_path, "nvidia_uvm"))
    assert load(host, "nvidia-uvm", helpers)
    assert (tmp_path / "args").read_text() == "nvidia-uvm\n"


@pytest.mark.attack
def test_a_program_that_others_can_write_is_not_run(tmp_path: Path, notes: list[str]) -> None:
    """It would run as root."""
    host, helpers = machine(tmp_path, helper=TOLD.format(tmp_path, "nvidia"))
    (tmp_path / "nvidia-modprobe").chmod(0o777)
    assert not load(host, "nvidia", helpers)
    assert not (tmp_path / "args").exists()
    assert any("others can write it" in text for text in notes)


@pytest.mark.parametrize("holder", ["nouveau", "vfio-pci"])
def test_a_gpu_of_another_driver_is_left_alone(tmp_path: Path, holder: str) -> None:
    """Loading would not help, and every start would try again."""
    host, helpers = machine(tmp_path, gpu_driver=holder, helper=TOLD.format(tmp_path, "nvidia"))
    assert not load(host, "nvidia", helpers)
    assert not (tmp_path / "args").exists()


def test_a_driver_container_loads_its_own_modules(tmp_path: Path) -> None:
    """No program of another root is run by us."""
    host, helpers = machine(tmp_path, helper=TOLD.format(tmp_path, "nvidia"))
    assert not load(host.with_(driver_root="/run/nvidia/driver"), "nvidia", helpers)
    assert not (tmp_path / "args").exists()


@pytest.mark.parametrize(
    ("script", "says"),
    [("exit 3", "ended with status 3"), ("kill -9 $$", "ended with status -9"), ("exit 0", "dmesg")],
)
def test_a_program_that_fails_is_a_note(tmp_path: Path, notes: list[str], script: str, says: str) -> None:
    """Whether the module is there afterwards is what counts."""
    host, helpers = machine(tmp_path, helper=script)
    assert not load(host, "nvidia", helpers)
    assert any(says in text for text in notes)


def test_a_program_that_hangs_is_killed(tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it has started; nobody waits for it."""
    host, helpers = machine(tmp_path, helper="sleep 987 & sleep 987")
    monkeypatch.setattr(kmods, "DEADLINE", 0.3)
    start = time.monotonic()
    assert not load(host, "nvidia", helpers)
    assert time.monotonic() - start < 20
    assert any("did not end within 0.3 s" in text for text in notes)
    give_up = time.monotonic() + 10  # the kernel takes a killed process down in its own time
    while sleepers() and time.monotonic() < give_up:
        time.sleep(0.02)
    assert sleepers() == []


def test_a_program_that_hangs_before_it_has_a_session_is_killed(
    tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the deadline may come first; it is then still in our group."""
    host, helpers = machine(tmp_path, helper="sleep 987")
    monkeypatch.setattr(kmods, "DEADLINE", 0.3)
    monkeypatch.setattr(posix, "setsid", lambda: time.sleep(987))
    before = children()
    assert not load(host, "nvidia", helpers)
    assert any("did not end within 0.3 s" in text for text in notes)
    assert children() == before


def children() -> str:
    """Of this process, zombies too."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def sleepers() -> list[str]:
    return [name for name in filter(str.isdigit, os.listdir("/proc")) if b"sleep\0987" in command(name)]


def command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_hook_makes_a_lacking_node(node: Node, tmp_path: Path) -> None:
    """The container gets it; with load-kmods = false it is left out of `all` with a warning."""
    driver = build(str(tmp_path / "driver"), gpus=2)
    os.unlink(driver.path("/dev/nvidia1"))
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    for load_kmods, devices in ((False, ["/dev/nvidia0"]), (True, ["/dev/nvidia0", "/dev/nvidia1"])):
        config = node.config(cli={**RULES, "root": driver.root, "load-kmods": load_kmods})
        with Init(rootfs, group=GROUP) as init:
            done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=all", config=config)
            assert done.status == 0, done.stderr
            assert sorted(init.run("/bin/probe", "devices").seen.devices) == sorted((*COMMON, *devices))
