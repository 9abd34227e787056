"""The command line: its forms, and what is said about those that are none."""

from __future__ import annotations

import pytest

from gpuhook import __version__
from tests.bad_input.conftest import Scene
from tests.rig.process import Result, run

pytestmark = pytest.mark.engine


def called(scene: Scene, *words: str, stdin: bytes = b"") -> Result:
    return run([scene.node.launcher, *words], stdin=stdin)


@pytest.mark.parametrize("words", ["--help", "-help", "-h", "--h", "prestart --help", "--help prestart", "-help=true"])
def test_help(scene: Scene, words: str) -> None:
    """Every form prints the help on stdout and succeeds, without reading a state."""
    result = called(scene, *words.split())
    assert (result.status, result.stderr) == (0, "")
    assert "usage: gpuhook" in result.stdout
    assert "poststop" in result.stdout


@pytest.mark.parametrize("words", ["--version", "-version", "--version=true", "-version=1", "prestart --version"])
def test_version(scene: Scene, words: str) -> None:
    """Every form prints the version and succeeds."""
    result = called(scene, *words.split())
    assert (result.status, result.stdout, result.stderr) == (0, f"gpuhook {__version__}\n", "")


@pytest.mark.parametrize(
    "words", ["poststart", "poststop", "-debug poststart", "poststop --debug", "-version=false poststop"]
)
def test_idle_stages(scene: Scene, words: str) -> None:
    """They succeed in silence and read nothing."""
    result = called(scene, *words.split())
    assert (result.status, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "words",
    [
        ("-config=FILE", "prestart"), ("--config=FILE", "prestart"), ("-config", "FILE", "prestart"),
        ("--config", "FILE", "prestart"), ("prestart", "--config", "FILE"), ("prestart", "-config=FILE"),
        ("--debug=false", "--config", "FILE", "prestart"), ("--config", "/absent", "--config", "FILE", "prestart"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_configuration_can_be_named_anywhere(scene: Scene, words: tuple[str, ...]) -> None:
    """One dash or two, with = or without, before the stage or after it; the last one counts."""
    state = scene.state(bundle=scene.node.bundle(scene.init.rootfs, "NVIDIA_VISIBLE_DEVICES=99"))
    result = called(scene, *(word.replace("FILE", scene.config) for word in words), stdin=state)
    assert (result.status, result.stdout) == (1, "")
    assert result.stderr.startswith("gpuhook: unknown-device: GPU 99 was requested, and this host has 3")


@pytest.mark.parametrize(
    "words", [("--debug", "prestart"), ("prestart", "-debug"), ("-debug=true", "prestart")], ids=str
)
def test_debug_says_what_is_decided(scene: Scene, words: tuple[str, ...]) -> None:
    """Notes on stderr, before or after the stage."""
    state = scene.state(bundle=scene.node.bundle(scene.init.rootfs, "NVIDIA_VISIBLE_DEVICES=99"))
    result = called(scene, "--config", scene.config, *words, stdin=state)
    assert result.stderr.startswith("gpuhook: note: ")


WRONG = {
    "": "no stage and no command was given",
    "prestar": "did you mean prestart?",
    "start": "unknown command 'start'",
    "--nonsense prestart": "--nonsense",
    "prestart --nonsense": "--nonsense",
    "--config": "needs a file",
    "prestart --config": "needs a file",
    "--debug=maybe prestart": "--debug=maybe",
    "createContainer": "prestart",
    "startContainer": "startContainer",
    "- prestart": "'-'",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_command_line_that_is_none(scene: Scene, words: str) -> None:
    """Status 2, what is wrong, what would be right; no traceback, and no state is read."""
    result = called(scene, *words.split(), stdin=scene.state())
    assert (result.status, result.stdout) == (2, "")
    lines = [line for line in result.stderr.splitlines() if line.startswith("gpuhook: ")]
    assert [line.startswith("gpuhook: usage: ") for line in lines if " gives a container" not in line] == [True]
    assert WRONG[words] in result.stderr
    assert "Traceback" not in result.stderr
