"""MIG devices, the control of MIG, and IMEX channels: what of them arrives in the container, and what is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver, default_gpu
from gpuhook.backend.survey import mig_access
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.select import select
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Bind, Image, Op, Tmpfs
from gpuhook.request.model import DeviceChoice, Request
from tests.engine.perform import perform
from tests.rig.init import Init, run_hook
from tests.rig.needs import need, unified_host
from tests.rig.process import Result
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import COMMON, RULES, Node

pytestmark = pytest.mark.engine

GROUP = not unified_host()
CAPS = 237
FOLDER = "/proc/driver/nvidia"
INSTANCE = "capabilities/gpu1/mig/gi2/access"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """A GPU in two slices whose minor is 1, one without MIG, and the IMEX channels 0 and 5."""
    need()
    folder = tmp_path_factory.mktemp("mig")
    folder.chmod(0o755)
    gpus = [replace(default_gpu(0, mig=True), minor=1), replace(default_gpu(1), minor=0)]
    return build(str(folder / "driver"), gpus=gpus, imex_channels=(0, 5))


@pytest.fixture
def rootfs(tmp_path: Path) -> str:
    return make_rootfs(str(tmp_path / "rootfs"), "debian")


def prestart(node: Node, driver: FakeDriver, init: Init, *env: str, privileged: bool = False, **cli: object) -> Result:
    """The hook for a container with this environment on the driver's node."""
    bundle = node.bundle(init.rootfs, *env)
    if privileged:
        config = Path(bundle, "config.json")
        spec = json.loads(config.read_text())
        spec["process"]["capabilities"]["bounding"].append("CAP_SYS_ADMIN")
        config.write_text(json.dumps(spec))
    # The host's /proc is not this driver's: what it says is put where the engine looks for it.
    keys = {"root": driver.root, "load-kmods": False, **cli}
    argv = [node.launcher, "--config", node.config(cli={**RULES, **keys}), "prestart"]
    return run_hook(argv, init.state(bundle))


def planned(driver: FakeDriver, *names: str, mig_config: str = "") -> tuple[Op, ...]:
    """The plan for these devices, its targets below /proc/driver, which the procfs of any machine has."""
    inventory = take_inventory(driver.host())
    request = Request(container="c", pid=1, rootfs="/", devices=DeviceChoice(names=names, sources=()), capabilities=())
    chosen, _ = select(inventory, request.devices)
    chosen = chosen.with_(access=mig_access(request.with_(mig_config=mig_config), inventory, chosen))
    ops = build_plan(request, inventory, chosen, Image()).ops
    here = [op for op in ops if isinstance(op, (Bind, Tmpfs)) and op.target.startswith((FOLDER, "/dev/nvidia-caps"))]
    return tuple(op.with_(target=op.target.replace(FOLDER, "/proc/driver")) for op in here)


def test_a_mig_device_has_its_capability_files_and_nodes(driver: FakeDriver, rootfs: str) -> None:
    """The files of its GPU instance and compute instance appear in the cover, read-only; no other instance's do."""
    with Init(rootfs) as init:
        outcome = perform(init, driver.root, *planned(driver, f"MIG-{driver.gpus[0].uuid}/2/0"))
        assert outcome.error == ""
        points = init.mount_points
        seen = init.run(
            "/bin/probe", f"read:/proc/driver/{INSTANCE}", "list:/proc/driver/capabilities/gpu1/mig", "devices"
        ).seen
    assert seen.content(f"/proc/driver/{INSTANCE}") == Path(driver.path(f"{FOLDER}/{INSTANCE}")).read_text()
    assert seen.names("/proc/driver/capabilities/gpu1/mig") == ["gi2"]
    for path in (INSTANCE, INSTANCE.replace("/access", "/ci0/access")):
        assert {"ro", "nosuid", "nodev", "noexec"} <= set(points[f"/proc/driver/{path}"].split(","))
    assert sorted(seen.devices) == ["/dev/nvidia-caps/nvidia-cap156", "/dev/nvidia-caps/nvidia-cap157"]


