"""What explain tells, and that it tells what the hook does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.driver.model import FakeDriver
from gpuhook.explain.decide import PID, explain
from gpuhook.explain.inspected import from_inspect
from gpuhook.explain.model import Explanation
from gpuhook.explain.subject import from_bundle, from_variables
from gpuhook.hook import main
from tests.rig.process import run

BUNDLES = Path(__file__).resolve().parents[2] / "fixtures" / "bundles"
NAMES = sorted(path.parent.name for path in BUNDLES.glob("*/config.json"))
SETTINGS = {
    "default": "",
    "mounts": "accept-nvidia-visible-devices-as-volume-mounts = true\n",
    "strict": "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n",
}


Node = Callable[..., str]


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """A nvidia-container-cli that writes down its arguments."""
    path = tmp_path / "nvidia-container-cli"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" > {tmp_path}/argv\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("settings", sorted(SETTINGS))
@pytest.mark.parametrize("name", NAMES)
def test_explain_and_hook_agree_on_every_bundle(
    name: str, settings: str, node: Node, recorder: Path, tmp_path: Path
) -> None:
    """Skip, refuse or the very command line: the hook, run for real, does what explain says."""
    bundle = tmp_path / name
    (bundle / "rootfs").mkdir(parents=True)
    spec = json.loads((BUNDLES / name / "config.json").read_text())
    spec["root"]["path"] = "rootfs"
    (bundle / "config.json").write_text(json.dumps(spec))
    config = node(SETTINGS[settings], f'path = "{recorder}"\n')
    told = explain(from_bundle(str(bundle)), config)
    state = json.dumps({"id": name, "pid": os.getpid(), "bundle": str(bundle)}).encode()
    gpuhook = str(Path(sys.executable).with_name("gpuhook"))
    done = run([gpuhook, "--config", config, "prestart"], stdin=state)
    record = tmp_path / "argv"
    assert (done.status == 0) == (told.verdict != "refuse")
    assert record.exists() == (told.verdict == "inject")
    if told.error is not None:
        assert done.stderr.startswith(f"gpuhook: {told.error.reference}: ")
    if record.exists():
        argv = [word.replace(f"--pid={os.getpid()}", "--pid=PID") for word in record.read_text().splitlines()]
        assert argv == told.command


def told(node: str, *env: str) -> Explanation:
    """The explanation of a container with these variables."""
    return explain(from_variables(list(env)), node)


def test_the_plan_names_the_gpus_and_what_is_bound(node: Node, driver: FakeDriver) -> None:
    """With the engine: GPUs by UUID, and every operation."""
    found = told(node(), "NVIDIA_VISIBLE_DEVICES=1")
    assert (found.verdict, found.backend) == ("inject", "the embedded engine")
    assert [device.uuid for device in found.devices] == [driver.gpus[1].uuid]
    assert any(line.startswith("bind file") and "libcuda.so" in line for line in found.plan)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ([], "NVIDIA_VISIBLE_DEVICES is not set"),
        (["NVIDIA_VISIBLE_DEVICES="], "''"),
        (["NVIDIA_VISIBLE_DEVICES=void"], "'void'"),
    ],
)
def test_a_container_that_is_left_alone_is_told_why(node: Node, env: list[str], words: str) -> None:
    """And how to ask (case none-void-empty)."""
    found = told(node(), "A=1", *env)
    assert found.verdict == "skip"
    assert words in found.summary


@pytest.mark.parametrize(
    ("value", "absent", "brings"), [("utility", "compute", "libcuda"), ("compute", "utility", "nvidia-smi")]
)
def test_what_is_not_in_the_container_is_told(node: Node, value: str, absent: str, brings: str) -> None:
    """Asking for one capability drops the others; explain says which and by whose word (case capabilities-default)."""
    found = told(node(), "NVIDIA_VISIBLE_DEVICES=0", f"NVIDIA_DRIVER_CAPABILITIES={value}")
    [missing] = [one for one in found.capabilities if one.name == absent]
    assert not missing.granted
    assert brings in missing.brings
    assert f"NVIDIA_DRIVER_CAPABILITIES={value}" in missing.why


def test_a_strict_node_is_named(node: Node) -> None:
    """Case strict-mode-image-env: the key that keeps the variable from counting."""
    config = node("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n")
    found = told(config, "NVIDIA_VISIBLE_DEVICES=all")
    assert found.verdict == "skip"
    assert [warning.reference for warning in found.warnings] == ["strict-mode-mismatch"]
    assert ("accept-nvidia-visible-devices-envvar-when-unprivileged", f"{config}:1") in [
        (fact.what, fact.where) for fact in found.node
    ]


@pytest.mark.parametrize(
    ("expression", "verdict"), [("cuda>=12.0", "holds"), ("cuda>=99", "fails"), ("cuda=>12", "invalid")]
)
def test_each_requirement_has_its_verdict(node: Node, expression: str, verdict: str) -> None:
    """Also those after the first that fails."""
    found = told(node(), "NVIDIA_VISIBLE_DEVICES=0", f"NVIDIA_REQUIRE_CUDA={expression}", "NVIDIA_REQUIRE_X=driver>=1")
    assert [(r.source, r.verdict) for r in found.requirements] == [
        ("NVIDIA_REQUIRE_CUDA", verdict),
        ("NVIDIA_REQUIRE_X", "holds"),
    ]
    assert (found.verdict == "inject") == (verdict == "holds")


def test_a_broken_configuration_is_named_with_its_line(node: Node, tmp_path: Path) -> None:
    """For a container that asks for a GPU it is the error, else a warning."""
    config = tmp_path / "broken.toml"
    config.write_text("disable-require = maybe\n")
    assert told(str(config), "A=1").verdict == "skip"
    found = told(str(config), "NVIDIA_VISIBLE_DEVICES=all")
    assert found.error is not None
    assert (found.verdict, found.error.reference) == ("refuse", "config-toml-broken")
    assert f"{config}:1" in found.error.where


@pytest.mark.parametrize("text", ["", "{", "[]", "[1]", '"x"', "[" * 100_000])
def test_what_is_no_description_is_refused(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One line, no traceback."""
    file = tmp_path / "x.json"
    file.write_text(text)
    assert main(["explain", "--image-json", str(file)]) == 1
    assert capfd.readouterr().err.startswith("gpuhook: bad-bundle: ")


