"""A config.toml that is broken, unsafe or absent: GPU containers fail with its place, the others start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bad_input.conftest import Scene, refused

pytestmark = pytest.mark.engine

BROKEN = {
    "a stray word": ("disable-require = false\nhello\n", ":2"),
    "an open text": ('[nvidia-container-cli]\nroot = "/x\n', ":2"),
    "an open list": ("[nvidia-container-cli]\nenvironment = [\n", ":2"),
    "a key twice": ("disable-require = true\ndisable-require = false\n", ":2"),
    "a word for a truth": ('disable-require = "yes"\n', ":1: disable-require"),
    "a number for a text": ("\n[nvidia-container-cli]\nroot = 5\n", ":3: nvidia-container-cli.root"),
    "a text for a list": ('[nvidia-container-cli]\nenvironment = "A=1"\n', ":2: nvidia-container-cli.environment"),
    "a text for a table": ('nvidia-container-cli = "x"\n', ":1: nvidia-container-cli"),
    "a backend that is none": ('[gpuhook]\nbackend = "magic"\n', ":2: gpuhook.backend"),
    "a mode that is none": ('[nvidia-container-runtime]\nmode = "magic"\n', ":2: nvidia-container-runtime.mode"),
    "a capability that is none": (
        'supported-driver-capabilities = "compute,magic"\n',
        ":1: supported-driver-capabilities",
    ),
    "not UTF-8": ("root = \udcff\n", ""),
}


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return str(file)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_fails_a_gpu_container(scene: Scene, tmp_path: Path, name: str) -> None:
    """The message names the file, the line, and the key where there is one."""
    text, place = BROKEN[name]
    config = write(tmp_path, text)
    refused(scene.hook(config=config), "config-toml-broken", f"{config}{place}")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_lets_others_start(scene: Scene, tmp_path: Path, name: str) -> None:
    """A container that asks for no GPU starts, with one warning that names the file."""
    config = write(tmp_path, BROKEN[name][0])
    result = scene.env_hook("OTHER=1", config=config)
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.startswith("gpuhook: warning: config-toml-broken: ")
    assert config in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["absent", "folder", "FIFO", "dangling link"])
def test_a_named_file_that_is_none(scene: Scene, tmp_path: Path, kind: str) -> None:
    """--config names a file that must exist and be one."""
    path = tmp_path / "config.toml"
    make = {"folder": os.mkdir, "FIFO": os.mkfifo, "dangling link": lambda path: os.symlink("absent", path)}
    if kind in make:
        make[kind](path)
    result = scene.hook(config=str(path))
    refused(result, "config-toml-broken", str(path))
    assert result.seconds < 3
    assert scene.env_hook(config=str(path)).status == 0


@pytest.mark.parametrize("what", ["file", "folder", "owner"])
def test_a_file_that_others_can_write(scene: Scene, tmp_path: Path, what: str) -> None:
    """What root obeys is root's: the file or a folder above it that others can write is refused."""
    folder = tmp_path / "etc"
    folder.mkdir()
    config = write(folder, Path(scene.config).read_text())
    if what == "owner":
        os.chown(config, 12345, 12345)
    else:
        os.chmod(config if what == "file" else folder, 0o666 if what == "file" else 0o777)
    refused(scene.hook(config=config), "unsafe-config", str(folder))
    result = scene.env_hook(config=config)
    assert (result.status, result.stderr.startswith("gpuhook: warning: unsafe-config: ")) == (0, True)


def test_a_mode_that_is_no_hooks_work(scene: Scene, tmp_path: Path) -> None:
    """With mode = "cdi": refused, with what to use; a container without a GPU does not care."""
    config = write(tmp_path, '[nvidia-container-runtime]\nmode = "cdi"\n')
    refused(scene.hook(config=config), "hook-not-invoked", "cdi", config)
    result = scene.env_hook(config=config)
    assert (result.status, result.stderr) == (0, "")


def test_what_is_wrong_with_the_file_is_said_before_anything_fails(scene: Scene, tmp_path: Path) -> None:
    """A misspelt key may be why the start fails: its warning comes with the failure."""
    text = f'[nvidia-container-cli]\nrooot = "/x"\nroot = "{tmp_path}"\n[gpuhook]\nbackend = "embedded"\n'
    result = scene.env_hook("NVIDIA_VISIBLE_DEVICES=0", config=write(tmp_path, text))
    assert result.status == 1
    first, second, *_ = result.stderr.splitlines()
    assert first.startswith("gpuhook: warning: config-toml-broken: ")
    assert "rooot" in first
    assert second.startswith("gpuhook: driver-")


def test_a_driver_root_that_is_no_absolute_path(scene: Scene, tmp_path: Path) -> None:
    """It would mean another folder for each caller."""
    config = write(tmp_path, '[nvidia-container-cli]\nroot = "driver"\n[gpuhook]\nbackend = "embedded"\n')
    refused(scene.env_hook("NVIDIA_VISIBLE_DEVICES=0", config=config), "config-toml-broken", "root")
