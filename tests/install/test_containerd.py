"""`gpuhook install containerd`: the CRI plugin's runtimes, in place or in a drop-in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuhook.install.tomledit import Table, Toml, at, table_at
from tests.install.conftest import SHIM, Machine, case_machine
from tests.rig.needs import need

FILE = "/etc/containerd/config.toml"
V1, V2, V3 = ("plugins", "cri"), ("plugins", "io.containerd.grpc.v1.cri"), ("plugins", "io.containerd.cri.v1.runtime")
DROP_IN = "/etc/containerd/conf.d/99-gpuhook.toml"


def runtimes(text: str, plugin: tuple[str, ...] = V2) -> Table:
    """The runtimes of a file."""
    return table_at(Toml(text).table, (*plugin, "containerd", "runtimes"))


def installed(machine: Machine, text: str, *options: str) -> str:
    """config.toml of this text after the installation."""
    machine.put({FILE: text})
    assert machine("install", "containerd", *options) == 0, machine.err
    return machine.text(FILE)


OURS = {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": SHIM}}


@pytest.mark.parametrize("text", ["", "# nothing\n", "version = 2\n"])
def test_a_file_that_says_nothing(machine: Machine, text: str) -> None:
    """Gets version 2, our runtime, and runc's, which a table of runtimes would otherwise hide in containerd 1.x."""
    after = installed(machine, text)
    assert after.startswith(text)
    assert runtimes(after) == {"nvidia": OURS, "runc": {"runtime_type": "io.containerd.runc.v2"}}


def test_there_need_not_be_a_file(machine: Machine) -> None:
    """An engine without configuration gets one, which uninstall takes away again."""
    machine.path("/etc/containerd").mkdir(parents=True)
    before = machine.tree()
    assert machine("install", "containerd") == 0
    assert runtimes(machine.text(FILE))["nvidia"] == OURS
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_a_file_of_version_1(machine: Machine) -> None:
    """Is changed itself, in the section that version 1 has: there are no imports."""
    text = 'root = "/var/lib/c"\n[plugins.cri.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v1"\n'
    after = installed(machine, text, "--set-as-default")
    assert runtimes(after, V1)["nvidia"] == {"runtime_type": "io.containerd.runc.v1", "options": {"BinaryName": SHIM}}
    assert at(Toml(after).table, (*V1, "containerd", "default_runtime_name")) == "nvidia"
    assert Toml(after).at("version") is None


def test_the_oldest_shim_names_its_program_otherwise(machine: Machine) -> None:
    """io.containerd.runtime.v1.linux reads `Runtime`."""
    text = '[plugins.cri.containerd.runtimes.runc]\nruntime_type = "io.containerd.runtime.v1.linux"\n'
    assert runtimes(installed(machine, text), V1)["nvidia"] == {
        "runtime_type": "io.containerd.runtime.v1.linux",
        "options": {"Runtime": SHIM},
    }


@pytest.mark.parametrize(
    ("default", "model"), [("runc", "runc"), ("crun", "crun"), ("nvidia-cdi", "runc"), ("absent", "runc")]
)
def test_the_runtime_is_like_the_one_that_it_stands_in_for(machine: Machine, default: str, model: str) -> None:
    """It differs from the default one, or runc, in its program alone."""
    text = f'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "{default}"\n'
    for name in ("runc", "crun", "nvidia-cdi"):
        text += f'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]\n'
        text += f'runtime_type = "io.containerd.runc.v2"\npod_annotations = ["{name}"]\nempty = ""\n'
        text += (
            f'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]\nBinaryName = "/b"\nIoUid = 7\n'
        )
    found = runtimes(installed(machine, text))["nvidia"]
    assert isinstance(found, dict)
    assert found["pod_annotations"] == [model]
    assert "empty" not in found
    assert table_at(found, ("options",))["BinaryName"] == SHIM
    assert Toml("IoUid = 7\n").table["IoUid"] == table_at(found, ("options",))["IoUid"]


@pytest.mark.parametrize(("driver", "systemd"), [("systemd", True), ('"systemd"', True), ("cgroupfs", None)])
def test_without_runc_in_the_file_the_kubelet_tells_the_cgroup_driver(
    machine: Machine, driver: str, systemd: bool | None
) -> None:
    """A runtime with another driver than the kubelet's has its pods killed."""
    machine.put({"/var/lib/kubelet/config.yaml": f"kind: KubeletConfiguration\ncgroupDriver: {driver}\n"})
    found = runtimes(installed(machine, "version = 2\n"))["nvidia"]
    assert at(found, ("options", "SystemdCgroup")) is systemd


def test_an_entry_that_exists_keeps_what_it_has_and_gets_what_it_lacks(machine: Machine) -> None:
    """NVIDIA's older tools wrote one without SystemdCgroup."""
    text = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
