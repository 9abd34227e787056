"""Files and folders that cannot be written: one clear message, and nothing is changed."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuhook.install.errors import FileProtected
from tests.install.conftest import Machine
from tests.rig.needs import need
from tests.rig.process import PATH, run

pytestmark = pytest.mark.engine

FILE, BIN = "/etc/docker/daemon.json", "/usr/local/bin"
PROJECT = Path(__file__).parents[2]
CODE = "import sys; from gpuhook.hook import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def attribute(flag: str, path: Path) -> Iterator[None]:
    """A file or folder with an attribute of chattr(1)."""
    need("chattr")
    assert run(["chattr", f"+{flag}", str(path)]).status == 0
    try:
        yield
    finally:
        run(["chattr", f"-{flag}", str(path)])


@pytest.mark.parametrize("flag", ["i", "a"])
@pytest.mark.parametrize("place", [FILE, "/etc/docker", BIN, f"{BIN}/gpuhook"])
def test_what_is_immutable_is_left_alone(machine: Machine, flag: str, place: str) -> None:
    """With chattr +i and +a root cannot change a file, nor a folder: the message names it, and nothing is begun."""
    machine.put({FILE: "{}"})
    if place.endswith("gpuhook"):
        assert machine("install", "docker") == 0
        machine.put({place: machine.text(place) + "# older\n"})
    if place == BIN:
        machine.path(place).mkdir(parents=True)
    before = machine.tree()
    with attribute(flag, machine.path(place)):
        assert machine("install", "docker", "--runtime-name", "other") == 1
        assert machine("install", "docker", "--runtime-name", "other", "--dry-run") == 1
    name = place if place.endswith(("json", "gpuhook")) else f"{place}/"
    assert machine.err.startswith(f"gpuhook: file-protected: {name}")
    assert f"chattr -{flag}" in machine.err
    assert before == machine.tree()


def test_a_plain_file_that_is_marked_read_only_is_changed_and_keeps_its_mode(machine: Machine) -> None:
    """No mode bit keeps root out: nothing else manages a plain file, and the shared cases come so."""
    machine.put({FILE: "{}"})
    machine.path(FILE).chmod(0o444)
    before = machine.tree()
    assert machine("install", "docker") == 0
    assert machine.path(FILE).stat().st_mode & 0o7777 == 0o444
    assert machine("uninstall") == 0
    assert before == machine.tree()


@pytest.mark.parametrize("folder", ["/etc/docker", "/usr/local/bin", "/var/lib", "/"])
def test_a_read_only_filesystem_is_said(machine: Machine, folder: str) -> None:
    """Whichever of the folders it is; nothing is left half done in the others."""
    need("unshare")
    machine.put({FILE: "{}", "/usr/local/bin/x": "", "/var/lib/x": ""})
    before = machine.tree()
    place = machine.path(folder)
    mounts = f"mount --bind {place} {place} && mount -o remount,ro,bind {place}"
    command = f"{mounts} && exec {sys.executable} -c '{CODE}' install docker --root {machine.root}"
    done = run(["unshare", "--mount", "sh", "-c", command], cwd=str(PROJECT))
    assert done.status == FileProtected.exit_status
    assert done.stderr.startswith("gpuhook: file-protected: ")
    assert "ead-only" in done.stderr
    assert before == machine.tree()


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_who_is_not_root_is_told_so(options: tuple[str, ...]) -> None:
    """Before anything is written. What the other user runs must not lie below /root; packages are only looked for."""
    need("setpriv")
    with tempfile.TemporaryDirectory(prefix="gpuhook-") as place:
        root, code = f"{place}/root", f"{place}/code"
        os.chmod(place, 0o755)
        os.makedirs(f"{root}/etc/docker")
        shutil.copytree(PROJECT / "gpuhook", f"{code}/gpuhook", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pydantic", "toml"):
            os.makedirs(f"{code}/{name}")
            Path(f"{code}/{name}/__init__.py").touch()
        Path(f"{root}{FILE}").write_text("{}")
        words = ["install", "docker", "--root", root, *options]
        argv = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", CODE, *words]
        done = run(argv, cwd=code, env={"PATH": PATH})
        assert done.status == 1
        assert done.stderr.startswith("gpuhook: file-protected: /")
        assert "run it as root" in done.stderr
        assert [path.name for path in Path(root).rglob("*")] == ["etc", "docker", "daemon.json"]


def test_a_dry_run_refuses_what_the_real_one_refuses(machine: Machine) -> None:
    """And the overview says it; neither promises what will not happen."""
    machine.put({FILE: "{}"})
    os.chown(machine.path(FILE), 1234, 0)
    assert machine("install", "docker", "--dry-run") == 1
    assert (machine.out, "belongs to uid 1234" in machine.err) == ("", True)
    assert machine("install") == 0
    assert "belongs to uid 1234" in machine.out


def test_a_program_that_cannot_be_removed_is_tried_again(machine: Machine) -> None:
    """Uninstall says it, goes no further, and ends its work the next time."""
    machine.put({FILE: '{"a": 1}'})
    before = machine.tree()
    assert machine("install", "docker") == 0
    with attribute("i", machine.path("/usr/local/bin/gpuhook-cli")):
        assert machine("uninstall") == 1
    assert machine.err.startswith("gpuhook: file-protected: /usr/local/bin/gpuhook-cli cannot be written")
    assert machine("uninstall") == 0
    assert before == machine.tree()