def test_control_of_mig_has_both_folders(driver: FakeDriver, rootfs: str) -> None:
    """As the host has them, whole; the folder of nodes is writable, its nodes are the host's."""
    with Init(rootfs) as init:
        outcome = perform(init, driver.root, *planned(driver, "all", mig_config="all"))
        assert outcome.error == ""
        points = init.mount_points
        seen = init.run("/bin/probe", "list:/proc/driver/capabilities/mig", "list:/dev/nvidia-caps").seen
    assert seen.names("/proc/driver/capabilities/mig") == ["config", "monitor"]
    assert sorted(seen.names("/dev/nvidia-caps") or []) == sorted(os.listdir(driver.path("/dev/nvidia-caps")))
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(points["/proc/driver/capabilities"].split(","))
    assert {"rw", "nosuid", "noexec"} <= set(points["/dev/nvidia-caps"].split(","))
    assert not [point for point in points if point.startswith("/proc/driver/capabilities/")]


def test_devices_of_one_instance_share_its_file(tmp_path: Path, rootfs: str) -> None:
    """Two compute instances of one GPU instance: its capability is bound once."""
    from fixtures.driver.model import Mig

    gpu = replace(default_gpu(0, mig=True), mig=(Mig("MIG-a", 1, 0), Mig("MIG-b", 1, 1)))
    driver = build(str(tmp_path / "driver"), gpus=[gpu])
    ops = planned(driver, "all")
    targets = [op.target for op in ops if isinstance(op, Bind) and "capabilities" in op.target]
    assert len(targets) == len(set(targets)) == 3
    with Init(rootfs) as init:
        assert perform(init, driver.root, *ops).error == ""


def test_the_hook_gives_a_mig_device(node: Node, driver: FakeDriver, rootfs: str) -> None:
    """By its UUID, with the node of its GPU and of nothing else."""
    with Init(rootfs, group=GROUP) as init:
        done = prestart(node, driver, init, f"NVIDIA_VISIBLE_DEVICES={driver.gpus[0].mig[0].uuid}")
        assert (done.status, done.stderr) == (0, "")
        seen = init.run("/bin/probe", "devices").seen
    assert sorted(seen.devices) == sorted((*COMMON, "/dev/nvidia1"))


@pytest.mark.parametrize("name", ["MIG-00000000-0000-0000-0000-0000000000ff", "0:7"])
def test_an_unknown_mig_device_fails(node: Node, driver: FakeDriver, rootfs: str, name: str) -> None:
    """With what there is, and nothing in the container."""
    with Init(rootfs, group=GROUP) as init:
        done = prestart(node, driver, init, f"NVIDIA_VISIBLE_DEVICES={name}")
        assert init.run("/bin/probe", "devices").seen.devices == {}
    assert done.status == 1
    assert done.stderr.startswith(f"gpuhook: unknown-device: the MIG device {name} was requested, and this host has 2")


@pytest.mark.parametrize("variable", ["NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"])
@pytest.mark.parametrize(
    ("value", "devices", "says"),
    [("0", "all", "only 'all' devices"), ("all", "0:0", "specific MIG devices"), ("all,1", "all", "only 'all'")],
)
def test_control_of_mig_is_all_or_nothing(
    node: Node, driver: FakeDriver, rootfs: str, variable: str, value: str, devices: str, says: str
) -> None:
    """Single devices cannot be controlled, nor controlled beside single devices (engine.md 3.3)."""
    with Init(rootfs, group=GROUP) as init:
        env = (f"NVIDIA_VISIBLE_DEVICES={devices}", f"{variable}={value}")
        done = prestart(node, driver, init, *env, privileged=True)
    assert done.status == 1
    assert variable in done.stderr
    assert says in done.stderr


