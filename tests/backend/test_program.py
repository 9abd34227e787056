"""nvidia-container-cli as a file: found, vetted, or refused with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.backend.program import FOLDERS, OPTIONS, Program, find, search_path, vet
from gpuhook.errors import GpuhookError, UnsafeConfig
from gpuhook.refusals import BackendMissing

ELF_X86 = b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (62).to_bytes(2, "little") + bytes(100)
pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the sample programs are x86-64's")


def program(folder: Path, content: bytes = b"#!/bin/sh\n", mode: int = 0o755) -> str:
    """A program in this folder."""
    path = folder / "nvidia-container-cli"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_the_search_takes_path_first_then_the_usual_folders() -> None:
    """hook.md 8: PATH, then the missing ones of six, all of them below the root first."""
    assert search_path("/a:/usr/bin", "")[:3] == ("/a", "/usr/bin", "/usr/local/sbin")
    assert search_path("", "") == FOLDERS
    assert search_path("/a", "/d")[:2] == ("/d/a", "/d/usr/local/sbin")
    assert search_path(".:bin:/a:", "")[:2] == ("/a", "/usr/local/sbin")


def test_relative_folders_and_the_containers_own_are_no_place_to_look(tmp_path: Path) -> None:
    """threats.md AC-70: the image's program is never ours to run."""
    program(tmp_path)
    assert find((str(tmp_path),), "/r") == f"{tmp_path}/nvidia-container-cli"
    assert find((str(tmp_path),), str(tmp_path)) == ""
    assert find((str(tmp_path),), str(tmp_path.parent)) == ""
    assert find((".", "bin"), "/r") == ""
    assert find((f"{tmp_path}//", "/x"), "/r") == f"{tmp_path}/nvidia-container-cli"


def test_a_file_that_cannot_be_executed_is_passed_over(tmp_path: Path) -> None:
    """As a shell would."""
    program(tmp_path, mode=0o644)
    assert find((str(tmp_path),), "/r") == ""


def test_a_script_is_thought_to_know_every_option(tmp_path: Path) -> None:
    """decisions.md 9: what is no ELF file is passed all of them."""
    path = program(tmp_path)
    assert vet(path, "x") == Program(path=path, knows=OPTIONS)


def test_a_program_knows_the_options_that_its_bytes_name(tmp_path: Path) -> None:
    """Found once, from the file's own text."""
    path = program(tmp_path, ELF_X86 + b"\0cuda-compat-mode\0")
    assert vet(path, "x") == Program(path=path, knows=("cuda-compat-mode",))


def test_gpuhook_under_nvidias_name_means_the_engine(tmp_path: Path) -> None:
    """decisions.md 10: never exec of ourselves."""
    assert vet(program(tmp_path, b"#!/usr/bin/python3 -IS\n# gpuhook launcher: x\n"), "x") is None


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (ELF_X86.replace(bytes([62, 0]), bytes([183, 0])), 0o755, "another machine"),
        (b"#!/bin/sh\n", 0o644, "not executable"),
    ],
)
def test_a_program_that_cannot_run_is_refused(tmp_path: Path, content: bytes, mode: int, problem: str) -> None:
    """What exec would say badly is said before, with the path."""
    path = program(tmp_path, content, mode)
    with pytest.raises(BackendMissing, match=problem) as refused:
        vet(path, "the key")
    assert path in refused.value.text
    assert refused.value.where == "the key"


@pytest.mark.parametrize("kind", ["absent", "folder"])
def test_what_is_no_program_is_refused(tmp_path: Path, kind: str) -> None:
    """Missing, or a folder."""
    path = tmp_path / "nvidia-container-cli"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(BackendMissing):
        vet(str(path), "x")


def test_a_program_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Root runs nothing that somebody else could have written."""
    path = program(tmp_path)
    Path(path).chmod(0o777)
    with pytest.raises(UnsafeConfig):
        vet(path, "x")
    tmp_path.chmod(0o777)
    Path(path).chmod(0o755)
    with pytest.raises(GpuhookError):
        vet(path, "x")
