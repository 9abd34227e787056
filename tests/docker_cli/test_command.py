"""The wrapper as a command: which docker it becomes, what it prints, how it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook import __version__
from tests.docker_cli.stand import Stand
from tests.rig.process import PATH
from tests.shim.stand import write_program

RUN = ["run", "--runtime=nvidia"]


def test_it_becomes_docker(stand: Stand) -> None:
    """With its exit status and every word as it was; a relative folder of PATH is none."""
    stand.program("docker", 125)
    odd = ["", "a b", "*", "\n", '"', "$HOME", "ü"]
    result = stand.run("run", "img", *odd)
    assert (result.status, result.stdout, result.stderr, stand.argv) == (125, "", "", [*RUN, "img", *odd])


@pytest.mark.parametrize("words", [(), ("ps", "-a"), ("build", "-t", "run", "."), ("exec", "c", "run")])
def test_other_commands_are_untouched(stand: Stand, words: tuple[str, ...]) -> None:
    """NV_GPU or not, and however it is written."""
    for gpus in ("0", "--bad"):
        result = stand.run(*words, env={"NV_GPU": gpus})
        assert (result.status, result.stderr, stand.argv) == (0, "", list(words))


@pytest.mark.attack
def test_no_docker_of_the_current_folder_is_run(stand: Stand, tmp_path: Path) -> None:
    """Neither by an empty folder in PATH nor by a dot (AC-81)."""
    here = tmp_path / "here"
    here.mkdir()
    write_program(here / "docker", f"#!/bin/sh\ntouch {tmp_path}/marker\n")
    result = stand.run("run", "img", cwd=str(here), env={"PATH": f":.:here:{stand.folder}/bin"})
    assert (result.status, stand.argv) == (0, [*RUN, "img"])
    assert not (tmp_path / "marker").exists()


@pytest.mark.attack
@pytest.mark.parametrize("gpus", ["0 --privileged", "0\n-v/:/h"])
def test_a_list_with_options_in_it_fails(stand: Stand, gpus: str) -> None:
    """Docker is not called at all (AC-81)."""
    result = stand.run("run", "img", env={"NV_GPU": gpus})
    assert (result.status, stand.argv) == (1, None)
    assert result.stderr.startswith("gpuhook: unknown-device: NV_GPU holds '-")


@pytest.mark.attack
def test_an_image_that_looks_like_an_option_is_dockers_business(stand: Stand) -> None:
    """Nothing is moved behind or before it (AC-81)."""
    stand.run("run", "--", "--privileged", env={"NV_GPU": "0"})
    assert stand.argv == [*RUN, "-e", "NVIDIA_VISIBLE_DEVICES=0", "--", "--privileged"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", []),
        ("{docker}", []),
        ("  {docker}\t-D \n", ["-D"]),
        ("{docker} --host tcp://h", ["--host", "tcp://h"]),
        ("{docker} -l 'a b' \\*", ["-l", "a b", "*"]),
        ("{docker} $HOME * ~ ;x", ["$HOME", "*", "~", ";x"]),
    ],
)
def test_nv_docker_is_a_command(stand: Stand, value: str, words: list[str]) -> None:
    """Split as a shell reads words, and nothing else that a shell does."""
    stand.run("run", "img", env={"NV_DOCKER": value.format(docker=stand.docker)})
    assert stand.argv == [*words, *RUN, "img"]


def test_a_path_with_blanks_is_one_word(stand: Stand) -> None:
    """If there is such a file."""
    os.rename(stand.docker, stand.folder / "my docker")
    stand.run("run", "img", env={"NV_DOCKER": f"{stand.folder}/my docker"})
    assert stand.argv == [*RUN, "img"]


def test_another_name_is_looked_up(stand: Stand) -> None:
    """Podman speaks the same language."""
    stand.program("podman")
    os.unlink(stand.docker)
    stand.run("run", "img", env={"NV_DOCKER": "podman"})
    assert stand.argv == [*RUN, "img"]


@pytest.mark.parametrize(
    ("value", "status", "says"),
    [
        ("/nowhere/docker", 127, "/nowhere/docker was not found"),
        ("no-such-docker", 127, "no-such-docker was not found"),
        ("  ", 127, "NV_DOCKER holds nothing but blanks"),
        ("/etc", 126, "/etc is not executable"),
        ("/etc/passwd", 126, "/etc/passwd is not executable"),
        ("{folder}/broken", 126, "broken cannot be started: No such file or directory"),
        ("docker 'x", 2, 'NV_DOCKER is "docker \'x": No closing quotation'),
    ],
)
def test_a_docker_that_cannot_be_run(stand: Stand, value: str, status: int, says: str) -> None:
    """The status is a shell's, the message says what was looked for."""
    write_program(stand.folder / "broken", "#!/no/such/interpreter\n")
    result = stand.run("run", "img", env={"NV_DOCKER": value.format(folder=stand.folder)})
    assert (result.status, stand.argv) == (status, None)
    assert says in result.stderr
    assert result.stderr.startswith("gpuhook: ")
    assert "Traceback" not in result.stderr


