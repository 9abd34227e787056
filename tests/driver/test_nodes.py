"""The nodes that belong to no GPU."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuhook.driver.model import Host
from gpuhook.driver.nodes import character_majors, common_nodes
from gpuhook.kernel.beneath import Root
from tests.rig.needs import need

DEVICES = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n{uvm}\nBlock devices:\n  8 sd\n510 other\n"


def put(root: Path, **nodes: tuple[int, int]) -> None:
    (root / "dev").mkdir()
    for name, (major, minor) in nodes.items():
        os.mknod(root / "dev" / name.replace("_", "-"), stat.S_IFCHR | 0o666, os.makedev(major, minor))


def look(root: Path, uvm: str = "511 nvidia-uvm\n") -> tuple[list[str], str]:
    need()
    (root / "proc").mkdir()
    (root / "proc/devices").write_text(DEVICES.format(uvm=uvm))
    with Root(str(root)) as opened:
        found, missing = common_nodes(opened, Host(driver_root=str(root), proc=f"{root}/proc"))
    return [f"{node.path} {node.major}:{node.minor}" for node in found], "\n".join(missing)


@pytest.mark.engine
def test_all_of_them_in_order(tmp_path: Path) -> None:
    """Control, UVM, UVM tools, modeset: the order of the listing."""
    put(tmp_path, nvidia_modeset=(195, 254), nvidia_uvm_tools=(511, 1), nvidia_uvm=(511, 0), nvidiactl=(195, 255))
    assert look(tmp_path) == (
        [
            "/dev/nvidiactl 195:255",
            "/dev/nvidia-uvm 511:0",
            "/dev/nvidia-uvm-tools 511:1",
            "/dev/nvidia-modeset 195:254",
        ],
        "",
    )


@pytest.mark.engine
def test_what_is_not_there_is_noted(tmp_path: Path) -> None:
    """Each missing node has a line."""
    put(tmp_path)
    found, missing = look(tmp_path)
    assert found == []
    assert missing.split("\n")[1] == "/dev/nvidia-uvm does not exist"
    assert len(missing.split("\n")) == 4


@pytest.mark.engine
@pytest.mark.attack
@pytest.mark.parametrize(
    ("uvm", "number", "accepted"),
    [
        ("511 nvidia-uvm\n", (511, 0), True),
        ("511 nvidia-uvm\n", (510, 0), False),
        ("511 nvidia-uvm\n", (1, 1), False),
        ("511 nvidia-uvm\n", (511, 1), False),
        ("", (511, 0), True),
        ("", (240, 0), True),
        ("511 hidraw\n", (511, 0), False),
        ("", (1, 0), False),
        ("", (195, 0), False),
        ("", (8, 0), False),
    ],
)
def test_uvm_is_nobody_elses_device(tmp_path: Path, uvm: str, number: tuple[int, int], accepted: bool) -> None:
    """The kernel's own list decides; where it is silent, only a dynamic major that is nobody else's will do."""
    put(tmp_path, nvidia_uvm=number)
    found, missing = look(tmp_path, uvm)
    assert (found == [f"/dev/nvidia-uvm {number[0]}:{number[1]}"]) is accepted
    assert ("/dev/nvidia-uvm " in missing) is not accepted


@pytest.mark.engine
@pytest.mark.attack
def test_a_wrong_control_device_is_left_out(tmp_path: Path) -> None:
    """AC-78: a node of another number is not nvidiactl."""
    put(tmp_path, nvidiactl=(1, 1))
    assert "/dev/nvidiactl is device 1:1, not 195:255" in look(tmp_path)[1]


@pytest.mark.parametrize("text", ["", "nonsense", "Character devices:\n\n x y\n12\n", "Block devices:\n 8 sd\n"])
def test_a_strange_list_of_devices(tmp_path: Path, text: str) -> None:
    """What cannot be read says nothing."""
    (tmp_path / "devices").write_text(text)
    assert character_majors(str(tmp_path)) == {}


def test_no_list_of_devices(tmp_path: Path) -> None:
    """Without procfs there is no list."""
    assert character_majors(str(tmp_path)) == {}
