"""`gpuhook install docker`: daemon.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.install.conftest import SHIM, Machine

FILE = "/etc/docker/daemon.json"


def installed(machine: Machine, text: str, *options: str) -> str:
    """daemon.json of this text after the installation."""
    machine.put({FILE: text})
    assert machine("install", "docker", *options) == 0, machine.err
    return machine.text(FILE)


@pytest.mark.parametrize("text", ["", "\n", "{}", "{ }\n", '{"runtimes": null}', '{"runtimes": {}}'])
def test_a_file_that_says_nothing_gets_the_runtime(machine: Machine, text: str) -> None:
    """Empty means {}, and null means absent (decisions.md 26); the file ends with a line end."""
    after = installed(machine, text)
    assert json.loads(after) == {"runtimes": {"nvidia": {"path": SHIM}}}
    assert after.endswith("}\n")


def test_there_need_not_be_a_file(machine: Machine) -> None:
    """An engine without configuration gets one, mode 0644."""
    machine.path("/etc/docker").mkdir(parents=True)
    assert machine("install", "docker") == 0
    assert json.loads(machine.text(FILE)) == {"runtimes": {"nvidia": {"path": SHIM}}}
    assert machine.path(FILE).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a": 1}', '{"a": 1, "runtimes": {"nvidia": {"path": "SHIM"}}}\n'),
        ('{\n  "a": 1\n}', '{\n  "a": 1,\n  "runtimes": {\n    "nvidia": {\n      "path": "SHIM"\n    }\n  }\n}\n'),
        (
            '{\r\n "a": 1\r\n}\r\n',
            '{\r\n "a": 1,\r\n "runtimes": {\r\n  "nvidia": {\r\n   "path": "SHIM"\r\n  }\r\n }\r\n}\r\n',
        ),
        (
            '{"a": 12345678901234567890, "b": 1e400}',
            '{"a": 12345678901234567890, "b": 1e400, "runtimes": {"nvidia": {"path": "SHIM"}}}\n',
        ),
        (
            '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": ["--debug"]}}}',
            '{"runtimes": {"nvidia": {"path": "SHIM", "runtimeArgs": ["--debug"]}}}\n',
        ),
    ],
)
def test_one_key_changes_and_the_style_stays(machine: Machine, before: str, after: str) -> None:
    """Indentation, line ends, numbers of any size and an entry's own arguments are kept."""
    installed(machine, before)
    assert after.replace("SHIM", SHIM).encode() == machine.path(FILE).read_bytes()


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("{", ":1:2", "expected"),
        ('{"a": 1,}', ":1:8", "comma"),
        ('{"a": 1} {"b": 2}', ":1:10", "second document"),
        ('{\n// comment\n"a": 1}', ":2:1", "comment"),
        ("{“a”: 1}", ":1:2", "quote"),
        ("[]", ":1:1", "object"),
        ('{"runtimes": []}', ":1:14", "object"),
        ('{\n"runtimes": {"nvidia": "x"}}', ":2:24", "object"),
        ('{"runtimes": {}, "runtimes": {}}', ":1:18", "twice"),
        ('{"runtimes": {"nvidia": {}, "nvidia": {}}}', ":1:29", "twice"),
        ('{"a": NaN}', ":1:7", "value"),
        ('{"a": 01}', ":1:8", "comma"),
    ],
)
def test_a_file_that_docker_would_not_read_is_left_alone(machine: Machine, text: str, place: str, why: str) -> None:
    """The message has file, line and column; nothing is written, not even a program."""
    machine.put({FILE: text})
    before = machine.tree()
    assert machine("install", "docker") == 1
    assert machine.err.startswith("gpuhook: daemon-json-invalid: /etc/docker/daemon.json")
    assert f"in {FILE}{place}" in machine.err
    assert why in machine.err
    assert before == machine.tree()


def test_a_byte_that_is_no_utf8_is_named(machine: Machine) -> None:
    """With its line."""
    machine.put({FILE: ""})
    machine.path(FILE).write_bytes(b'{\n"a": "\xff"}')
    assert machine("install", "docker") == 1
    assert f"in {FILE}:2" in machine.err


def test_a_byte_order_mark_stays_and_is_said(machine: Machine) -> None:
    """Recent versions of Docker read it."""
    after = installed(machine, '\ufeff{"a": 1}')
    assert after.startswith("\ufeff{")
    assert "byte order mark" in machine.err


