"""The commands of `gpuhook` beside the hook's stages: rows of text; only the chosen one is imported."""

from __future__ import annotations

import sys

from gpuhook.errors import GpuhookError, Usage

COMMANDS = {
    "explain": ("gpuhook.explain.command", "why a container gets its GPUs, or does not"),
    "doctor": ("gpuhook.doctor.command", "check this node, one line a finding, and say what to do"),
    "ps": ("gpuhook.ps.command", "which container and which process uses, or may use, which GPU"),
    "why": ("gpuhook.catalogue.why", "what the reference of a message means, and what to do"),
    "install": ("gpuhook.install.add", "register gpuhook with Docker, containerd, Podman or CRI-O"),
    "uninstall": ("gpuhook.install.remove", "put back what stood there before"),
    "status": ("gpuhook.install.show", "what is registered where, and by whom"),
    "launchers": ("gpuhook.launchers", "write the lean launchers that engines should call into a folder"),
    "completion": ("gpuhook.completion.command", "print what makes bash, zsh or fish complete our command lines"),
}
STAGES = {
    "prestart": "configure the container: devices, driver libraries and programs",
    "createRuntime": "the same",
    "poststart": "nothing",
    "poststop": "nothing",
}
OPTIONS = {
    "--config FILE": "read this configuration instead of /etc/nvidia-container-runtime/config.toml",
    "--debug": "say what is decided, on stderr",
    "--version": "print the version",
    "--help": "print this text",
}

HELP = """\
gpuhook gives a container its NVIDIA GPUs.

usage: gpuhook [--config FILE] [--debug] STAGE     as a hook, with the container's state on stdin
       gpuhook COMMAND [...]

stages
{stages}

commands
{commands}

options
{options}

Options may stand before or after the stage, with one dash or two, as -x VALUE or -x=VALUE.
A message's first word after "gpuhook:" names its cause.
"""


def help_text() -> str:
    """What `gpuhook --help` prints."""
    tables = {"stages": STAGES, "commands": {name: about for name, (_, about) in COMMANDS.items()}, "options": OPTIONS}
    rows = {title: [f"  {name:<18} {text}" for name, text in table.items()] for title, table in tables.items()}
    return HELP.format(**{title: "\n".join(lines) for title, lines in rows.items()})


def dispatch(options: dict[str, str], words: list[str]) -> int:
    """Run what is no stage of the hook: a command, or the help. Raises GpuhookError."""
    if sys.stdout is None:  # closed by whoever started us
        raise GpuhookError("there is no stdout to write to", where="stdout")
    from gpuhook.terminal import lenient

    lenient(sys.stdout)
    try:
        return _run(options, words)
    except BrokenPipeError:  # whoever read has seen enough
        sys.stdout = None  # nothing is left to be flushed
        return 1
    except OSError as error:
        sys.stdout = None
        raise GpuhookError(f"cannot go on: {error.strerror}", where=str(error.filename or "stdout")) from error


def _run(options: dict[str, str], words: list[str]) -> int:
    if options.get("help") == "true":
        sys.stdout.write(help_text())
        return 0
    if not words:
        sys.stderr.write(help_text())
        raise Usage("no stage and no command was given", hint="a runtime calls: gpuhook prestart")
    name = words[0]
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, [*COMMANDS, *STAGES], 1)
        raise Usage(f"unknown command {name!r}", hint=f"did you mean {near[0]}?" if near else "gpuhook --help")
    from importlib import import_module

    module = import_module(COMMANDS[name][0])
    run: int = module.main(words[1:])
    sys.stdout.flush()
    return run


def main(argv: list[str] | None = None) -> int:
    """The console script: everything starts in the hook, whose path is the hot one."""
    from gpuhook.hook import main as hook

    return hook(argv)
