"""IMEX channels of the host: found by number, refused with what there is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fixtures.driver.build import build
from gpuhook.driver.imex import find_channels
from gpuhook.driver.model import Node
from gpuhook.refusals import BadImex

pytestmark = pytest.mark.engine


def test_channels_in_the_order_of_the_request(tmp_path: Path) -> None:
    """Each with the major that the running driver has for it."""
    driver = build(str(tmp_path), imex_channels=(0, 3, 2047))
    assert find_channels(driver.host(), (2047, 0)) == (
        Node(path="/dev/nvidia-caps-imex-channels/channel2047", major=234, minor=2047),
        Node(path="/dev/nvidia-caps-imex-channels/channel0", major=234, minor=0),
    )
    assert find_channels(driver.host(), ()) == ()


def test_a_missing_channel_is_told_how_to_come_by(tmp_path: Path) -> None:
    """The command has the numbers of this host."""
    driver = build(str(tmp_path), imex_channels=(0, 3))
    with pytest.raises(BadImex, match="channel1 does not exist; this host has 0, 3") as caught:
        find_channels(driver.host(), (0, 1))
    assert "mknod /dev/nvidia-caps-imex-channels/channel1 c 234 1" in caught.value.hint


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    """Sixteen channels and a count; names that are no channels are passed over."""
    driver = build(str(tmp_path), imex_channels=range(20))
    for name in ("channelx", "channel", "other", "channel99999999"):
        (Path(driver.root) / "dev/nvidia-caps-imex-channels" / name).touch()
    with pytest.raises(BadImex, match=r"this host has 0, 1, 2, .*, 15 and 4 more"):
        find_channels(driver.host(), (99,))


def test_a_driver_without_channels(tmp_path: Path) -> None:
    """No advice to make a node that nobody serves."""
    driver = build(str(tmp_path))
    with pytest.raises(BadImex, match="this host has no channel") as caught:
        find_channels(driver.host(), (0,))
    assert "/proc/devices lacks nvidia-caps-imex-channels" in caught.value.hint


@pytest.mark.attack
@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFREG, stat.S_IFIFO, stat.S_IFLNK])
def test_only_the_right_device(tmp_path: Path, kind: int) -> None:
    """AC-78: another device, a block device, a file, a FIFO, a link out of the driver root."""
    driver = build(str(tmp_path), imex_channels=(0,))
    path = driver.path("/dev/nvidia-caps-imex-channels/channel0")
    os.unlink(path)
    if kind == stat.S_IFLNK:
        os.symlink("/dev/null", path)
    else:
        os.mknod(path, kind | 0o666, os.makedev(1, 0))
    with pytest.raises(BadImex, match="channel0"):
        find_channels(driver.host(), (0,))
