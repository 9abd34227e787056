"""What a program did with a case: the one type for what was recorded, what a rule predicts and what was seen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """The end of a run, with placeholders in place of the case's own paths.

    exit: its status, None where it did not end in time; argv: of the program it turned into, None where it turned into
    none; env: variables which that program saw with another value than the hook got, None for one that is gone;
    spec: the config.json left behind, or "unchanged".
    """

    exit: int | None
    argv: tuple[str, ...] | None = None
    env: Mapping[str, str | None] | None = None
    spec: Any = "unchanged"
    stdout: str = ""
    stderr: str = field(default="", compare=False)

    @property
    def fails(self) -> bool:
        """Whether the program itself fails, as opposed to the one that it hands over to."""
        return self.exit != 0 and self.argv is None

    def with_argv(self, argv: list[str]) -> Outcome:
        """The same with other arguments."""
        return replace(self, argv=tuple(argv))

    def with_value(self, option: str, value: str) -> Outcome:
        """The same with another value of an option that is there; unchanged where nothing was handed over."""
        if self.argv is None:
            return self
        return self.with_argv([f"{option}={value}" if word.startswith(f"{option}=") else word for word in self.argv])

    def without(self, pattern: str) -> Outcome:
        """The same without the arguments that match the whole pattern; unchanged where nothing was handed over."""
        if self.argv is None:
            return self
        return self.with_argv([word for word in self.argv if not re.fullmatch(pattern, word)])

    def with_env(self, changes: Mapping[str, str | None]) -> Outcome:
        """The same with more changes of the environment; unchanged where nothing was handed over."""
        return self if self.argv is None else replace(self, env={**(self.env or {}), **changes})


REFUSED = Outcome(1)
LEFT_ALONE = Outcome(0)


def recorded(expect: Mapping[str, Any]) -> Outcome:
    """The outcome that a vector's member `expect` describes."""
    return Outcome(
        exit=expect["exit"],
        argv=tuple(expect["argv"]) if expect.get("exec") else None,
        env=expect.get("extra_env") if expect.get("exec") else None,
        spec=expect.get("config_json", "unchanged"),
        stdout=expect.get("stdout", ""),
        stderr=expect.get("stderr", ""),
    )
