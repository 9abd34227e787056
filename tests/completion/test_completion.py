"""The shells themselves complete our command lines, and nothing that a command takes is missing."""

from __future__ import annotations

import argparse
import os
import pty
import select
import subprocess
import time
from importlib import import_module
from pathlib import Path

import pytest

from gpuhook.catalogue import entries
from gpuhook.cli import COMMANDS, OPTIONS, STAGES
from gpuhook.completion.collect import programs
from gpuhook.completion.command import SCRIPTS
from gpuhook.engine_cli.options import COMMANDS as ENGINE_COMMANDS
from gpuhook.engine_cli.options import TOP
from gpuhook.hook import STAGES as HOOK_STAGES
from gpuhook.hook import SWITCHES, main

ASK_BASH = """\
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
"_${1//-/_}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Command lines up to the cursor, and what may stand there; bash gets "=" as a word of its own.
LINES = [
    (["gpuhook", "doc"], ["doctor"]),
    (["gpuhook", "create"], ["createRuntime"]),
    (["gpuhook", "--conf"], ["--config"]),
    (["gpuhook", "--config", "/x", "--debug", "expl"], ["explain"]),
    (["gpuhook", "--config", "=", "/x", "expl"], ["explain"]),
    (["gpuhook", "doctor", "--mark"], ["--markdown"]),
    (["gpuhook", "why", "driver-lib-m"], ["driver-lib-mismatch"]),
    (["gpuhook", "doctor", "--only", "driver-lib-m"], ["driver-lib-mismatch"]),
    (["gpuhook", "install", "doc"], ["docker"]),
    (["gpuhook", "install", "--via", ""], ["hook", "runtime"]),
    (["gpuhook", "completion", "f"], ["fish"]),
    (["gpuhook", "prestart", ""], []),
    (["gpuhook", "explain", "--docker", ""], []),
    (["gpuhook-cli", "conf"], ["configure"]),
    (["gpuhook-cli", "-d", "/x", "inf"], ["info"]),
    (["gpuhook-cli", "list", "--cuda-compat-mode", "d"], ["disabled"]),
]


@pytest.fixture(params=sorted(SCRIPTS))
def shell(request: pytest.FixtureRequest) -> str:
    """Each shell in turn."""
    name: str = request.param
    return name


def script(shell: str, folder: Path) -> Path:
    """The script, as a file."""
    file = folder / "script"
    file.write_text(SCRIPTS[shell](programs()))
    return file


def test_the_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuhook completion SHELL`, the same each time."""
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell](programs())


def test_the_shell_can_read_it(shell: str, tmp_path: Path) -> None:
    """Without a word."""
    check = "--no-execute" if shell == "fish" else "-n"
    done = subprocess.run([shell, check, str(script(shell, tmp_path))], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("line", "offered"), LINES, ids=[" ".join(line) for line, _ in LINES])
def test_bash_completes(line: list[str], offered: list[str], tmp_path: Path) -> None:
    """With the function that the script registers."""
    argv = ["bash", "--norc", "-c", ASK_BASH, "bash", str(script("bash", tmp_path)), *line]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.split()) == ("", offered)


@pytest.mark.parametrize(("line", "offered"), LINES, ids=[" ".join(line) for line, _ in LINES])
def test_fish_completes(line: list[str], offered: list[str], tmp_path: Path) -> None:
    """It is asked itself; files are offered only where there can be one."""
    text = " ".join(line).replace(" = ", "=")
    command = f"source {script('fish', tmp_path)}; complete --do-complete '{text}'"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        ["fish", "--no-config", "--command", command],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    assert sorted(line.split("\t")[0] for line in done.stdout.splitlines()) == sorted(offered)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("gpuhook doc", "gpuhook doctor "),
        ("gpuhook why driver-lib-m", "gpuhook why driver-lib-mismatch "),
        ("gpuhook doctor --only driver-lib-m", "gpuhook doctor --only driver-lib-mismatch "),
        ("gpuhook --config /x expl", "gpuhook --config /x explain "),
        ("gpuhook ps --sch", "gpuhook ps --schema "),
        ("gpuhook-cli list --cuda-compat-mode=d", "gpuhook-cli list --cuda-compat-mode=disabled "),
        ("gpuhook-cli conf", "gpuhook-cli configure "),
    ],
)
@pytest.mark.parametrize("way", ["source", "fpath"])
def test_zsh_completes(way: str, typed: str, shown: str, tmp_path: Path) -> None:
    """On a terminal, with the tabulator: after `source`, and from a folder of fpath."""
    file = script("zsh", tmp_path)
    file.rename(tmp_path / "_gpuhook")
    loaded = {
        "source": f"autoload -Uz compinit; compinit -u -D; source {tmp_path}/_gpuhook",
        "fpath": f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D",
    }
    said = on_a_terminal(loaded[way], typed, shown, tmp_path)
    assert shown in said


def on_a_terminal(setup: str, typed: str, wanted: str, home: Path) -> str:
    """What zsh's line shows after the tabulator; waits until the wanted text is there, 20 seconds at most."""
    (home / ".zshrc").write_text(f"{setup}\nPS1=READY; unsetopt zle_bracketed_paste prompt_sp\n")
    terminal, end = pty.openpty()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb", "COLUMNS": "200"}
    try:
        with subprocess.Popen(
            ["zsh", "-i", "-d"], stdin=end, stdout=end, stderr=end, env=env, start_new_session=True
        ) as zsh:
            try:
                _until(terminal, "READY")
                os.write(terminal, f"{typed}\t".encode())
                return _until(terminal, wanted)
            finally:
                zsh.kill()
    finally:
        os.close(end)
        os.close(terminal)


def _until(terminal: int, wanted: str) -> str:
    said, end = "", time.monotonic() + 20
    while wanted not in said and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            said += os.read(terminal, 4096).decode(errors="replace")
    return said


def test_what_is_completed_is_what_the_commands_take(shell: str) -> None:
    """Every option that a command's help lists stands in the script, in the form of that shell."""
    text = SCRIPTS[shell](programs())
    parsers: list[argparse.ArgumentParser] = [import_module(module).parser() for module, _ in COMMANDS.values()]
    listed = {word.strip(",=[]") for parser in parsers for word in parser.format_help().split() if "--" in word[:2]}
    listed |= {f"--{option.name}" for command in (TOP, *ENGINE_COMMANDS.values()) for option in command.options}
    for name in {name for name in listed if name.strip("-")}:
        assert (f"--long-option {name[2:]}" if shell == "fish" else name) in text


def test_hidden_options_stay_hidden(shell: str) -> None:
    """What help does not list is offered by no shell."""
    [gpuhook, _] = programs()
    [doctor] = [command for command in gpuhook.commands if command.name == "doctor"]
    assert "--root" not in [name for option in doctor.options for name in option.names]


def test_the_help_lists_what_the_hook_reads() -> None:
    """The tables that help and completion are made from are those of the hook's own reader."""
    assert {name.split()[0].removeprefix("--") for name in OPTIONS} == {"config", *SWITCHES} - {"h"}
    assert set(STAGES) == set(HOOK_STAGES) - {"createContainer"}


def test_every_reference_is_offered() -> None:
    """`gpuhook why` knows them all."""
    [gpuhook, _] = programs()
    [why] = [command for command in gpuhook.commands if command.name == "why"]
    assert why.argument is not None
    assert set(why.argument.words) == set(entries())
