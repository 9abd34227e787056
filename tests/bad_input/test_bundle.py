"""A bundle that is none: its config.json and its root filesystem."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bad_input.conftest import Scene, refused
from tests.rig.init import run_hook
from tests.rig.needs import need

pytestmark = pytest.mark.engine

Spec = dict[str, Any]

BYTES = {
    "empty": b"",
    "blanks": b"  \n",
    "truncated": b'{"ociVersion": "1.0.2", "process": {"env": ["A=',
    "not JSON": b"ociVersion: 1.0.2",
    "trailing text": b'{"ociVersion": "1.0.2", "process": {}, "root": {}} x',
    "not UTF-8": b'{"ociVersion": "\xff"}',
    "deep": b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "huge": b" " * (17 << 20),
    "a list": b"[]",
    "null": b"null",
    "a text": b'"config"',
    "a NUL": b'{"ociVersion"\0: "1.0.2"}',
}


@pytest.mark.parametrize("name", BYTES)
def test_a_file_that_is_no_configuration(scene: Scene, name: str) -> None:
    """config.json is named, and what is wrong with it."""
    result = scene.spec_hook(BYTES[name])
    refused(result, "bad-bundle", "config.json")
    assert result.seconds < 5


def change(*path: str, to: object = None) -> Callable[[Spec], None]:
    """Sets what is at this path of keys, or removes it."""

    def edit(spec: Spec) -> None:
        place = spec
        for key in path[:-1]:
            place = place[key]
        if to is None:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = to

    return edit


FIELDS = {
    "no ociVersion": ("ociVersion", change("ociVersion")),
    "ociVersion a number": ("ociVersion", change("ociVersion", to=1)),
    "no process": ("process", change("process")),
    "process a list": ("process", change("process", to=[])),
    "no root": ("root", change("root")),
    "root a text": ("root", change("root", to="rootfs")),
    "root.path a number": ("root.path", change("root", "path", to=5)),
    "root.path a list": ("root.path", change("root", "path", to=["/"])),
    "env a text": ("process.env", change("process", "env", to="A=1")),
    "env an object": ("process.env", change("process", "env", to={"A": "1"})),
    "env with a number": ("process.env[0]", change("process", "env", to=[1])),
    "mounts an object": ("mounts", change("mounts", to={"destination": "/"})),
    "a mount a text": ("mounts[0]", change("mounts", to=["/proc"])),
    "a destination a number": ("mounts[0].destination", change("mounts", to=[{"destination": 1}])),
    "capabilities a text": ("process.capabilities", change("process", "capabilities", to="CAP_KILL")),
    "bounding a text": ("process.capabilities.bounding", change("process", "capabilities", "bounding", to="CAP_KILL")),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_the_wrong_kind(scene: Scene, name: str) -> None:
    """The key is named with its file."""
    key, edit = FIELDS[name]
    refused(scene.spec_hook(edit), "bad-bundle", f"config.json: {key}")


def test_a_key_that_only_some_would_read(scene: Scene) -> None:
    """`Root` beside `root` means one thing to one reader and another to the next: refused."""
    refused(scene.spec_hook(change("Root", to={"path": "/"})), "bad-bundle", "'Root'")


def test_a_bundle_that_is_missing(scene: Scene, tmp_path: Path) -> None:
    """No such folder; a folder without config.json; a file."""
    (tmp_path / "file").write_text("")
    (tmp_path / "bare").mkdir()
    for name in ("absent", "bare", "file"):
        refused(scene.hook(scene.state(bundle=str(tmp_path / name))), "bad-bundle", f"{tmp_path}/{name}/config.json")


@pytest.mark.parametrize("kind", ["folder", "FIFO", "link", "dangling link", "writable by others"])
def test_a_config_json_that_cannot_be_read(scene: Scene, tmp_path: Path, kind: str) -> None:
    """No regular file, or one that anybody could have written; a FIFO is not waited for."""
    file = tmp_path / "config.json"
    if kind == "folder":
        file.mkdir()
    elif kind == "FIFO":
        os.mkfifo(file)
    elif kind == "writable by others":
        file.write_bytes(Path(scene.bundle, "config.json").read_bytes())
        file.chmod(0o666)
    else:
        file.symlink_to(f"{scene.bundle}/config.json" if kind == "link" else "absent")
    result = scene.hook(scene.state(bundle=str(tmp_path)))
    refused(result, "bad-bundle", f"{tmp_path}/config.json")
    assert result.seconds < 3


def test_a_config_json_that_root_may_not_read(scene: Scene, tmp_path: Path) -> None:
    """Somebody else's file, and a hook without the capability to override its mode, as in a confined service."""
    need("setpriv")
    file = tmp_path / "config.json"
    file.write_bytes(Path(scene.bundle, "config.json").read_bytes())
    file.chmod(0o600)
    os.chown(file, 12345, 12345)
    confined = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    argv = [*confined, scene.node.launcher, "--config", scene.config, "prestart"]
    refused(run_hook(argv, scene.state(bundle=str(tmp_path))), "bad-bundle", str(file), "Permission denied")


# --- the root filesystem ---

NO_ROOT = {
    "empty": ("", "bad-bundle"),
    "the host's root": ("/", "bad-bundle"),
    "the host's root, climbing": ("/../..", "bad-bundle"),
    "the host's root by a link": ("LINK", "bad-container"),
    "missing": ("/nonexistent/rootfs", "bad-container"),
    "relative and missing": ("rootfs", "bad-container"),
    "a file": ("/etc/passwd", "bad-container"),
    "a device": ("/dev/null", "bad-container"),
    "with a newline": ("/tmp/a\nb", "bad-bundle"),
    "with a NUL": ("/tmp/a\0b", "bad-bundle"),
    "too long": ("/x" * 3000, "bad-container"),
    "a part too long": ("/" + "x" * 300, "bad-container"),
    "another folder": ("/usr", "bad-container"),
}


@pytest.mark.parametrize("name", NO_ROOT)
def test_a_root_that_is_none(scene: Scene, tmp_path: Path, name: str) -> None:
    """Missing, empty, the host's own, no folder, or not this process's: refused, and root.path is named."""
    path, slug = NO_ROOT[name]
    if path == "LINK":
        (tmp_path / "link").symlink_to("/")
        path = str(tmp_path / "link")
    edit = change("root", "path", to=path)
    refused(scene.spec_hook(edit), slug, "root")


def test_a_root_without_a_path(scene: Scene) -> None:
    """root.path is missing."""
    refused(scene.spec_hook(change("root", "path")), "bad-bundle", "root.path")