@pytest.mark.parametrize("argv", [[], ["--env", "x"], ["a", "--docker", "b"]])
def test_one_container_has_to_be_named(argv: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Usage errors end with status 2."""
    assert main(["explain", *argv]) == 2
    assert capfd.readouterr().err.startswith("gpuhook: usage: ")


def test_the_schema_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/explain.schema.json is what --schema prints, and what --json prints fits it."""
    assert main(["explain", "--schema"]) == 0
    published = Path(__file__).resolve().parents[2] / "docs" / "explain.schema.json"
    assert json.loads(published.read_text()) == json.loads(capsys.readouterr().out)
    main(["explain", "--json", "--env", "A=1"])
    Explanation.model_validate_json(capsys.readouterr().out)


def test_the_page_begins_with_the_verdict(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """No colour where there is no terminal; -v lists the plan."""
    config = node()
    assert main(["explain", "--config", config, "--env", "NVIDIA_VISIBLE_DEVICES=0"]) == 0
    short = capsys.readouterr().out
    assert "gets its GPUs" in short.splitlines()[0]
    assert "\x1b" not in short
    main(["explain", "-v", "--config", config, "--env", "NVIDIA_VISIBLE_DEVICES=0"])
    assert "  allow c 195:0 rw" in capsys.readouterr().out.splitlines()


def test_the_stand_in_for_the_pid_is_never_shown(node: Node, recorder: Path) -> None:
    """The command says PID where the container's process would stand."""
    found = told(node(cli=f'path = "{recorder}"\n'), "NVIDIA_VISIBLE_DEVICES=0")
    assert "--pid=PID" in found.command
    assert str(PID) not in found.model_dump_json()


def test_what_the_doctor_knows_of_containers_is_told(node: Node) -> None:
    """Warnings and notes of its checks, with the hook's own warnings: of the inspected container and its request."""
    item = {
        "Name": "/web",
        "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=utility"]},
        "HostConfig": {"Runtime": "nvidia", "Privileged": True, "ReadonlyRootfs": True},
    }
    [subject] = from_inspect(json.dumps([item]), "x")
    found = explain(subject, node())
    assert "privileged-sees-all" in [warning.reference for warning in found.warnings]
    assert {"caps-compute", "rootfs-readonly"} <= {note.reference for note in found.notes}


def test_a_cause_is_told_once(node: Node) -> None:
    """Where the hook refuses for a cause, no check repeats it."""
    found = told(node(), "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_IMEX_CHANNELS=7")
    assert found.error is not None
    assert found.error.reference == "imex"
    assert "imex" not in [one.reference for one in (*found.warnings, *found.notes)]