privileged_without_host_devices = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime" # theirs
"""
    after = installed(machine, text)
    assert runtimes(after)["nvidia"] == {
        "runtime_type": "io.containerd.runc.v2",
        "privileged_without_host_devices": True,
        "options": {"BinaryName": SHIM, "SystemdCgroup": True},
    }
    assert f'BinaryName = "{SHIM}" # theirs' in after


@pytest.mark.parametrize(
    "text",
    [
        'version = 2\n[[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]]\nx = 1\n',
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\noptions = 5\n',
        "version = 2\nplugins = 5\n",
    ],
)
def test_a_form_that_cannot_be_added_to_is_refused_with_the_lines(machine: Machine, text: str) -> None:
    """Something else stands where a table should; the user is given what to add."""
    machine.put({FILE: text})
    before = machine.tree()
    assert machine("install", "containerd") == 1
    assert machine.err.startswith("gpuhook: containerd-config:")
    assert "BinaryName" in machine.err
    assert before == machine.tree()


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("version = 2\n[plugins\n", ":2", "]"),
        ("version = 2\na = \n", ":2", "no value"),
        ("a = 1\na = 2\n", ":2", "twice"),
        ("version = 4\n", ":1", "versions 1, 2 and 3"),
        ('version = "2"\n', ":1", "versions 1, 2 and 3"),
        ('[plugins."io.containerd.grpc.v1.cri"]\n', ":1", "version = 2"),
        ("version = 2\nx = “a”\n", ":2", "quotes"),
    ],
)
def test_a_file_that_containerd_would_not_read_is_left_alone(
    machine: Machine, text: str, place: str, why: str
) -> None:
    """The message has file and line; nothing is written."""
    machine.put({FILE: text})
    before = machine.tree()
    assert machine("install", "containerd") == 1
    assert machine.err.startswith("gpuhook: containerd-config: /etc/containerd/config.toml")
    assert f"in {FILE}{place}" in machine.err
    assert why in machine.err
    assert before == machine.tree()


def test_a_plugin_that_is_switched_off_is_said(machine: Machine) -> None:
    """Docker's own packages of containerd come so."""
    installed(machine, 'disabled_plugins = ["cri"]\n')
    assert "containerd-config" in machine.err


def test_windows_line_ends_stay(machine: Machine) -> None:
    """Every line has them afterwards."""
    installed(machine, 'version = 2\r\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\r\nx = 1\r\n')
    data = machine.path(FILE).read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") > 3


def test_the_last_import_that_has_the_plugin_is_the_one_that_counts(machine: Machine) -> None:
    """Before containerd 2.0 it replaces the whole plugin: what is added elsewhere is not seen."""
    other = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    machine.put({FILE: f'version = 2\nimports = ["conf.d/*.toml"]\n{other}', "/etc/containerd/conf.d/a.toml": other})
    machine.put(
        {
            "/etc/containerd/conf.d/b.toml": f"version = 2\n{other}",
            "/etc/containerd/conf.d/a.toml": f"version = 2\n{other}",
        }
    )
    main = machine.text(FILE)
    assert machine("install", "containerd") == 0
    assert main == machine.text(FILE)
    assert ["runc"] == list(runtimes(machine.text("/etc/containerd/conf.d/a.toml")))
    assert ["runc", "nvidia"] == list(runtimes(machine.text("/etc/containerd/conf.d/b.toml")))


def test_an_import_that_has_the_runtime_is_changed_itself(machine: Machine) -> None:
    """As nvidia-ctk writes it: a second entry elsewhere would win or lose by its file's name."""
    theirs = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/n"\n'
    machine.put({"/etc/containerd/conf.d/99-nvidia.toml": f"version = 2\n{theirs}"})
    main = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    assert main == installed(machine, main)
    assert f'BinaryName = "{SHIM}"' in machine.text("/etc/containerd/conf.d/99-nvidia.toml")


def test_where_imports_are_merged_the_runtime_is_a_drop_in(machine: Machine, merging: str) -> None:
    """The main file gets the import and nothing else; uninstall takes both back."""
    case_machine(machine, "containerd-v3-section")
    before = machine.tree()
    assert machine("install", "containerd", "--containerd", merging, "--set-as-default") == 0
    main = (machine.root / "etc/containerd/config.toml").read_text()
    assert before["etc/containerd/config.toml"][0] == main.encode()  # type: ignore[index]
    assert runtimes(machine.text(DROP_IN), V3) == {
        "nvidia": {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True, "BinaryName": SHIM}}
    }
    assert machine("install", "containerd", "--containerd", merging, "--set-as-default") == 0
    assert "nothing changed" in machine.out
    assert machine("uninstall", "containerd") == 0
    assert before == machine.tree()