def test_the_default_changes_only_when_asked(machine: Machine) -> None:
    """And then an older one is replaced where it stands."""
    text = '{"default-runtime": "runc", "a": 1}'
    assert json.loads(installed(machine, text))["default-runtime"] == "runc"
    assert installed(machine, text, "--set-as-default").startswith('{"default-runtime": "nvidia"')


def test_a_name_of_choice(machine: Machine) -> None:
    """An entry of another name is another runtime."""
    text = '{"runtimes": {"nvidia": {"path": "theirs"}}}'
    after = json.loads(installed(machine, text, "--runtime-name", "gpu"))
    assert after == {"runtimes": {"nvidia": {"path": "theirs"}, "gpu": {"path": SHIM}}}


@pytest.mark.parametrize(
    ("file", "text", "option"),
    [
        ("/etc/systemd/system/docker.service.d/gpu.conf", "[Service]\nExecStart=dockerd --add-runtime=x=y\n", ":2"),
        ("/etc/default/docker", '# --add-runtime\nDOCKER_OPTS="--add-runtime nvidia=/x"\n', ":2"),
    ],
)
def test_what_dockerd_gets_as_an_option_is_not_said_again(machine: Machine, file: str, text: str, option: str) -> None:
    """It would refuse to start."""
    machine.put({FILE: "{}", file: text})
    assert machine("install", "docker") == 1
    assert f"in {file}{option}" in machine.err


def test_the_unit_may_name_another_file(machine: Machine) -> None:
    """--config-file is obeyed."""
    unit = "[Service]\nExecStart=/usr/bin/dockerd --config-file=/etc/other.json -H fd://\n"
    machine.put({"/etc/systemd/system/docker.service": unit, "/etc/docker/key.json": "{}"})
    assert machine("install", "docker") == 0
    assert json.loads(machine.text("/etc/other.json"))["runtimes"]


def test_the_snap_alone_is_refused(machine: Machine) -> None:
    """It reads another file and does not see our programs."""
    machine.put({"/var/snap/docker/current/config/daemon.json": "{}"})
    assert machine("install", "docker") == 1
    assert machine.err.startswith("gpuhook: snap-docker:")


def test_a_machine_without_docker(machine: Machine) -> None:
    """Says so and what to do; --config says that there will be one."""
    assert machine("install", "docker") == 1
    assert machine.err.startswith("gpuhook: engine-missing:")
    assert machine.tree() == {}
    assert machine("install", "docker", "--config", "/opt/daemon.json") == 0
    assert json.loads(machine.text("/opt/daemon.json"))["runtimes"]


@pytest.mark.parametrize(
    ("was", "edited", "left"),
    [
        ({}, {"new": True}, {"new": True}),
        ({"runtimes": {}}, {"new": 1}, {"runtimes": {}, "new": 1}),
        ({"runtimes": {"nvidia": {"path": "x"}}}, {"new": 1}, {"runtimes": {"nvidia": {"path": "x"}}, "new": 1}),
        ({"default-runtime": "runc"}, {"new": 1}, {"default-runtime": "runc", "new": 1}),
    ],
)
def test_uninstall_keeps_what_others_changed_since(
    machine: Machine, was: dict[str, object], edited: dict[str, object], left: dict[str, object]
) -> None:
    """Only ours is taken out, and what it replaced comes back."""
    installed(machine, json.dumps(was), "--set-as-default")
    now = {**json.loads(machine.text(FILE)), **edited}
    machine.put({FILE: json.dumps(now, indent=2)})
    assert machine("uninstall", "docker") == 0
    assert "edited since" in machine.out
    assert left == json.loads(machine.text(FILE))
    assert ["daemon.json"] == [path.name for path in machine.path("/etc/docker").iterdir()]


def test_a_second_installation_after_an_edit_still_undoes_only_ours(machine: Machine) -> None:
    """The kept file is older than the edit, so it is not what comes back."""
    installed(machine, '{"a": 1}')
    machine.put({FILE: machine.text(FILE).replace('"a": 1', '"a": 2')})
    assert machine("install", "docker", "--set-as-default") == 0
    assert machine("uninstall", "docker") == 0
    assert json.loads(machine.text(FILE)) == {"a": 2}


