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
from gpuhook.doctor.model import STATUS
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


def test_the_kernels_own_files_are_read() -> None:
    """Sysctls refuse to be read in pieces of more than 4 MiB, and no tree of a fixture does."""
    node = Node()
    assert node.read("/proc/sys/kernel/osrelease").strip() == os.uname().release
    assert examine(node).versions["kernel"] == os.uname().release
    assert node.read("/proc/version").startswith("Linux")


def test_a_daemon_that_never_answers_is_not_called_fine(host: Host) -> None:
    """`docker info` was given its time, and nothing is known of the runtimes."""
    node = beside(
        host("healthy-docker"),
        "commands",
        lambda some: {key: said for key, said in some.items() if key != "docker info --format {{json .}}"},
    )
    with pytest.raises(Unreadable, match="no answer within 2 s"):
        docker_info(node)
    levels = {finding.slug: finding.level for finding in examine(node).findings}
    assert levels["runtime-not-registered"] == "skipped"


def test_without_a_docker_command_nobody_was_asked(host: Host) -> None:
    """A daemon alone."""
    node = host("healthy-docker")
    Path(node.root, "usr/bin/docker").unlink()
    node = beside(node, "commands", lambda some: {k: v for k, v in some.items() if not k.startswith("docker")})
    with pytest.raises(Unreadable, match="there is no docker command"):
        docker_info(node)


def test_a_docker_that_does_not_run_is_not_said_to_know(host: Host) -> None:
    """Its file has the runtime."""
    node = beside(host("healthy-docker"), "processes", lambda _: [])
    node = beside(
        node,
        "commands",
        lambda some: {key: said for key, said in some.items() if key != "docker info --format {{json .}}"},
    )
    [found] = [one for one in examine(node).findings if one.slug == "runtime-not-registered"]
    assert (found.level, found.text.split()[0]) == ("ok", "/etc/docker/daemon.json")


def test_a_fabric_manager_may_be_a_process_of_its_own(host: Host) -> None:
    """In the driver's container, without a unit of systemd."""
    node = host("nvswitch-without-fabricmanager")
    assert "fabricmanager" in [one.slug for one in examine(node).findings if one.level != "ok"]
    node = beside(
        node, "processes", lambda some: [*some, {"pid": 9, "argv": ["/usr/bin/nv-fabricmanager", "-c", "x"]}]
    )
    assert "fabricmanager" not in [one.slug for one in examine(node).findings if one.level != "ok"]


@pytest.mark.parametrize("said", ["NVIDIA-SMI has failed because it couldn't communicate", "nvidia-smi", ""])
def test_only_modes_are_told_of_nvidia_smi(said: str, host: Host) -> None:
    """Whatever it says instead."""
    key = "nvidia-smi --query-gpu=persistence_mode --format=csv,noheader"
    node = beside(host("no-persistence"), "commands", lambda some: {**some, key: {"stdout": said}})
    [found] = [one for one in examine(node).findings if one.slug == "slow-start"]
    assert [one.found for one in found.evidence] == ["absent"]


def test_versions_of_one_package_must_be_the_same_to_the_last_digit(host: Host) -> None:
    """nvidia-container-cli and its library are made together."""
    text = "cli-version: 1.17.4\nlib-version: 1.17.8\n"
    node = beside(host("package-skew"), "commands", lambda some: {**some, "nvidia-container-cli -V": {"stdout": text}})
    found = [one.text for one in examine(node).findings if one.slug == "package-skew"]
    assert any("1.17.4 and libnvidia-container 1.17.8" in one for one in found)


def test_a_container_that_no_engine_knows(host: Host) -> None:
    """What each of them said; and a status that is not that of a node in order."""
    report = examine(host("healthy-docker"), ("none-void",), "no-such-container-here")
    [found] = report.findings
    assert found.level == report.verdict == "skipped"
    assert STATUS[report.verdict] == 1
    assert "no engine of this node tells of it" in found.text
