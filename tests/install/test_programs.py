"""The programs: launchers under our names and NVIDIA's, and what stood there before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpuhook.archive import archive_path
from gpuhook.install import programs
from gpuhook.install.host import Host
from gpuhook.install.programs import names
from gpuhook.launchers import NVIDIA_NAMES, package_folders, text_for
from tests.install.conftest import Machine

BIN = "/usr/local/bin"


@pytest.fixture
def docker(machine: Machine) -> Machine:
    """A machine with Docker."""
    machine.put({"/etc/docker/daemon.json": "{}"})
    return machine


def test_our_names_always_and_nvidias_when_asked(docker: Machine) -> None:
    """All of them executable, mode 0755."""
    assert docker("install", "docker") == 0
    assert sorted(names(nvidia=False)) == sorted(path.name for path in docker.path(BIN).iterdir())
    assert docker("install", "docker", "--replace-nvidia") == 0
    assert set(NVIDIA_NAMES) | {"gpuhook", "gpuhook-runtime", "gpuhook-docker", "gpuhook-cli"} == {
        path.name for path in docker.path(BIN).iterdir()
    }
    assert {0o755} == {path.stat().st_mode & 0o7777 for path in docker.path(BIN).iterdir()}


@pytest.mark.parametrize("name", ["gpuhook", "nvidia-container-runtime-hook", "nvidia-container-cli"])
def test_a_program_runs_from_where_it_was_put(docker: Machine, name: str) -> None:
    """With an empty environment, since engines may give it one."""
    assert docker("install", "docker", "--replace-nvidia") == 0
    argv = [str(docker.path(f"{BIN}/{name}")), "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={}, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_of_choice(docker: Machine) -> None:
    """The engine is sent there."""
    assert docker("install", "docker", "--bin", "/opt/gpu/bin") == 0
    assert "/opt/gpu/bin/gpuhook-runtime" in docker.text("/etc/docker/daemon.json")
    assert docker.path("/opt/gpu/bin/gpuhook").exists()


@pytest.mark.parametrize("link", [False, True])
def test_a_foreign_program_is_never_overwritten_unasked(docker: Machine, link: bool) -> None:
    """--force keeps it aside, and uninstall brings it back; a link is replaced itself, not what it leads to."""
    docker.put({f"{BIN}/nvidia-docker": "theirs", f"{BIN}/other": "other"})
    if link:
        docker.path(f"{BIN}/nvidia-docker").unlink()
        os.symlink("other", docker.path(f"{BIN}/nvidia-docker"))
    before = docker.tree()
    assert docker("install", "docker", "--replace-nvidia") == 1
    assert docker.err.startswith("gpuhook: foreign-file: /usr/local/bin/nvidia-docker")
    assert before == docker.tree()
    assert docker("install", "docker", "--replace-nvidia", "--force") == 0
    assert "gpuhook" in docker.text(f"{BIN}/nvidia-docker")
    assert docker.text(f"{BIN}/other") == "other"
    assert docker("uninstall", "docker") == 0
    assert before == docker.tree()


def test_pips_own_script_gives_way_until_uninstall(docker: Machine) -> None:
    """It is ours, only slower, and pip wants to find it again."""
    docker.put({f"{BIN}/gpuhook": "#!/usr/bin/python3\nfrom gpuhook.cli import main\n"})
    before = docker.tree()
    assert docker("install", "docker") == 0
    assert docker("uninstall") == 0
    assert before == docker.tree()


def test_programs_stay_while_another_engine_needs_them(docker: Machine) -> None:
    """The last one takes them away."""
    docker.put({"/etc/containers/containers.conf": ""})
    before = docker.tree()
    assert docker("install", "docker") == 0
    assert docker("install", "podman") == 0
    assert docker("uninstall", "docker") == 0
    assert docker.path(f"{BIN}/gpuhook").exists()
    assert docker.text("/etc/docker/daemon.json") == "{}"
    assert docker("uninstall", "podman") == 0
    assert before == docker.tree()


def test_a_launcher_that_was_written_anew_is_still_ours(docker: Machine) -> None:
    """`gpuhook launchers` may have done that; uninstall removes it all the same."""
    before = docker.tree()
    assert docker("install", "docker") == 0
    docker.path(f"{BIN}/gpuhook").write_text(docker.text(f"{BIN}/gpuhook") + "# newer\n")
    assert docker("uninstall") == 0
    assert before == docker.tree()


@pytest.mark.parametrize("name", ["gpuhook", "gpuhook-runtime", "nvidia-docker"])
def test_a_launcher_names_paths_as_its_machine_does(name: str) -> None:
    """An image is configured from outside, and its programs start inside."""
    text = text_for(name, lambda path: f"/seen-from-inside{path}")
    paths = (os.path.realpath(sys.executable), *package_folders(), archive_path())
    assert [] == [path for path in paths if text.count(path) != text.count(f"/seen-from-inside{path}")]


@pytest.mark.parametrize(
    ("root", "path", "named"),
    [("/", "/a/b", "/a/b"), ("/r", "/r/a/b", "/a/b"), ("/r", "/rest/a", "/rest/a"), ("/r", "/opt/a", "/opt/a")],
)
def test_what_is_below_the_root_is_named_without_it(root: str, path: str, named: str) -> None:
    """Anything else is where it is on both."""
    assert named == programs.seen_inside(Host(root=root), path)