def test_a_link_is_kept_and_its_target_replaced(machine: Machine) -> None:
    """Also where the link is absolute, which means: within the machine's own root."""
    machine.put({"/srv/daemon.json": '{"a": 1}\n', "/etc/docker/key.json": "{}"})
    os.symlink("/srv/daemon.json", machine.path(FILE))
    before = machine.tree()
    assert machine("install", "docker") == 0
    assert os.readlink(machine.path(FILE)) == "/srv/daemon.json"
    assert json.loads(machine.text("/srv/daemon.json"))["runtimes"]
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_a_link_to_a_read_only_file_is_refused(machine: Machine) -> None:
    """Something else makes that file, as NixOS does."""
    machine.put({"/srv/daemon.json": '{"a": 1}\n', "/etc/docker/key.json": "{}"})
    machine.path("/srv/daemon.json").chmod(0o444)
    os.symlink("/srv/daemon.json", machine.path(FILE))
    before = machine.tree()
    assert machine("install", "docker") == 1
    assert machine.err.startswith("gpuhook: file-protected:")
    assert before == machine.tree()


@pytest.mark.parametrize("target", ["daemon.json", "/etc/docker/daemon.json"])
def test_a_link_that_leads_to_itself_is_said(machine: Machine, target: str) -> None:
    """And not followed for ever."""
    machine.put({"/etc/docker/key.json": "{}"})
    os.symlink(target, machine.path(FILE))
    assert machine("install", "docker") == 1
    assert "too many links" in machine.err


def test_what_is_no_file_is_said(machine: Machine) -> None:
    """A folder in daemon.json's place."""
    machine.path(FILE).mkdir(parents=True)
    assert machine("install", "docker") == 1
    assert machine.err.startswith("gpuhook: file-protected:")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o444])
def test_mode_and_owner_stay(machine: Machine, mode: int) -> None:
    """Root's new file is the owner's as the old one was."""
    machine.put({FILE: "{}"})
    machine.path(FILE).chmod(mode)
    assert machine("install", "docker") == 0
    assert machine.path(FILE).stat().st_mode & 0o7777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_somebody_else_is_refused(machine: Machine) -> None:
    """Who owns it could make root run anything."""
    machine.put({FILE: "{}"})
    os.chown(machine.path(FILE), 1234, 0)
    before = machine.tree()
    assert machine("install", "docker") == 1
    assert "belongs to uid 1234" in machine.err
    assert before == machine.tree()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a group's file")
def test_a_foreign_group_and_its_right_to_write_stay(machine: Machine) -> None:
    """It is said, since others can write what root obeys."""
    machine.put({FILE: "{}"})
    os.chown(machine.path(FILE), 0, 1234)
    machine.path(FILE).chmod(0o664)
    assert machine("install", "docker") == 0
    assert "unsafe-config" in machine.err
    assert machine.path(FILE).stat().st_gid == 1234


def test_dry_run_shows_the_real_changes_and_makes_none(machine: Machine, tmp_path: Path) -> None:
    """One unified diff, which `patch` turns into what a real run makes."""
    machine.put({FILE: '{\n  "a": 1\n}\n'})
    before = machine.tree()
    assert machine("install", "docker", "--dry-run", "--set-as-default") == 0
    shown = machine.out
    assert before == machine.tree()
    assert f"--- {FILE}\n+++ {FILE}\n" in shown
    assert machine("install", "docker", "--set-as-default") == 0
    added = [
        line[1:] for line in shown[shown.index(f"+++ {FILE}") :].splitlines() if line[:1] in "+ " and line[:2] != "++"
    ]
    assert machine.text(FILE).splitlines() == added


def test_the_user_is_told_what_to_restart_and_nothing_is_restarted(machine: Machine) -> None:
    """--restart with another machine's tree is a contradiction."""
    machine.put({FILE: "{}"})
    assert machine("install", "docker", "--restart") == 2
    assert machine.text(FILE) == "{}"
    assert machine("install", "docker") == 0
    assert "systemctl restart docker" in machine.out


def test_what_gpus_needs_is_said(machine: Machine) -> None:
    """`docker run --gpus` works through NVIDIA's name, not through the runtime."""
    machine.put({FILE: "{}"})
    assert machine("install", "docker") == 0
    assert "--replace-nvidia" in machine.out
    assert machine("install", "docker", "--replace-nvidia") == 0
    assert "--replace-nvidia" not in machine.out
