"""Reads what can be completed out of the tables and parsers by which the programs read their command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from importlib import import_module

from gpuhook.catalogue import entries
from gpuhook.cli import COMMANDS, OPTIONS, STAGES
from gpuhook.completion.model import Command, Kind, Option, Program, Value
from gpuhook.doctor import contained
from gpuhook.doctor.command import slugs
from gpuhook.engine_cli import options as engine
from gpuhook.engine_cli.parser import OWN
from gpuhook.engine_cli.parser import Option as EngineOption
from gpuhook.install.engines import ENGINES

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("FILE", "PATH", "PROGRAM"), "file"),
    **dict.fromkeys(("DIR", "FOLDER", "BUNDLE", "ROOTFS"), "folder"),
}
# What the values of this name are, in these commands.
WORDS: dict[tuple[str, str], Callable[[], tuple[str, ...]]] = {
    ("why", "SLUG"): lambda: tuple(entries()),
    ("doctor", "SLUG"): lambda: tuple(dict.fromkeys((*slugs(), *contained.slugs()))),
    **dict.fromkeys([(name, "ENGINE") for name in ("install", "uninstall", "status")], lambda: tuple(ENGINES)),
    **dict.fromkeys([(name, "MODE") for name in ("list", "configure")], lambda: engine.MODES),
}


def programs() -> tuple[Program, ...]:
    """Our programs with a command line for people."""
    return gpuhook(), gpuhook_cli()


def gpuhook() -> Program:
    """`gpuhook`, from gpuhook/cli.py and the parser of each command."""
    stages = [Command(name, about) for name, about in STAGES.items()]
    commands = [_parsed(name, about, module) for name, (module, about) in COMMANDS.items()]
    options = [_plain(form, about) for form, about in OPTIONS.items()]
    return Program("gpuhook", tuple(options), (*commands, *stages))


def _plain(form: str, about: str) -> Option:
    name, _, label = form.partition(" ")
    return Option((name,), about, _value("", label) if label else None)


def _parsed(name: str, about: str, module: str) -> Command:
    parser: argparse.ArgumentParser = import_module(module).parser()
    actions = [action for action in _actions(parser) if action.help != argparse.SUPPRESS]
    arguments = [action for action in actions if not action.option_strings]
    options = [_option(name, action) for action in actions if action.option_strings]
    return Command(name, about, tuple(options), _value_of(name, arguments[0]) if arguments else None)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    yield from parser._actions  # noqa: SLF001  # argparse has no other way to list them


def _option(command: str, action: argparse.Action) -> Option:
    names = tuple(sorted(action.option_strings, key=len))
    repeated = type(action).__name__ == "_AppendAction"
    return Option(names, action.help or "", None if action.nargs == 0 else _value_of(command, action), repeated)


def _value_of(command: str, action: argparse.Action) -> Value:
    label = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    optional = bool(action.option_strings) and action.nargs == "?"
    return _value(command, label, tuple(map(str, action.choices or ())), optional=optional)


def _value(command: str, label: str, words: tuple[str, ...] = (), *, optional: bool = False) -> Value:
    known = WORDS.get((command, label))
    return Value(label, KINDS.get(label, "word"), words or (known() if known else ()), optional)


def gpuhook_cli() -> Program:
    """`gpuhook-cli`, from its tables; ROOTFS is the argument of the command that has it in its form."""
    own = tuple(_of_engine("", option) for option in OWN)
    commands = [
        Command(
            name,
            command.about,
            (*(_of_engine(name, option) for option in command.options), *own),
            _value(name, "ROOTFS") if "ROOTFS" in command.forms[0] else None,
        )
        for name, command in engine.COMMANDS.items()
    ]
    return Program("gpuhook-cli", (*(_of_engine("", one) for one in engine.TOP.options), *own), tuple(commands))


def _of_engine(command: str, option: EngineOption) -> Option:
    names = (*([f"-{option.letter}"] if option.letter.isalpha() else []), f"--{option.name}")
    value = _value(command, option.value, optional=option.optional) if option.value else None
    return Option(names, option.help, value)
