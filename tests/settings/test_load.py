from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook import settings as room
from gpuhook.errors import ConfigBroken
from gpuhook.kernel.files import identity
from gpuhook.settings import snapshot
from gpuhook.settings.load import load_settings
from gpuhook.settings.values import Settings
from tests.settings.conftest import Node


def test_no_file_means_the_defaults(node: Node) -> None:
    """The usual file may be absent; there is nothing to warn about."""
    assert Settings() == node.load()


def test_the_absence_is_looked_at_each_time(node: Node) -> None:
    """A file that appears counts at once."""
    node.load()
    node.write("disable-require = true")

    assert node.load().disable_require


def test_an_empty_file_means_the_defaults(node: Node) -> None:
    """An empty file is a file: its name is known."""
    node.write("")

    assert Settings(source=str(node.config)) == node.load()


def test_the_second_load_decides_nothing(node: Node) -> None:
    """The outcome of the first load is kept, with every kind of value and every warning."""
    node.write(
        'unknown = 1\nswarm-resource = "A,B"\n[nvidia-container-cli]\nldconfig = "/sbin/ldconfig"\nno-cgroups = true\n'
    )
    first = node.load()

    assert first == node.load()
    assert 1 == node.decisions
    assert (("A", "B"), "@/sbin/ldconfig", True, 2) == (
        first.swarm_resource,
        first.ldconfig,
        first.no_cgroups,
        len(first.warnings),
    )


def test_a_failure_is_kept_too(node: Node) -> None:
    """A broken file is not parsed at every start; the second refusal is the first."""
    node.write("disable-require = true\ngpu works now\n")
    refusals = []
    for _ in range(2):
        with pytest.raises(ConfigBroken) as broken:
            node.load()
        refusals.append(broken.value.render())

    assert refusals[0] == refusals[1]
    assert f"{node.config}:2" in refusals[0]
    assert 1 == node.decisions


@pytest.mark.parametrize("change", ["content", "time", "inode", "mode"])
def test_every_change_of_the_file_is_seen(node: Node, change: str) -> None:
    """The snapshot is for one state of the file: nobody has to run a command after editing it."""
    node.write("disable-require = false")
    node.load()
    if change == "content":
        node.write("disable-require = true ")
    elif change == "time":
        os.utime(node.config)
    elif change == "inode":
        node.write("disable-require = true ", node.home / "new").replace(node.config)
    else:
        node.config.chmod(0o600)

    assert (change in ("content", "inode")) == node.load().disable_require
    assert 2 == node.decisions


def test_a_change_within_the_same_tick_is_seen(node: Node) -> None:
    """A file that changes again at once, with the same size, is not mistaken for what it was."""
    for value in ("true ", "false") * 20:
        node.config.write_text(f"disable-require = {value}")
        assert (value == "true ") == node.load().disable_require


def test_two_files_do_not_share_a_snapshot(node: Node) -> None:
    """A named file does not get the outcome of the usual one, nor the other way round."""
    node.write("disable-require = true")
    other = node.write("disable-require = true\nswarm-resource = 'A'", node.home / "other.toml")

    assert [(), ("A",), (), ("A",)] == [node.load(path).swarm_resource for path in ("", other, "", other)]
    assert 2 == node.decisions


def test_a_snapshot_of_unknown_settings_is_ignored(node: Node) -> None:
    """Fields that this code does not have are another code's."""
    node.write("disable-require = true")
    node.load()
    status = node.config.stat()
    key = (str(node.config), *identity(status))
    snapshot.save("settings", key, {"settings": {"no_such_field": 1}}, folder=node.folder)

    assert node.load().disable_require
    assert 2 == node.decisions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("supported_driver_capabilities", 3),
        ("supported_driver_capabilities", None),
        ("supported_driver_capabilities", "compute"),
        ("supported_driver_capabilities", [1, 2]),
        ("disable_require", 1),
        ("no_cgroups", "yes"),
        ("cli_user", 5),
        ("cli_root", False),
    ],
)
def test_a_snapshot_with_a_value_of_another_kind_is_ignored(node: Node, name: str, value: object) -> None:
    """Damaged, or another code's: decided anew."""
    node.write("disable-require = true")
    node.load()
    key = (str(node.config), *identity(node.config.stat()))
    snapshot.save("settings", key, {"settings": {name: value}}, folder=node.folder)

    assert Settings(source=str(node.config), disable_require=True) == node.load()
    assert 2 == node.decisions


@pytest.mark.parametrize("value", [{}, {"settings": 1}, {"failure": "x"}, {"failure": ["x"]}])
def test_a_snapshot_of_another_shape_is_ignored(node: Node, value: dict[str, object]) -> None:
    """A snapshot has settings or a failure in the form that we write."""
    node.write("disable-require = true")
    node.load()
    snapshot.save("settings", (str(node.config), *identity(node.config.stat())), value, folder=node.folder)

    assert node.load().disable_require


def test_settings_do_not_depend_on_the_snapshot(node: Node) -> None:
    """Where no snapshot can be kept, each load decides anew."""
    node.write("disable-require = true")
    Path(node.folder).write_text("not a folder")

    assert (True, True) == (node.load().disable_require, node.load().disable_require)
    assert 2 == node.decisions


# What it costs

FAST = """
import sys
sys.path.insert(0, sys.argv[1])
from gpuhook.settings.load import load_settings
found = load_settings(sys.argv[2], {}, folder=sys.argv[3])
costly = {"pydantic", "toml", "json", "os", "re", "typing", "enum", "collections", "pathlib", "gpuhook.settings.model"}
print(found.swarm_resource, sorted(costly & set(sys.modules)))
"""


@pytest.mark.parametrize(("text", "expected"), [("swarm-resource = 'A'", ("A",)), ("", ()), (None, ())])
def test_the_fast_path_imports_nothing_costly(node: Node, text: str | None, expected: tuple[str, ...]) -> None:
    """With a snapshot, or without a file, neither pydantic nor the standard library's heavy parts are loaded."""
    if text is not None:
        load_settings(str(node.write(text)), {}, folder=node.folder)
    code = FAST if text is not None else FAST.replace("sys.argv[2], {}", '"", {}, default=sys.argv[2]')
    package = str(Path(room.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, package, str(node.config), node.folder],
        capture_output=True,
        text=True,
        check=True,
    )

    assert f"{expected} []\n" == done.stdout


def test_missing_packages_are_named(node: Node) -> None:
    """Where pydantic or toml cannot be imported, the message says so instead of a traceback."""
    path = node.write("swarm-resource = 'A'")
    package = str(Path(room.__file__).parents[2])
    code = FAST.replace("found =", "sys.path[:] = sys.path[:1]\nfound =")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, package, str(path), node.folder], capture_output=True, text=True
    )

    assert "ConfigBroken" in done.stderr
    assert "which reading it needs" in done.stderr
