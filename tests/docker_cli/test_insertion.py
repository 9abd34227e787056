"""The words that the wrapper puts in, and what it says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuhook.docker_cli import gpu_list, insertion, parse_line
from gpuhook.errors import UnknownDevice
from tests.docker_cli.stand import Stand
from tests.rig.process import PATH
from tests.shim.stand import write_program

RUNTIME = "--runtime=nvidia"


def words(line: str, gpus: str = "") -> list[str]:
    """The words that are inserted into this line with this NV_GPU."""
    return insertion(parse_line(line.split()), gpus)[0]


def said(line: str, gpus: str = "") -> list[str]:
    """The slugs of what is said about it."""
    return [slug for slug, _ in insertion(parse_line(line.split()), gpus)[1]]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("", []),
        (" \t\n", []),
        (",,", []),
        ("0", ["0"]),
        ("0,1", ["0", "1"]),
        ("0 1", ["0", "1"]),
        (" 0,  1\t2\n3 ", ["0", "1", "2", "3"]),
        ("0,0,1,0", ["0", "1"]),
        ("all", ["all"]),
        ("GPU-1111 MIG-GPU-2/1/0 0:1 0000:3b:00.0", ["GPU-1111", "MIG-GPU-2/1/0", "0:1", "0000:3b:00.0"]),
        ("nvidia.com/gpu=0", ["nvidia.com/gpu=0"]),
    ],
)
def test_a_list_is_split_at_blanks_and_commas(value: str, names: list[str]) -> None:
    """Without empty elements, each once."""
    assert gpu_list(value) == names


@pytest.mark.attack
@pytest.mark.parametrize(
    "value", ["0 --privileged", "0\n-v/:/h", "$(x)", "*", '"0', "a\\", "ü", "0;1", "=0", "a\x00b"]
)
def test_what_no_device_is_called_is_refused(value: str) -> None:
    """With the variable's name (AC-81)."""
    with pytest.raises(UnknownDevice, match="NV_GPU holds"):
        gpu_list(value)


@pytest.mark.parametrize(
    ("line", "gpus", "inserted"),
    [
        ("run img", "", [RUNTIME]),
        ("create img", "0 1", [RUNTIME, "-e", "NVIDIA_VISIBLE_DEVICES=0,1"]),
        ("run --runtime runc img", "", []),
        ("run --runtime=nvidia img", "1", ["-e", "NVIDIA_VISIBLE_DEVICES=1"]),
        ("run --gpus all img", "", []),
        ("run --gpus device=0 img", "1", []),
        ("run -e NVIDIA_VISIBLE_DEVICES=2 img", "1", [RUNTIME]),
        ("run --env NVIDIA_VISIBLE_DEVICES img", "1", [RUNTIME]),
        ("run -e NVIDIA_VISIBLE_DEVICES_X=2 img", "1", [RUNTIME, "-e", "NVIDIA_VISIBLE_DEVICES=1"]),
        ("run img -e NVIDIA_VISIBLE_DEVICES=2 --runtime=runc", "1", [RUNTIME, "-e", "NVIDIA_VISIBLE_DEVICES=1"]),
    ],
)
def test_the_users_own_choice_is_not_doubled(line: str, gpus: str, inserted: list[str]) -> None:
    """What he gives himself counts, whatever NV_GPU says."""
    assert words(line, gpus) == inserted


@pytest.mark.parametrize(
    ("line", "gpus", "slugs"),
    [
        ("run img", "0", []),
        ("run --runtime=nvidia img", "", []),
        ("run --runtime=runc img", "", ["runtime-not-registered"]),
        ("run --gpus all img", "", []),
        ("run --gpus all img", "0", ["nvidia-docker-cmd"]),
        ("run --gpus 0 img", "", ["gpus-quoting"]),
        ("run --gpus=0 img", "", ["gpus-quoting"]),
        ("run -e NVIDIA_VISIBLE_DEVICES=1 img", "0", ["nvidia-docker-cmd"]),
        ("run -e NVIDIA_VISIBLE_DEVICES=1 img", "", []),
        ("run --privileged img", "1", ["privileged-sees-all"]),
        ("run --privileged=false img", "1", []),
        ("run --privileged img", "all", []),
        ("run --privileged img", "", []),
    ],
)
def test_what_does_not_mean_what_it_seems_is_said(line: str, gpus: str, slugs: list[str]) -> None:
    """One line for each; silence where all is clear."""
    assert said(line, gpus) == slugs


def test_a_file_of_variables_is_the_users_choice_too(tmp_path: Path) -> None:
    """It would lose against an inserted option; one that docker cannot read is docker's to report."""
    file = tmp_path / "env"
    file.write_text("# NVIDIA_VISIBLE_DEVICES=1\nA=b\n  NVIDIA_VISIBLE_DEVICES=2\n")
    assert words(f"run --env-file {file} img", "1") == [RUNTIME]
    file.write_text("# NVIDIA_VISIBLE_DEVICES=1\nNVIDIA_VISIBLE_DEVICES_X=2\n")
    assert words(f"run --env-file {file} img", "1") == [RUNTIME, "-e", "NVIDIA_VISIBLE_DEVICES=1"]
    assert words(f"run --env-file {tmp_path} img", "1") == [RUNTIME, "-e", "NVIDIA_VISIBLE_DEVICES=1"]
    assert words("run --env-file /nowhere img", "1") == [RUNTIME, "-e", "NVIDIA_VISIBLE_DEVICES=1"]


def test_a_pipe_of_variables_is_left_to_docker(stand: Stand) -> None:
    """A shell's <(command) can be read once only."""
    reader, writer = os.pipe()
    os.write(writer, b"NVIDIA_VISIBLE_DEVICES=2\n")
    os.close(writer)
    docker = "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ $1 = --env-file ] && exec cat $2; shift; done\n"
    write_program(stand.folder / "bin" / "docker", docker)
    try:
        argv = [stand.wrapper, "run", "--env-file", f"/dev/fd/{reader}", "img"]
        env = {"PATH": f"{stand.folder}/bin:{PATH}"}
        done = subprocess.run(argv, env=env, pass_fds=[reader], capture_output=True, text=True, check=False)
    finally:
        os.close(reader)
    assert (done.stdout, done.returncode) == ("NVIDIA_VISIBLE_DEVICES=2\n", 0)
