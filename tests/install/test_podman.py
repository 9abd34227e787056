"""`gpuhook install podman`: the one GPU hook in effect, or a runtime."""

from __future__ import annotations

import json

import pytest

from gpuhook.install.tomledit import Toml
from tests.install.conftest import HOOK, SHIM, Machine

USUAL, ETC = "/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"
CONF = "/etc/containers/containers.conf"
HOOK_OF_THEIRS = {"path": "/usr/bin/nvidia-container-runtime-hook"}
THEIRS = json.dumps({"version": "1.0.0", "hook": HOOK_OF_THEIRS, "when": {"always": True}, "stages": ["prestart"]})
OTHER = THEIRS.replace("nvidia-container-runtime-hook", "something")


def in_effect(machine: Machine, *folders: str) -> dict[str, dict[str, object]]:
    """The GPU hooks that an engine would call, by path."""
    names = {path.name: path for folder in folders for path in sorted(machine.path(folder).glob("*.json"))}
    found = {str(path): json.loads(path.read_text()) for path in names.values()}
    return {path: hook for path, hook in found.items() if "something" not in hook["hook"]["path"]}


def test_the_hook_file(machine: Machine) -> None:
    """Format 1.0.0, for every container, before its start, with an environment of its own."""
    machine.put({CONF: ""})
    assert machine("install", "podman") == 0
    assert json.loads(machine.text(f"{USUAL}/oci-nvidia-hook.json")) == {
        "version": "1.0.0",
        "hook": {
            "path": HOOK,
            "args": ["gpuhook", "prestart"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "when": {"always": True},
        "stages": ["prestart"],
    }
    assert "restart" not in machine.out


@pytest.mark.parametrize(
    ("folders", "files", "ours"),
    [
        ([USUAL], {}, f"{USUAL}/oci-nvidia-hook.json"),
        ([USUAL, ETC], {}, f"{ETC}/oci-nvidia-hook.json"),
        ([ETC, "/opt/hooks"], {}, f"{ETC}/oci-nvidia-hook.json"),
        ([USUAL, ETC], {f"{USUAL}/oci-nvidia-hook.json": THEIRS}, f"{ETC}/oci-nvidia-hook.json"),
        ([USUAL, ETC], {f"{USUAL}/10-gpu.json": THEIRS}, f"{ETC}/10-gpu.json"),
        ([USUAL], {f"{USUAL}/10-gpu.json": THEIRS}, f"{USUAL}/10-gpu.json"),
        ([ETC, "/opt/hooks"], {"/opt/hooks/gpu.json": THEIRS}, "/opt/hooks/gpu.json"),
        ([USUAL, ETC], {f"{USUAL}/a.json": THEIRS, f"{ETC}/b.json": THEIRS, f"{ETC}/c.json": OTHER}, f"{ETC}/b.json"),
    ],
)
def test_one_gpu_hook_is_in_effect_and_it_is_ours(
    machine: Machine, folders: list[str], files: dict[str, str], ours: str
) -> None:
    """A file of the same name in a later folder hides the other; what it cannot hide goes aside, until uninstall."""
    machine.put({CONF: f"[engine]\nhooks_dir = {json.dumps(folders)}\n", **files})
    before = machine.tree()
    assert machine("install", "podman") == 0
    found = in_effect(machine, *folders)
    assert [str(machine.path(ours))] == list(found)
    assert [hook["hook"]["path"] for hook in found.values()] == [HOOK]  # type: ignore[index]
    assert machine("install", "podman") == 0
    assert "nothing changed" in machine.out
    assert machine("uninstall", "podman") == 0
    assert before == machine.tree()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (THEIRS.replace("1.0.0", "0.1.0"), "'0.1.0'"),
        (THEIRS[:-2], "delimiter"),
        ('{"version": "1.0.0", "x": "nvidia-container-toolkit"}', "hook.path"),
        ('["nvidia-container-runtime-hook"]', "None"),
    ],
)
def test_a_gpu_hook_of_a_foreign_format_is_refused(machine: Machine, text: str, why: str) -> None:
    """Nobody knows whether the engine calls it; --force sets it aside."""
    machine.put({CONF: "", f"{USUAL}/gpu.json": text})
    before = machine.tree()
    assert machine("install", "podman") == 1
    assert machine.err.startswith("gpuhook: podman-hooks-dir:")
    assert why in machine.err
    assert before == machine.tree()
    assert machine("install", "podman", "--force") == 0
    assert len(in_effect(machine, USUAL)) == 1
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_somebody_elses_broken_hook_is_said(machine: Machine) -> None:
    """It has nothing to do with us."""
    machine.put({CONF: "", f"{USUAL}/other.json": "{"})
    assert machine("install", "podman") == 0
    assert "warning: podman-hooks-dir" in machine.err


def test_a_broken_containers_conf_is_refused(machine: Machine) -> None:
    """With file and line."""
    machine.put({CONF: "[engine]\nhooks_dir = [\n"})
    assert machine("install", "podman") == 1
    assert f"in {CONF}:2" in machine.err


def test_a_folder_of_choice(machine: Machine) -> None:
    """For podman --hooks-dir; a name without .json would not be read."""
    assert machine("install", "podman", "--config", "/opt/hooks/gpu.conf") == 1
    assert machine("install", "podman", "--config", "/opt/hooks/gpu.json") == 0
    assert json.loads(machine.text("/opt/hooks/gpu.json"))["hook"]["path"] == HOOK


@pytest.mark.parametrize(("options", "default"), [(("--via", "runtime"), None), (("--set-as-default",), "nvidia")])
def test_a_runtime(machine: Machine, options: tuple[str, ...], default: str | None) -> None:
    """In a drop-in; the default is one, since a hook cannot be."""
    machine.put({CONF: "[engine]\n"})
    before = machine.tree()
    assert machine("install", "podman", *options) == 0
    table = Toml(machine.text("/etc/containers/containers.conf.d/99-gpuhook.conf")).table
    assert table == {"engine": {"runtimes": {"nvidia": [SHIM]}, **({"runtime": default} if default else {})}}
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_a_runtime_that_exists_is_changed_where_it_is(machine: Machine) -> None:
    """A second one elsewhere would win or lose by its file's name."""
    machine.put({CONF: '[engine.runtimes]\nnvidia = ["/usr/bin/n"] # theirs\n'})
    assert machine("install", "podman", "--via", "runtime") == 0
    assert machine.text(CONF) == f'[engine.runtimes]\nnvidia = ["{SHIM}"] # theirs\n'


def test_a_machine_without_podman(machine: Machine) -> None:
    """Says so."""
    assert machine("install", "podman") == 1
    assert machine.err.startswith("gpuhook: engine-missing:")
