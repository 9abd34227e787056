"""The command: the first screen, its exit status, its forms of output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.cli import main
from gpuhook.doctor.model import Report
from gpuhook.doctor.node import Node
from gpuhook.doctor.progress import Progress

Host = Callable[[str], Node]
SCREEN = 24


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Status and standard output of `gpuhook doctor`."""
    status = main(["doctor", *argv])
    return status, capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "cause", "fix"),
    [
        ("driver-mismatch", "kernel module 550.54.14, libraries 550.90.07", "modprobe -r nvidia_uvm"),
        ("daemon-json-typo", "a comma stands before }, with nothing between them", "correct line 4 of /etc/docker"),
        ("docker-without-hook", "finds no nvidia-container-runtime-hook", "gpuhook install docker"),
    ],
)
def test_the_first_screen_names_cause_and_fix(
    name: str, cause: str, fix: str, host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verdict first, then the cause, then what to do: without scrolling, 80 columns wide."""
    status, out = run(capsys, "--root", host(name).root)
    lines = out.splitlines()
    assert status == 2
    assert "will not work" in lines[0]
    screen = re.sub(r"\s+", " ", " ".join(lines[:SCREEN]))
    assert cause in screen
    assert fix in screen
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("name", "status"), [("healthy-docker", 0), ("boot-order", 0), ("hidepid", 1), ("swarm", 1)])
def test_the_exit_status_tells_the_worst(
    name: str, status: int, host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 for nothing or notes, 1 for warnings, 2 for failures."""
    assert run(capsys, "--root", host(name).root)[0] == status


def test_a_healthy_host_is_said_to_be_fine(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """In three lines; -v tells what was looked at."""
    root = host("healthy-docker").root
    short = run(capsys, "--root", root)[1]
    assert "no fault found" in short.splitlines()[0]
    assert len(short.splitlines()) <= 3
    assert "all 1 GPU(s) answer the driver" in run(capsys, "-v", "--root", root)[1]


def test_json_fits_the_published_schema(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/doctor.schema.json is what --schema prints, and what --json prints is of that form."""
    published = Path(__file__).resolve().parents[2] / "docs" / "doctor.schema.json"
    assert json.loads(run(capsys, "--schema")[1]) == json.loads(published.read_text())
    report = Report.model_validate_json(run(capsys, "--json", "--root", host("hidepid").root)[1])
    assert (report.verdict, [one.slug for one in report.findings if one.level != "ok"]) == ("warning", ["hidepid"])
    assert report.versions["gpuhook"]


def test_only_runs_one_check(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """And no other one decides the exit status."""
    root = host("docker-without-hook").root
    assert run(capsys, "--only", "hidepid", "--root", root)[0] == 0
    status, out = run(capsys, "--json", "--only", "engine-no-gpu-driver", "--root", root)
    assert status == 2
    assert {one["slug"] for one in json.loads(out)["findings"]} == {"engine-no-gpu-driver"}


def test_only_refuses_what_is_no_check(capfd: pytest.CaptureFixture[str]) -> None:
    """A usage error with the way to the list."""
    assert main(["doctor", "--only", "nonsense"]) == 2
    assert "gpuhook doctor --list" in capfd.readouterr().err


def test_list_names_every_check_once(capsys: pytest.CaptureFixture[str]) -> None:
    """With its title, those of containers marked."""
    lines = run(capsys, "--list")[1].splitlines()
    slugs = [line.split()[0] for line in lines]
    assert len(slugs) == len(set(slugs))
    assert any(line.startswith("unknown-device") and line.endswith("(--container)") for line in lines)


def test_the_newest_change_of_packages_is_told_with_a_fault(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Changes of the last two weeks only."""
    out = run(capsys, "--root", host("driver-mismatch").root)[1]
    assert "libnvidia-compute-550:amd64 550.54.14" in out
    assert "docker-ce" not in out


def test_a_report_to_paste_names_nobody(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Host, users, ids, addresses and secrets are masked."""
    node = host("daemon-json-and-flags")
    Path(node.root, "etc/hostname").write_text("rosebud.example.org\n")
    Path(node.root, "home/citizen").mkdir(parents=True)
    drop_in = Path(node.root, "etc/systemd/system/docker.service.d/override.conf")
    flags = "--add-runtime=nvidia=/home/citizen/rt -H tcp://10.1.2.3 --api-token=hunter2 --label rosebud --u=a://b:c@d"
    drop_in.write_text(f"[Service]\nExecStart=/usr/bin/dockerd {flags}\n")
    out = run(capsys, "--markdown", "--root", node.root)[1]
    assert "| failure | daemon-json-invalid |" in out
    for word in ("rosebud", "citizen", "10.1.2.3", "hunter2", "b:c"):
        assert word not in out
    for word in ("host", "user", "address", "secret"):
        assert f"&lt;{word}>" in out  # what looks like HTML is not shown in an issue


def test_this_machine_is_looked_at_within_three_seconds() -> None:
    """Whatever it has; no check fails, and nothing is said but the report."""
    program = Path(sys.executable).with_name("gpuhook")
    done = subprocess.run([program, "doctor", "--json"], capture_output=True, check=False)
    assert done.stderr == b""
    report = Report.model_validate_json(done.stdout)
    assert not [one for one in report.findings if "the check itself failed" in one.text]
    assert done.returncode == {"failure": 2, "warning": 1}.get(report.verdict, 0)
    assert report.seconds < 3


def test_progress_is_shown_once_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    """What is looked at; the line is taken away at the end."""
    with Progress(shown=True, slow=0.01) as progress:
        progress.now = "gpu-lost"
        time.sleep(0.5)
    err = capsys.readouterr().err
    assert "checking gpu-lost ..." in err
    assert err.endswith("\r\x1b[K")


def test_progress_is_silent_for_what_is_fast(capsys: pytest.CaptureFixture[str]) -> None:
    """And where nobody watches."""
    with Progress(shown=True):
        pass
    with Progress(shown=False, slow=0):
        time.sleep(0.3)
    assert capsys.readouterr().err == ""
