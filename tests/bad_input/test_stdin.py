"""What a runtime could write to the hook's stdin, and should not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from time import monotonic

import pytest

from tests.bad_input.conftest import Scene, refused
from tests.rig.process import run

pytestmark = pytest.mark.engine

MIB64 = 64 << 20


STDIN = {
    "empty": b"",
    "blanks": b" \n\t ",
    "truncated": b'{"ociVersion": "1.0.2", "pid": 12',
    "truncated in a text": b'{"bundle": "/x',
    "not JSON": b"hello",
    "two commas": b'{"pid": 1,, "bundle": "/x"}',
    "single quotes": b"{'pid': 1}",
    "deep lists": b'{"a": ' + b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep and closed": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not UTF-8": b'{"bundle": "/\xff\xfe", "pid": 1}',
    "UTF-16": '{"pid": 1}'.encode("utf-16"),
    "a NUL": b'{"pid": 1\0}',
    "a list": b"[1, 2]",
    "a text": b'"state"',
    "a number": b"12",
    "null": b"null",
    "true": b"true",
    "no bundle": b'{"pid": 1}',
    "NaN": b'{"pid": NaN, "bundle": "/x"}',
}


@pytest.mark.parametrize("name", STDIN)
def test_what_is_no_state(scene: Scene, name: str) -> None:
    """One line that says that the state on stdin is at fault."""
    result = scene.hook(STDIN[name])
    refused(result, "bad-state", "stdin")
    assert result.seconds < 4


@pytest.mark.parametrize(
    ("begin", "fill"),
    [(b"", b" "), (b'{"annotations": {"a": "', b"a"), (b'{"a": ', b"["), (b"", b"9"), (b"{}", b"{}")],
    ids=["blanks", "one text", "brackets", "digits", "many documents"],
)
def test_64_mib(scene: Scene, begin: bytes, fill: bytes) -> None:
    """Far more than any state has: refused without reading it all."""
    result = scene.hook(begin + fill * (MIB64 // len(fill)))
    refused(result, "bad-state", "stdin")
    assert result.seconds < 5


WRONG: dict[str, Mapping[str, object]] = {
    "pid absent": {"pid": None},
    "pid zero": {"pid": 0},
    "pid negative": {"pid": -1},
    "pid a text": {"pid": "12"},
    "pid a fraction": {"pid": 12.5},
    "pid true": {"pid": True},
    "pid too large": {"pid": 1 << 40},
    "pid a list": {"pid": [1]},
    "bundle relative": {"bundle": "bundle"},
    "bundle empty": {"bundle": ""},
    "bundle a number": {"bundle": 3},
    "bundle climbing": {"bundle": "/tmp/../etc"},
    "bundle with a newline": {"bundle": "/tmp/a\nb"},
    "bundle with a NUL": {"bundle": "/tmp/a\0b"},
    "two bundles": {"bundlePath": "/elsewhere"},
    "id a number": {"id": 3},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_field(scene: Scene, name: str) -> None:
    """A field that is missing or of another kind is named."""
    refused(scene.hook(scene.state(**WRONG[name])), "bad-state", name.split()[0].replace("two", "bundle"))


def test_a_process_that_is_dead(scene: Scene) -> None:
    """The pid of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    refused(scene.hook(scene.state(pid=child.pid)), "bad-container", str(child.pid), "does not exist")


def test_a_process_of_the_host(scene: Scene) -> None:
    """A process in the hook's own mount namespace: mounting there would change the host."""
    refused(scene.hook(scene.state(pid=os.getpid())), "bad-container", "our own mount namespace")


def test_process_1(scene: Scene) -> None:
    """The first process of the machine is no container, and may not even be looked at."""
    refused(scene.hook(scene.state(pid=1)), "bad-container")


def shell(scene: Scene, redirection: str) -> list[str]:
    return [
        "/bin/sh",
        "-c",
        f'exec "$0" "$@" {redirection}',
        scene.node.launcher,
        "--config",
        scene.config,
        "prestart",
    ]


@pytest.mark.parametrize("redirection", ["<&-", "</dev/null", "0>/dev/null"])
def test_a_stdin_that_is_none(scene: Scene, redirection: str) -> None:
    """Closed, empty, open for writing only."""
    refused(run(shell(scene, redirection)), "bad-state", "stdin")


def test_a_stdin_that_never_ends(scene: Scene) -> None:
    """With the whole state it works at once; without it the hook gives up after five seconds and says so."""
    argv = [scene.node.launcher, "--config", scene.config, "prestart"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    none = scene.node.bundle(scene.init.rootfs)
    begun, answers = monotonic(), {}
    wholly = scene.state(bundle=none)
    hooks = {name: subprocess.Popen(argv, **pipes) for name in ("whole", "half", "nothing")}  # type: ignore[call-overload]
    for name, text in (("whole", wholly), ("half", wholly[:-1]), ("nothing", b"")):
        hooks[name].stdin.write(text)
        hooks[name].stdin.flush()
    assert hooks["whole"].wait(4) == 0
    for name, hook in hooks.items():
        hook.wait(15)
        answers[name] = hook.stderr.read().decode()
        for pipe in (hook.stdin, hook.stdout, hook.stderr):
            pipe.close()
    assert 4.5 < monotonic() - begun < 10
    assert (hooks["half"].returncode, hooks["nothing"].returncode) == (1, 1)
    assert answers["whole"] == ""
    for name in ("half", "nothing"):
        assert answers[name].startswith("gpuhook: bad-state: no complete state within 5 s: ")
        assert "Traceback" not in answers[name]
