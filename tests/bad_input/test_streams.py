"""Streams that are closed, full or not read change nothing about what is done, and never give a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GPUHOOK = str(Path(sys.executable).with_name("gpuhook"))


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lean launcher."""
    folder = tmp_path_factory.mktemp("bin")
    subprocess.run([GPUHOOK, "launchers", folder], check=True, stdout=subprocess.DEVNULL)
    return f"{folder}/gpuhook"


def shell(text: str) -> subprocess.CompletedProcess[str]:
    """A line of shell, run to its end."""
    return subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("stage", ["poststart", "poststop"])
def test_a_closed_stdout_does_not_matter_to_a_stage(launcher: str, stage: str) -> None:
    """A runtime may give the hook no stdout at all."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {launcher} {stage} >&-"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["--help >&-", "--version >/dev/full", "--help >/dev/full", "why >/dev/full"])
def test_what_cannot_be_printed_is_an_error(launcher: str, command: str) -> None:
    """Not 0, and one message or none: no traceback, no fault of ours."""
    done = shell(f"exec {launcher} {command}")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "report" not in done.stderr


def test_a_reader_that_has_seen_enough(launcher: str) -> None:
    """`gpuhook why | head -1` ends quietly."""
    done = shell(f"{launcher} why | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_word_that_is_also_an_options_value(launcher: str) -> None:
    """The command is the first word, wherever else it stands."""
    done = subprocess.run(
        [launcher, "--config", "why", "why", "bad-state"], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("bad-state")
