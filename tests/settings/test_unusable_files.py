from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.errors import ConfigBroken, UnsafeConfig
from tests.settings.conftest import Node

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which only root can")


@pytest.mark.parametrize("how", ["explicit", "variable"])
def test_a_named_file_must_exist(node: Node, how: str) -> None:
    """The message names the file that is absent."""
    path = str(node.home / "absent.toml")
    with pytest.raises(ConfigBroken) as broken:
        node.load(path) if how == "explicit" else node.load(NVIDIA_CTK_CONFIG_FILE_PATH=path)

    assert path == broken.value.where
    assert f"{path} cannot be used: it does not exist" == broken.value.text


def make_folder(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("absent")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_large(path: Path) -> None:
    path.write_bytes(b"#" * ((1 << 20) + 1))


def make_device_link(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (make_folder, "it is a folder, not a regular file"),
        (make_fifo, "it is a FIFO, not a regular file"),
        (make_link_to_nothing, "it does not exist"),
        (make_loop, "too many links"),
        (make_large, "it is larger than 1024 KiB"),
    ],
)
def test_what_is_no_readable_file_is_refused(node: Node, make: Callable[[Path], None], says: str) -> None:
    """The usual file may be absent, but not be something else; the message names it."""
    make(node.config)
    with pytest.raises(ConfigBroken) as broken:
        node.load()

    assert f"{node.config} cannot be used: {says}" == broken.value.text
    assert str(node.config) == broken.value.where


@as_root
def test_a_device_is_refused(node: Node) -> None:
    """A link to /dev/null is no configuration, whether for its mode or its kind."""
    make_device_link(node.config)
    with pytest.raises((ConfigBroken, UnsafeConfig)):
        node.load()


def test_a_file_below_a_file_is_refused(node: Node) -> None:
    """A folder on the way that is a file is a fault, not an absent file."""
    node.write("", node.home / "xdg")
    with pytest.raises(ConfigBroken, match="Not a directory"):
        node.load(XDG_CONFIG_HOME=str(node.home / "xdg"))


@as_root
def test_an_unreadable_file_is_refused(node: Node) -> None:
    """A hook without root's rights says which file it may not read."""
    node.write("disable-require = true")
    node.config.chmod(0o600)
    for folder in (node.home, node.home.parent, node.home.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o011)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setresuid(65534, 65534, 65534)
            node.load()
        except ConfigBroken as broken:
            status = 0 if f"{node.config} cannot be used: Permission denied" == broken.text else 2
        finally:
            os._exit(status)
    assert 0 == os.waitpid(child, 0)[1]


# Files that others could have written


def unsafe_file(node: Node) -> None:
    node.config.chmod(0o666)


def unsafe_group(node: Node) -> None:
    node.config.chmod(0o664)


def unsafe_folder(node: Node) -> None:
    node.config.parent.chmod(0o777)


def foreign_file(node: Node) -> None:
    os.chown(node.config, 1000, -1)


def foreign_folder(node: Node) -> None:
    os.chown(node.config.parent, 1000, -1)


def unsafe_target(node: Node) -> None:
    place = node.home / "elsewhere"
    place.mkdir()
    node.config.rename(place / "config.toml")
    node.config.symlink_to("../elsewhere/config.toml")
    place.chmod(0o777)


@as_root
@pytest.mark.attack
@pytest.mark.parametrize(
    "harm", [unsafe_file, unsafe_group, unsafe_folder, foreign_file, foreign_folder, unsafe_target]
)
@pytest.mark.parametrize("known", [False, True])
def test_a_file_that_others_can_write_is_not_obeyed(node: Node, harm: Callable[[Node], None], *, known: bool) -> None:
    """Neither the file nor a snapshot of it counts once others can change it (AC-76)."""
    node.write("disable-require = true")
    if known:
        node.load()
    harm(node)
    with pytest.raises(UnsafeConfig) as unsafe:
        node.load()

    assert str(node.config) in unsafe.value.text


@pytest.mark.attack
def test_a_sticky_folder_is_safe(node: Node) -> None:
    """In a folder like /tmp nobody can replace another's file (decisions.md 8)."""
    node.write("disable-require = true")
    node.config.parent.chmod(0o1777)

    assert node.load().disable_require
