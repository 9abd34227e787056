"""The machine that is looked at: the real one and a fixture's answer alike."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuhook.doctor import container
from gpuhook.doctor.command import examine
from gpuhook.doctor.engines import docker_info
from gpuhook.doctor.hookfiles import in_folder
from gpuhook.doctor.node import Node, Unreadable
from tests.doctor import hosts

Host = Callable[[str], Node]
HOOK: dict[str, Any] = {
    "version": "1.0.0",
    "hook": {"path": "/usr/local/bin/gpuhook"},
    "when": {"always": True},
    "stages": ["prestart"],
}


def beside(node: Node, name: str, change: Callable[[Any], Any]) -> Node:
    """The host with a change in what lies beside its tree."""
    path = Path(node.root).parent / f"{name}.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return Node(node.root)


def test_this_machine_has_commands_processes_and_devices() -> None:
    """The real things are asked, and asked once."""
    node = Node()
    said = node.run("sh", "-c", "echo $$; exit 3")
    assert said is not None
    assert (said[0], said[1].strip().isdigit()) == (3, True)
    assert node.run("sh", "-c", "echo $$; exit 3") == said
    assert node.run("gpuhook-no-such-program") is None
    assert node.device("/dev/null") is not None
    assert node.device("/etc/passwd") is None
    mine = [one for one in node.processes(os.path.basename(os.readlink("/proc/self/exe"))) if one.pid == os.getpid()]
    assert [one.uid for one in mine] == [os.getuid()]
    assert mine[0].environ is not None
    assert 0 < mine[0].started < time.time()
    assert node.now() == pytest.approx(time.time(), abs=5)


def test_a_command_that_hangs_is_left() -> None:
    """After the time that it is given."""
    started = time.monotonic()
    assert Node().run("sleep", "60", seconds=0.2) is None
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["dockerd", "--config-file=/a"], "/a"),
        (["dockerd", "--config-file", "/a"], "/a"),
        (["dockerd", "--config-file"], ""),
        (["dockerd"], ""),
    ],
)
def test_options_of_a_daemon_are_read(argv: list[str], value: str, host: Host) -> None:
    """In both forms."""
    node = beside(host("healthy-docker"), "processes", lambda _: [{"argv": argv}])
    assert node.processes("dockerd")[0].option("--config-file") == value


def test_a_daemon_of_another_file_is_looked_at_by_that(host: Host) -> None:
    """--config-file wins over the usual place."""
    node = host("healthy-docker")
    Path(node.root, "etc/other.json").write_text("{,}")
    argv = ["/usr/bin/dockerd", "--config-file=/etc/other.json"]
    node = beside(node, "processes", lambda some: [{**one, "argv": argv} for one in some if one["pid"] == 800])
    [finding] = [one for one in examine(node).findings if one.slug == "daemon-json-invalid"]
    assert (finding.level, finding.evidence[0].where) == ("failure", "/etc/other.json:1:2")


def test_a_daemon_that_does_not_let_us_ask_is_not_called_fine(host: Host) -> None:
    """Its socket refuses: what takes part is skipped, with what it said."""
    refused = {"status": 1, "stdout": "null", "stderr": "permission denied while trying to connect to the socket\n"}
    node = beside(
        host("healthy-docker"), "commands", lambda some: {**some, "docker info --format {{json .}}": refused}
    )
    with pytest.raises(Unreadable, match="permission denied"):
        docker_info(node)
    levels = {finding.slug: finding.level for finding in examine(node).findings}
    assert levels["runtime-not-registered"] == "skipped"


def test_a_docker_that_does_not_run_says_nothing(host: Host) -> None:
    """No daemon, no answer, and no fault of that."""
    refused = {"status": 1, "stdout": '{"ServerErrors": ["Cannot connect"]}', "stderr": ""}
    node = beside(
        host("healthy-docker"), "commands", lambda some: {**some, "docker info --format {{json .}}": refused}
    )
    assert docker_info(beside(node, "processes", lambda _: [])) == {}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"stages": ["createRuntime"]}, ""),
        ({"version": "0.1.0"}, "version is '0.1.0'"),
        ({"hook": {"path": "gpuhook"}}, "no absolute path"),
        ({"when": {}}, "never matches"),
        ({"when": {"always": False}}, "always is false"),
        ({"stages": ["poststop"]}, "stages is ['poststop']"),
    ],
)
def test_a_hook_file_that_no_engine_can_use_is_told_why(change: dict[str, Any], fault: str, host: Host) -> None:
    """oci-hooks(5)."""
    node = host("healthy-podman")
    Path(node.root, "etc/containers/oci/hooks.d/oci-nvidia-hook.json").write_text(json.dumps({**HOOK, **change}))
    [found] = in_folder(node, "/etc/containers/oci/hooks.d")
    assert fault in found.fault
    assert bool(fault) == bool(found.fault)
    assert found.is_gpu


@pytest.mark.parametrize("text", ["", "[]", "{", "gpuhook"])
def test_a_hook_file_that_is_none_is_no_trouble(text: str, host: Host) -> None:
    """It has a fault, and nothing is raised."""
    node = host("healthy-podman")
    Path(node.root, "etc/containers/oci/hooks.d/other.json").write_text(text)
    assert [one.fault != "" for one in in_folder(node, "/etc/containers/oci/hooks.d")] == [False, True]


def test_an_outer_container_without_systemd_is_recognised(host: Host) -> None:
    """By the environment of the first process."""
    node = host("healthy-docker")
    Path(node.root, "run/systemd/system/placeholder").unlink()
    Path(node.root, "run/systemd/system").rmdir()
    Path(node.root, "proc/1").mkdir(parents=True)
    Path(node.root, "proc/1/environ").write_text("TERM=linux\0container=lxc\0")
    assert "nested-lxc" in [finding.slug for finding in examine(node).findings]


def test_a_container_adds_its_findings(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, warnings and notes of its explanation; here for what an engine would say of it."""
    subject = hosts.subject_of("container-utility-only", tmp_path / "it")
    assert subject is not None
    monkeypatch.setattr("gpuhook.explain.engines.inspected", lambda _engine, _name: [subject])
    found = list(container.of_container(host("healthy-docker"), "web"))
    assert ("caps-compute", "note") in [(one.slug, one.level) for one in found]
    assert all(one.text.startswith("container web: ") for one in found)
    report = examine(host("healthy-podman"), ("caps-compute",), "web")
    assert {one.slug for one in report.findings} == {"caps-compute"}
