"""What can stand on our command lines, as data: the shells' scripts are made from it, and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["file", "folder", "word"]


@dataclass(frozen=True)
class Value:
    """What follows an option, or stands by itself.

    label: what help calls it; kind: what the shell may offer besides the words; words: those it may be, if they are
    known; optional: an option's value may be left out.
    """

    label: str
    kind: Kind = "word"
    words: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Option:
    """names: with their dashes, the long one last; value: None for a switch; repeated: it may be given again."""

    names: tuple[str, ...]
    about: str
    value: Value | None = None
    repeated: bool = False


@dataclass(frozen=True)
class Command:
    """A word that a program's line begins with, and what may follow. argument: what words that are no options are."""

    name: str
    about: str
    options: tuple[Option, ...] = ()
    argument: Value | None = None


@dataclass(frozen=True)
class Program:
    """A program. options: those that stand before a command."""

    name: str
    options: tuple[Option, ...]
    commands: tuple[Command, ...]

    @property
    def function(self) -> str:
        """Its name where only letters, digits and underscores may stand."""
        return self.name.replace("-", "_")


def flags(options: tuple[Option, ...]) -> tuple[str, ...]:
    """All names of these options."""
    return tuple(name for option in options for name in option.names)


def with_value(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """The options that take the next word."""
    return tuple(option for option in options if option.value and not option.value.optional)
