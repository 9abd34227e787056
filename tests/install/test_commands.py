"""`gpuhook install`, `uninstall` and `status` as commands."""

from __future__ import annotations

import inspect

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.hook import main
from gpuhook.install import errors
from tests.install.conftest import Machine

ALL = {
    "/etc/docker/daemon.json": "{}",
    "/etc/containerd/config.toml": "version = 2\n",
    "/etc/containers/containers.conf": "",
    "/etc/crio/crio.conf": "",
}


def test_without_an_engine_it_shows_what_it_would_do_and_does_nothing(machine: Machine) -> None:
    """Each engine: found or not, and the files."""
    machine.put(ALL)
    before = machine.tree()
    assert machine("install") == 0
    for text in ("docker: found", "containerd: found", "podman: found", "crio: found", "would change", "would create"):
        assert text in machine.out
    assert before == machine.tree()


def test_on_an_empty_machine_nothing_is_found(machine: Machine) -> None:
    """And that is no error."""
    assert machine("install") == 0
    assert machine.out.count("not found") == 4
    assert machine("status") == 0
    assert machine.out.count("not found") == 4
    assert machine("uninstall") == 0
    assert "nothing is installed" in machine.out


def test_a_broken_file_shows_in_the_overview(machine: Machine) -> None:
    """With the message that the installation would fail with."""
    machine.put({"/etc/docker/daemon.json": "{"})
    assert machine("install") == 0
    assert "daemon-json-invalid" in machine.out


def test_all_engines_at_once(machine: Machine) -> None:
    """Installed, shown and taken back together."""
    machine.put(ALL)
    before = machine.tree()
    assert machine("install", "docker", "containerd", "podman", "crio", "--replace-nvidia") == 0
    assert machine("status") == 0
    assert machine.out.count("gpuhook's") == 5  # CRI-O reads Podman's hooks, too
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_one_engine_that_cannot_be_changed_stops_all(machine: Machine) -> None:
    """Nothing is half installed."""
    machine.put({**ALL, "/etc/containerd/config.toml": "version = = 2\n"})
    before = machine.tree()
    assert machine("install", "docker", "containerd") == 1
    assert before == machine.tree()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}', "NVIDIA's, which does not exist"),
        ('{"runtimes": {"kata": {"path": "/opt/kata"}}}', "no GPU runtime"),
        ('{"default-runtime": "x", "runtimes": {"x": {"path": "/o/gpuhook-runtime"}}}', "x, the default is"),
        ("{", "daemon-json-invalid"),
    ],
)
def test_status_tells_whose_a_runtime_is(machine: Machine, text: str, said: str) -> None:
    """By the program that it names; a broken file is shown as such."""
    machine.put({"/etc/docker/daemon.json": text})
    assert machine("status", "docker") == 0
    assert said in machine.out


@pytest.mark.parametrize(
    "words",
    [
        ["install", "dokcer"],
        ["install", "docker", "podman", "--config", "/x"],
        ["install", "docker", "--config", "x"],
        ["install", "docker", "--bin", "bin"],
        ["install", "docker", "--runtime-name", "a/b"],
        ["install", "docker", "--runtime-name", "a\nb"],
        ["install", "docker", "--runtime-name", ""],
        ["status", "x"],
        ["uninstall", "x"],
    ],
)
def test_a_command_line_that_means_nothing_is_refused(machine: Machine, words: list[str]) -> None:
    """Status 2, one message, no trace, nothing written."""
    assert machine(*words) == 2
    assert machine.err.startswith("gpuhook: usage:")
    assert machine.tree() == {}


def test_a_root_that_is_no_folder_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is made there."""
    assert main(["install", "--root", "/does/not/exist"]) == 2
    assert "no folder" in capfd.readouterr().err


CLASSES: list[type[GpuhookError]] = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, GpuhookError)
]
CLASSES.remove(GpuhookError)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_has_a_reference_a_status_and_a_reason(kind: type[GpuhookError]) -> None:
    """A reference of its own, that can be looked up; the status is never 0."""
    assert kind.reference.replace("-", "").isalnum()
    assert [kind] == [other for other in CLASSES if other.reference == kind.reference]
    assert kind.exit_status == 1
    assert kind.__doc__
