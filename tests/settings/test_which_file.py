from __future__ import annotations

import pytest

from gpuhook.errors import ConfigBroken
from gpuhook.settings.load import find
from gpuhook.settings.values import DEFAULT_CONFIG, Settings
from tests.settings.conftest import Node


def test_one_named_on_the_command_line_wins(node: Node) -> None:
    """A file given explicitly is the only one that is read."""
    named = node.write("swarm-resource = 'A'", node.home / "named.toml")
    environ = {"NVIDIA_CTK_CONFIG_FILE_PATH": "/absent", "XDG_CONFIG_HOME": "/absent"}

    assert str(named) == node.load(named, **environ).source


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, (DEFAULT_CONFIG, False)),
        ({b"NVIDIA_CTK_CONFIG_FILE_PATH": b"/a/b.toml", b"XDG_CONFIG_HOME": b"/x"}, ("/a/b.toml", True)),
        ({b"NVIDIA_CTK_CONFIG_FILE_PATH": b"", b"XDG_CONFIG_HOME": b"/x"}, ("/x/" + DEFAULT_CONFIG[5:], False)),
        ({b"XDG_CONFIG_HOME": b""}, (DEFAULT_CONFIG, False)),
        ({b"XDG_CONFIG_HOME": b"/\xff"}, ("/\udcff/" + DEFAULT_CONFIG[5:], False)),
    ],
)
def test_variables_choose_the_file(environ: dict[bytes, bytes], found: tuple[str, bool]) -> None:
    """NVIDIA_CTK_CONFIG_FILE_PATH names a file that must exist, XDG_CONFIG_HOME one that may (hook.md 2)."""
    assert (*found, ()) == find("", environ)


@pytest.mark.parametrize("variable", ["NVIDIA_CTK_CONFIG_FILE_PATH", "XDG_CONFIG_HOME"])
@pytest.mark.parametrize("value", ["../x", "x/y", "~/x"])
def test_relative_variables_are_ignored_with_a_warning(node: Node, variable: str, value: str) -> None:
    """A relative path would depend on the folder that the hook is started in (decisions.md 7)."""
    node.write("unknown = 1")
    warnings = node.load(**{variable: value}).warnings

    assert ["unsafe-config", "config-toml-broken"] == [slug for slug, _ in warnings]
    assert variable in warnings[0][1]
    assert value in warnings[0][1]


def test_a_relative_name_on_the_command_line_is_made_absolute(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The administrator's own command line may say ./config.toml."""
    node.write("disable-require = true")
    monkeypatch.chdir(node.config.parent)

    assert str(node.config) == node.load("config.toml").source


def test_a_relative_name_in_a_vanished_folder_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the current folder is gone, a relative name means nothing."""
    gone = node.home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigBroken, match="relative"):
        node.load("config.toml")


def test_the_usual_file_is_not_read_beside_xdgs(node: Node) -> None:
    """Only one file is read: an absent one under XDG_CONFIG_HOME does not lead back to /etc."""
    node.write("disable-require = true")

    assert Settings() == node.load(XDG_CONFIG_HOME=str(node.home / "xdg"))


def test_xdgs_file_is_read(node: Node) -> None:
    """XDG_CONFIG_HOME/nvidia-container-runtime/config.toml counts before /etc."""
    path = node.write("disable-require = true", node.home / "xdg" / "nvidia-container-runtime" / "config.toml")

    assert str(path) == node.load(XDG_CONFIG_HOME=str(node.home / "xdg")).source
