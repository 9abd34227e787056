"""Installations after installations, edits between them, and what uninstall makes of it."""

from __future__ import annotations

import json

import pytest

from gpuhook.install.apply import Undo, carry_out
from gpuhook.install.host import Host
from gpuhook.install.tomledit import Toml, at, table_at
from tests.install.conftest import SHIM, Machine

DAEMON, K0S = "/etc/docker/daemon.json", "/etc/k0s/containerd.d/99-gpuhook.toml"
K3S, MAIN = "/var/lib/rancher/k3s/agent/etc/containerd", "/etc/containerd/config.toml"
TEMPLATE, OPTIONS = f"{K3S}/config.toml.tmpl", "/etc/rancher/k3s/config.yaml.d/99-gpuhook.yaml"
V2 = ("plugins", "io.containerd.grpc.v1.cri", "containerd")
V3 = ("plugins", "io.containerd.cri.v1.runtime", "containerd")
HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
ENGINES = {
    "docker": ({DAEMON: '{"a": 1}\n'}, DAEMON, ("docker",)),
    "containerd": ({MAIN: "version = 2\n"}, MAIN, ("containerd",)),
    "k0s": ({"/etc/k0s/k0s.yaml": ""}, K0S, ("containerd",)),
    "k3s": ({f"{K3S}/config.toml": "version = 2\n"}, TEMPLATE, ("containerd",)),
    "crio": ({"/etc/crio/crio.conf": ""}, "/etc/crio/crio.conf.d/99-gpuhook.conf", ("crio",)),
    "podman": (
        {"/etc/containers/containers.conf": ""},
        "/etc/containers/containers.conf.d/99-gpuhook.conf",
        ("podman", "--via", "runtime"),
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("edited", [False, True], ids=["untouched", "edited since"])
def test_a_second_runtime_stands_beside_the_first(machine: Machine, engine: str, edited: bool) -> None:
    """Both are registered; uninstall takes both out, also of a file that somebody edited."""
    files, file, words = ENGINES[engine]
    machine.put(files)
    before = machine.tree()
    assert machine("install", *words, "--set-as-default") == 0
    assert machine("install", *words, "--runtime-name", "second") == 0
    after = machine.text(file)
    for name in ("nvidia", "second"):
        assert machine("install", *words, "--runtime-name", name) == 0
        assert "nothing changed" in machine.out
    assert after.count(SHIM) == 2
    comment = '{"b": 2, ' if file.endswith("json") else "# mine\n"
    if edited:
        machine.put({file: comment + after.removeprefix("{" if file.endswith("json") else "")})
    assert machine("uninstall") == 0
    if edited:
        left = machine.text(file)
        assert left.startswith(comment)
        assert [] == [word for word in ("second", "nvidia", "gpuhook-runtime") if word in left]
        machine.put({file: files[file]}) if file in files else machine.path(file).unlink()
    names = [path for path in before if not str(path).endswith(".d")]
    tree = machine.tree()
    assert [tree[name][0] for name in names if isinstance(before[name], tuple)] == [  # type: ignore[index]
        facts[0] for facts in before.values() if isinstance(facts, tuple)
    ]


def test_the_default_of_an_earlier_installation_stays(machine: Machine) -> None:
    """Installing again without --set-as-default takes nothing back."""
    machine.put({"/etc/k0s/k0s.yaml": ""})
    assert machine("install", "containerd", "--set-as-default") == 0
    assert machine("install", "containerd") == 0
    assert "nothing changed" in machine.out
    assert at(Toml(machine.text(K0S)).table, (*V2, "default_runtime_name")) == "nvidia"


def test_both_runtimes_are_in_the_drop_in(machine: Machine, merging: str) -> None:
    """Of a containerd that merges files."""
    machine.put({MAIN: "version = 3\n"})
    before = machine.tree()
    words = ("install", "containerd", "--containerd", merging)
    assert machine(*words) == 0
    assert machine(*words, "--runtime-name", "second") == 0
    text = machine.text("/etc/containerd/conf.d/99-gpuhook.toml")
    assert set(table_at(Toml(text).table, (*V3, "runtimes"))) == {"nvidia", "second"}
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_a_file_that_somebody_put_back_is_known_again(machine: Machine) -> None:
    """By hand, from the kept one; after another installation uninstall still restores every byte, and keeps none."""
    machine.put({DAEMON: '{"a":1}'})
    before = machine.path(DAEMON).read_bytes()
    assert machine("install", "docker") == 0
    machine.path(DAEMON).write_bytes(before)
    assert machine("install", "docker", "--set-as-default") == 0
    assert machine("uninstall") == 0
    assert [path.name for path in machine.path("/etc/docker").iterdir()] == ["daemon.json"]
    assert machine.path(DAEMON).read_bytes() == before


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_kept_file_that_is_gone_is_not_missed(machine: Machine, force: tuple[str, ...]) -> None:
    """Somebody tidied up; ours is taken out of the new file as if it had been edited."""
    machine.put({DAEMON: '{\n "a": 1\n}\n'})
    assert machine("install", "docker") == 0
    machine.path(f"{DAEMON}.before-gpuhook").unlink()
    assert machine("uninstall", *force) == 0
    assert json.loads(machine.text(DAEMON)) == {"a": 1}


def test_a_program_whose_kept_one_is_gone_stays(machine: Machine) -> None:
    """There is nothing to put in its place; status 1 says so."""
    machine.put({DAEMON: "{}", "/usr/local/bin/nvidia-docker": "theirs"})
    assert machine("install", "docker", "--replace-nvidia", "--force") == 0
    machine.path("/usr/local/bin/nvidia-docker.before-gpuhook").unlink()
    assert machine("uninstall") == 1
    assert "/usr/local/bin/nvidia-docker: edited since" in machine.out
    assert machine("uninstall", "--force") == 1
    assert machine.text(DAEMON) == "{}"


def test_the_program_stays_with_the_hook_file_that_calls_it(machine: Machine) -> None:
    """Podman starts no container at all if a hook's program is missing."""
    machine.put({"/etc/containers/containers.conf": ""})
    before = machine.tree()
    assert machine("install", "podman") == 0
    machine.put({HOOK: machine.text(HOOK).replace("prestart", "createRuntime")})
    assert machine("uninstall") == 1
    assert "/usr/local/bin/gpuhook: stays" in machine.out
    assert machine.path(json.loads(machine.text(HOOK))["hook"]["path"]).exists()
    assert machine("uninstall", "--force") == 0
    assert before == machine.tree()


def test_programs_in_two_folders(machine: Machine) -> None:
    """The engine is sent to the newer ones; uninstall takes all of them, and brings back what stood in either."""
    machine.put({DAEMON: "{}", "/usr/local/bin/nvidia-docker": "theirs", "/opt/b/gpuhook-cli": "theirs, too"})
    before = machine.tree()
    assert machine("install", "docker", "--replace-nvidia", "--force") == 0
    assert machine("install", "docker", "--replace-nvidia", "--force", "--bin", "/opt/b") == 0
    assert json.loads(machine.text(DAEMON))["runtimes"]["nvidia"]["path"] == "/opt/b/gpuhook-runtime"
    assert machine("uninstall", "docker") == 0
    assert before == machine.tree()


@pytest.mark.parametrize("engine", ["docker", "containerd", "podman", "crio"])
def test_uninstall_without_an_installation(machine: Machine, engine: str) -> None:
    """Changes nothing, says so, and is no error."""
    machine.put({DAEMON: '{"runtimes": {"nvidia": {"path": "/usr/local/bin/gpuhook-runtime"}}}'})
    before = machine.tree()
    assert machine("uninstall", engine) == 0
    assert machine.out == f"nothing is installed for {engine}\n"
    assert before == machine.tree()


def test_a_file_that_is_written_while_it_is_restored_is_not_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes between our look and our work is noticed."""
    machine.put({DAEMON: '{"a": 1}\n'})
    assert machine("install", "docker") == 0

    def late(host: Host, what: Undo) -> None:
        machine.put({DAEMON: '{"theirs": 1}\n'})
        carry_out(host, what)

    monkeypatch.setattr("gpuhook.install.remove.carry_out", late)
    assert machine("uninstall") == 1
    assert machine.err.startswith("gpuhook: changed-meanwhile:")
    assert machine.text(DAEMON) == '{"theirs": 1}\n'