@pytest.mark.attack
def test_control_of_mig_is_for_the_privileged(node: Node, driver: FakeDriver, rootfs: str) -> None:
    """AC-45: no node, no folder."""
    with Init(rootfs, group=GROUP) as init:
        done = prestart(node, driver, init, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MIG_CONFIG_DEVICES=all")
        assert init.run("/bin/probe", "devices").seen.devices == {}
    assert done.status == 1
    assert "not-privileged" in done.stderr


def test_control_of_mig_on_gpus_without_it(node: Node, driver: FakeDriver, rootfs: str) -> None:
    """Nothing happens and nothing fails."""
    with Init(rootfs, group=GROUP) as init:
        env = ("NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_MIG_MONITOR_DEVICES=all")
        done = prestart(node, driver, init, *env, privileged=True)
        seen = init.run("/bin/probe", "devices").seen
    assert (done.status, done.stderr) == (0, "")
    assert sorted(seen.devices) == sorted((*COMMON, "/dev/nvidia0"))


def test_an_imex_channel_arrives(node: Node, driver: FakeDriver, rootfs: str) -> None:
    """The one that was asked for, with its rule; not the other."""
    with Init(rootfs, group=GROUP) as init:
        done = prestart(node, driver, init, "NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_IMEX_CHANNELS=5")
        assert (done.status, done.stderr) == (0, "")
        seen = init.run("/bin/probe", "devices").seen
        rules = init.rules if GROUP else ["c 234:5 rw"]
    channels = {path: answer for path, answer in seen.devices.items() if "imex" in path}
    assert list(channels) == ["/dev/nvidia-caps-imex-channels/channel5"]
    assert "c 234:5 rw" in rules
    assert "c 234:0 rw" not in rules


def test_no_channel_without_a_request(node: Node, driver: FakeDriver, rootfs: str) -> None:
    """An old image that means all GPUs does not mean all channels."""
    with Init(rootfs, group=GROUP) as init:
        assert prestart(node, driver, init, "CUDA_VERSION=11.0.3", "NVIDIA_VISIBLE_DEVICES=all").status == 0
        assert not [path for path in init.run("/bin/probe", "devices").seen.devices if "imex" in path]


@pytest.mark.attack
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            "7",
            "channel 7 was requested, and /dev/nvidia-caps-imex-channels/channel7 does not exist; this host has 0, 5",
        ),
        ("0,1048576", "'1048576' is no channel number"),
        ("0x1", "'0x1' is no channel number"),
        ("+1", "'+1' is no channel number"),
        ("../0", "'../0' is no channel number"),
        (",".join(map(str, range(5000))), "5000 IMEX channels"),
    ],
)
def test_a_channel_that_is_not_there(node: Node, driver: FakeDriver, rootfs: str, value: str, says: str) -> None:
    """AC-48: refused, with the channels that exist; nothing was done."""
    with Init(rootfs, group=GROUP) as init:
        done = prestart(node, driver, init, "NVIDIA_VISIBLE_DEVICES=1", f"NVIDIA_IMEX_CHANNELS={value}")
        assert init.run("/bin/probe", "devices").seen.devices == {}
    assert done.status == 1
    assert done.stderr.startswith("gpuhook: imex: ")
    assert says in done.stderr


@pytest.mark.attack
@pytest.mark.parametrize("number", [(1, 5), (234, 6), (8, 5)])
def test_a_channel_that_is_another_device(
    node: Node, driver: FakeDriver, rootfs: str, tmp_path: Path, number: tuple[int, int]
) -> None:
    """AC-78: its number is the channel's, its major nobody else's."""
    other = build(str(tmp_path / "driver"), imex_channels=(5,))
    path = other.path("/dev/nvidia-caps-imex-channels/channel5")
    os.unlink(path)
    os.mknod(path, 0o020666, os.makedev(*number))
    with Init(rootfs, group=GROUP) as init:
        done = prestart(node, other, init, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_IMEX_CHANNELS=5")
    assert done.status == 1
    assert "gpuhook: imex: " in done.stderr
    assert "channel5" in done.stderr
