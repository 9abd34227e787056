"""How a container is named to explain, and what is said where that leads nowhere."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cli import main
from gpuhook.errors import BadBundle
from gpuhook.explain import engines
from gpuhook.explain.decide import explain
from gpuhook.explain.subject import from_bundle
from tests.rig.needs import need
from tests.rig.process import run

Node = Callable[..., str]
SAID = [{"Name": "/web", "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=void"]}}]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes the program `docker` a script, and returns the file in which it may keep its words."""

    def make(script: str) -> Path:
        path = tmp_path / "docker"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(engines, "PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "words"

    return make


def test_docker_is_asked_for_a_container(engine: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Not for a network or an image of that name."""
    words = engine(f'echo "$@" > "$(dirname "$0")"/words; echo \'{json.dumps(SAID)}\'')
    assert main(["explain", "--docker", "web"]) == 0
    assert words.read_text().split() == ["inspect", "--type", "container", "web"]
    assert "web is left alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "text", "hint"),
    [
        ("echo 'Error: No such container: web' >&2; exit 1", "No such container", "docker ps --all"),
        ("echo 'Cannot connect to the Docker daemon at unix:///x' >&2; exit 1", "Cannot connect", ""),
        ("echo 'error during connect: EOF\n* Are you trying TLS?' >&2; exit 1", "error during connect: EOF", ""),
        ("printf '\\033[31m\\377' >&2; exit 1", "\x1b[31m\ufffd", ""),
        ("exit 7", "no reason given", ""),
        ("echo garbage", "it is not JSON", "docker inspect"),
        ("echo '[]'", "the list is empty", "docker inspect"),
        ("echo 'null'", "neither a container nor an image", "docker inspect"),
        ("sleep 30", "did not answer within 0.5 s", "is it alive"),
        ("kill -9 $$", "no reason given", ""),
    ],
)
def test_an_engine_that_does_not_tell(
    script: str, text: str, hint: str, engine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line what it said, and what may help."""
    engine(script)
    monkeypatch.setattr(engines, "LIMIT", 0.5)
    with pytest.raises(BadBundle) as caught:
        engines.inspected("docker", "web")
    assert text in caught.value.text
    assert hint in caught.value.hint
    assert "\x1b" not in caught.value.render()


def test_containers_of_containerd_go_by_the_beginning_of_their_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every namespace; a whole id wins over one that only begins so."""
    monkeypatch.setattr(engines, "TASKS", str(tmp_path))
    for place in ("moby/abc", "moby/abcd", "k8s.io/xyz"):
        (tmp_path / place / "rootfs").mkdir(parents=True)
        spec = {"ociVersion": "1.0.2", "process": {"args": ["x"], "cwd": "/"}, "root": {"path": "rootfs"}}
        (tmp_path / place / "config.json").write_text(json.dumps(spec))
    assert engines.of_containerd("abc").name == "abc"
    assert engines.of_containerd("x").name == "xyz"
    for name, words in (("ab", "2 containers begin so"), ("*", "no such running container"), ("q", "no such")):
        with pytest.raises(BadBundle) as caught:
            engines.of_containerd(name)
        assert words in caught.value.text
        assert "ctr namespaces list" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody else")
def test_what_belongs_to_others_is_said_to(tmp_path: Path) -> None:
    """Neither "no such container" nor a word about the specification: whose it is, and who may ask."""
    bundle = tmp_path / "bundle"
    bundle.mkdir(mode=0o700)
    (bundle / "config.json").write_text("{}")
    asking = (
        "import os, sys; from gpuhook.hook import main; from gpuhook.explain import engines; "
        "import gpuhook.cli, gpuhook.explain.command; engines.TASKS = sys.argv[1]; os.setuid(65534); "
        "print([main(['explain', sys.argv[1]]), main(['explain', '--containerd', 'x'])])"
    )
    for folder in (*bundle.parents, bundle.parent):
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | 0o711)
    done = run([sys.executable, "-c", asking, str(bundle)])
    assert done.stdout == "[1, 1]\n"
    assert "it belongs to the user 0" in done.stderr
    assert "as root, or as that user" in done.stderr
    assert "cannot look for it: Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("path", "words"),
    [("nowhere", "there is no such folder"), ("empty", "has no config.json"), ("file", "Not a directory")],
)
def test_a_bundle_that_is_none(path: str, words: str, tmp_path: Path) -> None:
    """In words for people who mistyped."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(BadBundle) as caught:
        from_bundle(str(tmp_path / path))
    assert words in caught.value.text


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """What `runc spec` writes, with a rootfs, as most bundles are."""
    need("runc")
    folder = tmp_path / "bundle"
    (folder / "rootfs").mkdir(parents=True)
    subprocess.run(["runc", "spec"], cwd=folder, check=True)
    return folder


def changed(bundle: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    spec = json.loads((bundle / "config.json").read_text())
    change(spec)
    (bundle / "config.json").write_text(json.dumps(spec))
    return bundle


def asks(spec: dict[str, Any]) -> None:
    spec["process"]["env"].append("NVIDIA_VISIBLE_DEVICES=0")
    spec["hooks"] = {"prestart": [{"path": "/usr/local/bin/gpuhook", "args": ["gpuhook", "prestart"]}]}
    spec["root"]["readonly"] = False


def test_an_ordinary_bundle_has_nothing_to_be_warned_of(bundle: Path, node: Node) -> None:
    """The /dev and /run of its own that every container has are not the host's."""

    def runs(spec: dict[str, Any]) -> None:
        asks(spec)
        spec["mounts"].append({"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]})

    found = explain(from_bundle(str(changed(bundle, runs))), node())
    assert (found.verdict, found.uncalled, found.warnings) == ("inject", "", [])
    assert [note.reference for note in found.notes if note.reference != "musl-or-distroless"] == []


def test_the_hosts_dev_is_one_to_be_warned_of(bundle: Path, node: Node) -> None:
    """A bind mount, or a devtmpfs of its own."""

    def binds(spec: dict[str, Any]) -> None:
        asks(spec)
        spec["mounts"].append({"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind"]})

    found = explain(from_bundle(str(changed(bundle, binds))), node())
    assert "privileged-sees-all" in [warning.reference for warning in found.warnings]


def test_a_bundle_may_be_named_by_its_file(bundle: Path) -> None:
    """As the shell completes it."""
    assert from_bundle(str(bundle / "config.json")).source == str(bundle)


def test_a_bundle_without_a_hook_gets_no_tick(bundle: Path, capsys: pytest.CaptureFixture[str], node: Node) -> None:
    """In the first line."""

    def asks_only(spec: dict[str, Any]) -> None:
        spec["process"]["env"].append("NVIDIA_VISIBLE_DEVICES=0")

    main(["explain", "--config", node(), str(changed(bundle, asks_only))])
    first = capsys.readouterr().out.splitlines()[0]
    assert "gets no GPU: no GPU hook is called for it" in first


@pytest.mark.parametrize("hooks", [[], "x", {"prestart": "x"}, {"prestart": [1, {"path": 3}]}, None])
def test_hooks_of_other_forms_do_no_harm(hooks: object, bundle: Path, node: Node) -> None:
    """The hook does not read them either."""

    def odd(spec: dict[str, Any]) -> None:
        asks(spec)
        spec["hooks"] = hooks

    assert explain(from_bundle(str(changed(bundle, odd))), node()).verdict in ("inject", "refuse")


def test_variables_may_follow_each_other(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """`--env A=1 B=2`, and `--env A=1 --env B=2`."""
    both = ["NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_DRIVER_CAPABILITIES=utility"]
    for words in (["--env", *both], ["--env", both[0], "--env", both[1]]):
        assert main(["explain", "--json", "--config", node(), *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [one["name"] for one in found["capabilities"] if one["granted"]] == ["utility"]


def test_a_file_without_end_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """Not read until memory is full."""
    assert main(["explain", "--image-json", "/dev/zero"]) == 1
    assert "larger than 64 MiB" in capfd.readouterr().err


def test_a_closed_stdin_is_an_empty_description(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No traceback."""
    monkeypatch.setattr("sys.stdin", None)
    assert main(["explain", "--image-json", "-"]) == 1
    assert "it is not JSON" in capfd.readouterr().err


def test_a_pipe_may_be_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`gpuhook explain --image-json <(docker inspect web)`."""
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"echo '{json.dumps(SAID)}' > {tmp_path}/pipe"]) as writer:
        assert main(["explain", "--image-json", str(tmp_path / "pipe")]) == 0
        assert writer.wait() == 0
    assert "web is left alone" in capsys.readouterr().out


def test_stdin_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`docker inspect web | gpuhook explain --image-json -`."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(SAID).encode())))
    assert main(["explain", "--image-json", "-"]) == 0
    assert "web is left alone" in capsys.readouterr().out
