"""`gpuhook launchers`."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.archive import STAGES, archives, collect, source_of
from gpuhook.backend.program import MARK
from gpuhook.errors import GpuhookError, Usage
from gpuhook.hook import main


def test_a_launcher_names_its_interpreter_in_full(tmp_path: Path) -> None:
    """The first line is the resolved interpreter, isolated, without site."""
    assert main(["launchers", str(tmp_path)]) == 0
    launcher = tmp_path / "gpuhook"
    assert launcher.read_text().splitlines()[0] == f"#!{os.path.realpath(sys.executable)} -IS"
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o755
    done = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=True, env={})
    assert done.stdout.startswith("gpuhook ")


def test_a_launcher_can_have_another_name(tmp_path: Path) -> None:
    """Engines look for NVIDIA's names; the mark tells us that the file is ours."""
    assert main(["launchers", str(tmp_path), "--name", "nvidia-container-cli"]) == 0
    assert MARK in (tmp_path / "nvidia-container-cli").read_bytes()[:4096]


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is written outside of the folder."""
    assert main(["launchers", str(tmp_path), "--name", name]) == Usage.exit_status
    assert "no file name" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The message says what to do."""
    assert main(["launchers", str(tmp_path / "absent")]) == Usage.exit_status
    assert "mkdir -p" in capfd.readouterr().err


def test_a_launcher_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    """The new file takes the old one's place at once or not at all."""
    (tmp_path / "gpuhook").mkdir()
    assert main(["launchers", str(tmp_path)]) == GpuhookError.exit_status
    assert [path.name for path in tmp_path.iterdir()] == ["gpuhook"]


def test_the_archive_holds_every_module_after_what_it_imports() -> None:
    """So each module finds in place what it imports."""
    done: list[str] = []
    for roots in STAGES.values():
        for root in roots:
            collect(root, done)
    assert done.index("value") < done.index("oci.state") < done.index("hook") or "hook" in done
    assert done.index("errors") < done.index("hook")
    assert done.index("oci") < done.index("oci.bundle")
    assert len(done) == len(set(done))
    assert all(source_of(name) for name in done)
    assert set(archives()) == set(STAGES)
