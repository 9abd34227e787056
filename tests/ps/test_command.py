"""`gpuhook ps` as people and programs call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.hook import main
from gpuhook.ps.model import Usage
from tests.ps.test_look import ASKS, DOCKER, INSPECT
from tests.ps.test_owner import ID
from tests.ps.tree import DEV, Tree, bind

PROJECT = Path(__file__).resolve().parents[2]
GPUHOOK = (sys.executable, "-c", "import sys; from gpuhook.hook import main; sys.exit(main(sys.argv[1:]))")


@pytest.fixture
def busy(tree: Tree) -> Tree:
    """Two GPUs; a container that has lost one, one that got none, a process outside."""
    tree.gpu(0, "0000:3b:00.0")
    tree.gpu(1, "0000:5e:00.0")
    tree.process(50, DOCKER, env=ASKS, mounts=DEV + bind("nvidia0") + bind("nvidia1"), fds=("/dev/nvidia0",))
    tree.rules(DOCKER, "c 195:0 rw\n")
    tree.process(60, "/system.slice/docker-" + "e" * 64 + ".scope", env=ASKS)
    tree.process(70, fds=("/dev/nvidiactl",), command="evil\x1b[31m\nline\0")
    tree.says(INSPECT, [{"Id": ID, "Name": "/web", "Config": {"Image": "cuda:12"}}])
    tree.node()
    return tree


def test_the_page(busy: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns: GPUs, containers with a mark, what was lost, the others, what was not seen."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ps", "--root", str(busy.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    assert "nvidia0   0000:3b:00.0  GPU-00000000  NVIDIA A100  1 process" in text
    assert "NVIDIA A100  idle" in text
    assert "  may use nvidia0" in lines
    assert "lost nvidia1: " in text
    assert "gpuhook why systemd-reload-loses-gpu" in text.replace("\n    ", " ")
    assert "has no GPU's node" in text
    assert text.index("outside of containers") < text.index("evil\\x1b[31m\\nline")
    assert "\x1b" not in text
    assert max(len(line) for line in lines) <= 80


def test_the_schema_is_published(busy: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/ps.schema.json is what --schema prints, and what --json prints fits it."""
    assert main(["ps", "--schema"]) == 0
    assert json.loads((PROJECT / "docs" / "ps.schema.json").read_text()) == json.loads(capsys.readouterr().out)
    assert main(["ps", "--json", "--root", str(busy.root)]) == 0
    assert len(Usage.model_validate_json(capsys.readouterr().out).containers) == 2


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "0.01"])
def test_a_time_that_is_none(seconds: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Refused with the limits."""
    assert main(["ps", f"--watch={seconds}"]) == 2
    assert "between 0.1 and 86400 seconds" in capfd.readouterr().err


def test_watching_ends_with_an_interrupt(busy: Tree) -> None:
    """With --json each look is a line."""
    argv = [*GPUHOOK, "ps", "--json", "--watch", "0.1", "--root", str(busy.root)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        looks = [Usage.model_validate_json(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
        assert watching.stderr.read() == ""
    assert looks[0] == looks[1]


def test_a_reader_that_leaves(busy: Tree) -> None:
    """`gpuhook ps --watch | head` ends without a word."""
    reading, writing = os.pipe()
    argv = [*GPUHOOK, "ps", "--watch", "0.1", "--root", str(busy.root)]
    with subprocess.Popen(argv, stdout=writing, stderr=subprocess.PIPE, cwd=PROJECT, text=True) as watching:
        os.close(writing)
        os.read(reading, 10)
        os.close(reading)
        assert watching.stderr is not None
        assert (watching.wait(20), watching.stderr.read()) == (0, "")
