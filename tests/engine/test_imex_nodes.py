"""IMEX channels whose nodes are missing on the host: made where the configuration allows it, those asked for alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from gpuhook.backend.survey import survey
from gpuhook.errors import GpuhookError
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Allow, Bind, Image
from gpuhook.request.model import DeviceChoice, Request
from gpuhook.settings.values import Settings
from tests.engine.perform import perform
from tests.rig.init import Init
from tests.rig.needs import need, unified_host
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import RULES, Node

pytestmark = pytest.mark.engine

GROUP = not unified_host()
FOLDER = "/dev/nvidia-caps-imex-channels"
NEVER = "[features]\ndisable-imex-channel-creation = true\n"


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    """A driver with IMEX, of whose channels only the node of 0 is there."""
    need()
    return build(str(tmp_path / "driver"), imex_channels=(0,))


def request_of(*channels: str) -> Request:
    choice = DeviceChoice(names=("all",), sources=("x",))
    return Request(container="c", pid=1, rootfs="/", devices=choice, capabilities=(), imex_channels=channels)


def test_a_missing_node_is_made(driver: FakeDriver, tmp_path: Path) -> None:
    """With load-kmods: in the driver root, with the running driver's own number; the container has both channels."""
    request, settings = request_of("0", "5"), Settings(cli_root=driver.root)
    inventory, chosen, _ = survey(request, settings, driver.host(), "")
    major = driver.majors["nvidia-caps-imex-channels"]
    assert sorted(os.listdir(driver.path(FOLDER))) == ["channel0", "channel5"]
    made = os.stat(driver.path(f"{FOLDER}/channel5"))
    assert (os.major(made.st_rdev), os.minor(made.st_rdev)) == (major, 5)
    ops = build_plan(request, inventory, chosen, Image()).ops
    assert [(op.major, op.minor) for op in ops if isinstance(op, Allow)][-2:] == [(major, 0), (major, 5)]
    binds = [op for op in ops if isinstance(op, Bind) and op.target.startswith(FOLDER)]
    with Init(make_rootfs(str(tmp_path / "rootfs"), "debian")) as init:
        assert perform(init, driver.root, *binds).error == ""
        seen = init.run("/bin/probe", "devices").seen.devices
    assert sorted(seen) == [f"{FOLDER}/channel0", f"{FOLDER}/channel5"]


@pytest.mark.parametrize(("never", "load_kmods"), [(True, True), (False, False), (True, False)])
def test_none_is_made_where_it_is_not_allowed(driver: FakeDriver, never: bool, load_kmods: bool) -> None:
    """The feature's switch forbids channels, load-kmods = false everything: refused, and the host is as it was."""
    settings = Settings(cli_root=driver.root, disable_imex_channel_creation=never, load_kmods=load_kmods)
    with pytest.raises(GpuhookError, match="channel5 does not exist") as caught:
        survey(request_of("0", "5"), settings, driver.host(), "")
    assert caught.value.reference == "imex"
    assert os.listdir(driver.path(FOLDER)) == ["channel0"]
    assert [each.minor for each in survey(request_of("0"), settings, driver.host(), "")[1].channels] == [0]


def test_without_a_channel_asked_for_none_is_made(driver: FakeDriver) -> None:
    """`all` GPUs are not all channels, for the host's nodes either."""
    os.unlink(driver.path(f"{FOLDER}/channel0"))
    survey(request_of(), Settings(cli_root=driver.root), driver.host(), "")
    assert os.listdir(driver.path(FOLDER)) == []


@pytest.mark.parametrize("text", [NEVER, ""])
def test_the_hook_refuses_what_it_may_not_make(node: Node, driver: FakeDriver, tmp_path: Path, text: str) -> None:
    """One message, no device rule, no node on the host or in the container."""
    config = node.config(cli={**RULES, "root": driver.root, "load-kmods": text == NEVER}, text=text)
    with Init(make_rootfs(str(tmp_path / "rootfs"), "debian"), group=GROUP) as init:
        rules = init.rules if GROUP else []
        done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0,5", config=config)
        assert init.run("/bin/probe", "devices").seen.devices == {}
        assert (init.rules if GROUP else []) == rules
    assert done.status == 1
    assert done.stderr.startswith("gpuhook: imex: ")
    assert "channel5 does not exist" in done.stderr.splitlines()[0]
    assert os.listdir(driver.path(FOLDER)) == ["channel0"]