@pytest.mark.parametrize(
    ("imports", "folder"),
    [
        ("", "conf.d"),
        ('imports = ["/etc/containerd/config.d/*.toml"]\n', "config.d"),
        ('imports = ["x.toml"]\n', "conf.d"),
    ],
)
def test_a_drop_in_is_where_the_imports_lead(machine: Machine, merging: str, imports: str, folder: str) -> None:
    """An existing pattern that covers it is used; else one is added to those that are there."""
    text = f"# ours\nversion = 3\n{imports}[debug]\nlevel = 'info'\n"
    after = installed(machine, text, "--containerd", merging)
    assert machine.path(f"/etc/containerd/{folder}/99-gpuhook.toml").exists()
    patterns = Toml(after).at("imports")
    assert isinstance(patterns, list)
    assert f"/etc/containerd/{folder}/*.toml" in patterns
    assert set(Toml(text).table.get("imports", [])) <= set(patterns)  # type: ignore[call-overload]
    assert (
        after.replace('imports = ["x.toml", "/etc/containerd/conf.d/*.toml"]\n', 'imports = ["x.toml"]\n').replace(
            'imports = ["/etc/containerd/conf.d/*.toml"]\n', ""
        )
        == text
    )


def test_uninstall_keeps_what_others_changed_since(machine: Machine, merging: str) -> None:
    """In the main file, and in the drop-in."""
    installed(machine, "version = 3\n", "--containerd", merging)
    machine.put(
        {FILE: machine.text(FILE) + "oom_score = 1\n", DROP_IN: machine.text(DROP_IN) + "\n[debug]\nuid = 3\n"}
    )
    assert machine("uninstall") == 0
    assert machine.text(FILE) == "version = 3\noom_score = 1\n"
    assert set(Toml(machine.text(DROP_IN)).table) == {"version", "debug"}


def test_uninstall_in_an_edited_file_restores_what_was_replaced(machine: Machine) -> None:
    """The other program, the other default."""
    text = (
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "runc"\n'
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/n"\n'
    )
    after = installed(machine, text, "--set-as-default")
    machine.put({FILE: after + "[debug]\nuid = 3\n"})
    assert machine("uninstall") == 0
    left = Toml(machine.text(FILE)).table
    assert at(left, (*V2, "containerd", "default_runtime_name")) == "runc"
    assert at(left, (*V2, "containerd", "runtimes", "nvidia", "options", "BinaryName")) == "/usr/bin/n"


def test_uninstall_in_an_edited_file_takes_our_tables_out(machine: Machine) -> None:
    """And leaves the text around them."""
    text = "# head\nversion = 2\n\n[grpc]\n  uid = 0 # root\n"
    after = installed(machine, text)
    machine.put({FILE: after.replace("uid = 0", "uid = 5")})
    assert machine("uninstall") == 0
    assert machine.text(FILE) == text.replace("uid = 0", "uid = 5")


# The real program


@pytest.mark.runtime
@pytest.mark.parametrize(
    "text", ["version = 2\n", "", 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "a"\n']
)
@pytest.mark.parametrize("options", [(), ("--set-as-default",)])
def test_the_installed_containerd_reads_it_and_loses_nothing(
    machine: Machine, text: str, options: tuple[str, ...]
) -> None:
    """`containerd config dump` has our runtime, runc's, and every other key as before."""
    need("containerd", root=False)
    program = shutil.which("containerd") or ""
    machine.put({FILE: text})
    before = dump(program, machine.path(FILE))
    assert machine("install", "containerd", "--containerd", program, *options) == 0, machine.err
    after = dump(program, machine.path(FILE))
    plugin = V2 if at(after, V2) is not None else V3
    assert at(after, (*plugin, "containerd", "runtimes", "nvidia", "options", "BinaryName")) == SHIM
    assert at(after, (*plugin, "containerd", "runtimes", "runc", "runtime_type")) == "io.containerd.runc.v2"
    assert at(after, (*plugin, "containerd", "default_runtime_name")) == ("nvidia" if options else "runc")
    for table in (before, after):
        del table["imports"], table_at(table, (*plugin, "containerd"))["runtimes"]
        del table_at(table, (*plugin, "containerd"))["default_runtime_name"]
    assert before == after


@pytest.mark.runtime
def test_the_installed_containerd_reads_the_packaged_file(machine: Machine) -> None:
    """What `containerd config default` prints, which is what guides tell people to start from."""
    need("containerd", root=False)
    program = shutil.which("containerd") or ""
    text = subprocess.run([program, "config", "default"], capture_output=True, text=True, check=True).stdout
    after = installed(machine, text, "--containerd", program)
    assert [line for line in text.splitlines() if line not in after.splitlines()] == []
    assert (
        at(dump(program, machine.path(FILE)), (*V2, "containerd", "runtimes", "nvidia", "options", "BinaryName"))
        == SHIM
    )


def dump(program: str, path: Path) -> Table:
    """What the program makes of a file."""
    argv = [program, "--config", str(path), "config", "dump"]
    return Toml(subprocess.run(argv, capture_output=True, text=True, check=True).stdout).table