def test_it_is_never_itself(stand: Stand) -> None:
    """A link under docker's name would be called for ever."""
    (stand.folder / "first").mkdir()
    os.symlink(stand.wrapper, stand.folder / "first" / "docker")
    result = stand.run("run", "img", env={"PATH": f"{stand.folder}/first:{stand.folder}/bin"})
    assert (result.status, stand.argv) == (0, [*RUN, "img"])
    assert stand.run("ps", env={"PATH": f"{stand.folder}/first"}).status == 127


def test_without_a_path_the_usual_folders_count(stand: Stand) -> None:
    """As a shell does it."""
    assert "PATH=" in stand.run("ps", env={"PATH": None, "NV_DOCKER": "no-such-docker"}).stderr
    assert stand.run("-c", "exit 5", env={"PATH": None, "NV_DOCKER": "sh"}).status == 5


def test_the_version_has_a_line_of_ours(stand: Stand) -> None:
    """Only where nobody reads the answer with a program."""
    assert stand.run("version").stdout == f"NVIDIA Docker: {__version__}\n"
    for words in (("version", "--format", "{{json .}}"), ("version", "-f", "x"), ("--version",), ("logs", "version")):
        assert stand.run(*words).stdout == ""
        assert stand.argv == list(words)


@pytest.mark.parametrize("value", ["1", "a b", " ", "1 -a 1"])
def test_debugging_shows_the_command(stand: Stand, value: str) -> None:
    """Quoted so that it can be pasted."""
    result = stand.run("run", "-e", "A=b c", "img", env={"NV_DEBUG": value, "NV_GPU": "0"})
    assert result.stderr == "+ exec docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=0 -e 'A=b c' img\n"
    assert stand.run("ps", env={"NV_DEBUG": ""}).stderr == ""


def test_warnings_are_one_line_each(stand: Stand) -> None:
    """With the slug under which they are explained."""
    result = stand.run("run", "--privileged", "--runtime", "runc", "img", env={"NV_GPU": "1"})
    assert [line.split(": ")[:3] for line in result.stderr.splitlines()] == [
        ["gpuhook", "warning", "runtime-not-registered"],
        ["gpuhook", "warning", "privileged-sees-all"],
    ]
    assert result.status == 0


def test_the_environment_is_handed_on(stand: Stand) -> None:
    """Docker has variables of its own."""
    stand.run("ps", env={"DOCKER_HOST": "tcp://h", "NV_GPU": "0"})
    environ = (stand.folder / "environ").read_bytes().split(b"\0")
    assert b"DOCKER_HOST=tcp://h" in environ
    assert f"PATH={stand.folder}/bin:{PATH}".encode() in environ
