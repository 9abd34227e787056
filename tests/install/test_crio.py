"""`gpuhook install crio`: a runtime in crio.conf.d, or a hook."""

from __future__ import annotations

import json

import pytest

from gpuhook.install.tomledit import Toml
from tests.install.conftest import HOOK, SHIM, Machine

CONF, FOLDER = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-gpuhook.conf"
RUNTIMES = """\
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
runtime_root = "/run/crun"
allowed_annotations = ["io.x"]
[crio.runtime.runtimes.runc]
runtime_root = "/run/runc"
"""


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("", {}),
        (RUNTIMES, {"runtime_root": "/run/crun", "allowed_annotations": ["io.x"]}),
        (RUNTIMES.replace('default_runtime = "crun"', 'default_runtime = "runc"'), {"runtime_root": "/run/runc"}),
    ],
)
@pytest.mark.parametrize("options", [(), ("--set-as-default",)])
def test_a_drop_in(machine: Machine, text: str, like: dict[str, object], options: tuple[str, ...]) -> None:
    """Our runtime differs from the default one in its program; the main file is never written."""
    machine.put({CONF: text})
    before = machine.tree()
    assert machine("install", "crio", *options) == 0
    ours = {"runtime_path": SHIM, "runtime_type": "oci", **like}
    default = {"default_runtime": "nvidia"} if options else {}
    assert Toml(machine.text(DROP_IN)).table == {"crio": {"runtime": {**default, "runtimes": {"nvidia": ours}}}}
    assert "systemctl restart crio" in machine.out
    assert machine("install", "crio", *options) == 0
    assert "nothing changed" in machine.out
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_an_entry_of_nvidias_is_changed_where_it_is(machine: Machine) -> None:
    """And the old file does not stay in a folder of which CRI-O reads every file."""
    text = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/n" # theirs\n'
    machine.put({f"{FOLDER}/99-nvidia.toml": text})
    before = machine.tree()
    assert machine("install", "crio") == 0
    assert machine.text(f"{FOLDER}/99-nvidia.toml") == text.replace("/usr/bin/n", SHIM)
    assert [path.name for path in machine.path(FOLDER).iterdir()] == ["99-nvidia.toml"]
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_a_drop_in_that_somebody_edited(machine: Machine) -> None:
    """Keeps the edits and loses what is ours."""
    machine.put({CONF: ""})
    assert machine("install", "crio", "--set-as-default") == 0
    machine.put({DROP_IN: machine.text(DROP_IN) + "\n[crio.image]\npause_image = 'x'\n"})
    assert machine("uninstall") == 0
    left = Toml(machine.text(DROP_IN)).table
    assert left["crio"]["image"] == {"pause_image": "x"}  # type: ignore[index]
    assert "nvidia" not in machine.text(DROP_IN)


def test_a_hook_where_cri_o_reads_hooks(machine: Machine) -> None:
    """hooks_dir decides."""
    machine.put({CONF: '[crio.runtime]\nhooks_dir = ["/usr/share/containers/oci/hooks.d", "/etc/crio/hooks"]\n'})
    assert machine("install", "crio", "--via", "hook") == 0
    assert json.loads(machine.text("/etc/crio/hooks/oci-nvidia-hook.json"))["hook"]["path"] == HOOK


@pytest.mark.parametrize("file", [CONF, f"{FOLDER}/10-a.conf"])
def test_a_broken_file_is_refused(machine: Machine, file: str) -> None:
    """With file and line, and nothing is written."""
    machine.put({file: "[crio]\nx = = 1\n"})
    before = machine.tree()
    assert machine("install", "crio") == 1
    assert machine.err.startswith("gpuhook: crio-config:")
    assert f"in {file}:2" in machine.err
    assert before == machine.tree()


def test_a_machine_without_cri_o(machine: Machine) -> None:
    """Says so."""
    assert machine("install", "crio") == 1
    assert machine.err.startswith("gpuhook: engine-missing:")
