"""JSON as a case holds it: the value that the reference reads, and what two readers could read differently."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
DEEPEST = 980  # levels; CPython's reader follows a thousand calls, ours among them
LONGEST_INTEGER = 4300  # digits; sys.int_info.default_max_str_digits


@dataclass(frozen=True)
class Document:
    """The bytes of the state or of config.json; None where there is no such file."""

    data: bytes | None

    @property
    def text(self) -> str:
        """The text, with a mark for every byte that is not UTF-8, as Go does it."""
        return (self.data or b"").decode("utf-8", "replace")

    @cached_property
    def value(self) -> Any:
        """The first value; None where there is none, or none that Python can read."""
        return self._first[0]

    @cached_property
    def _first(self) -> tuple[Any, int]:
        text = self.text.lstrip(" \t\r\n")
        if self.depth > DEEPEST:
            return None, 0
        try:
            return json.JSONDecoder(parse_constant=_refuse).raw_decode(text)
        except (ValueError, RecursionError):
            return None, 0

    @property
    def depth(self) -> int:
        """How deep arrays and objects are nested."""
        deepest = level = 0
        for mark in re.findall(r"[\[\]{}]", STRING.sub("", self.text)):
            level += 1 if mark in "[{" else -1
            deepest = max(deepest, level)
        return deepest

    @property
    def followed(self) -> bool:
        """Whether anything but blanks follows the first value."""
        text = self.text.lstrip(" \t\r\n")
        return bool(text[self._first[1] :].strip(" \t\r\n"))

    @property
    def is_utf8(self) -> bool:
        """Whether all bytes are UTF-8."""
        try:
            (self.data or b"").decode("utf-8")
        except UnicodeDecodeError:
            return False
        return True

    @property
    def names_a_key_twice(self) -> bool:
        """Whether an object has two members of one name, or of names that differ in case alone."""
        twice = False

        def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            nonlocal twice
            twice = twice or len({name for name, _ in pairs}) < len(pairs)
            return dict(pairs)

        if self.value is not None:
            json.JSONDecoder(object_pairs_hook=look).raw_decode(self.text.lstrip(" \t\r\n"))
        return twice

    @property
    def has_endless_integer(self) -> bool:
        """Whether it holds an integer of more digits than Python converts."""
        return bool(re.search(rf"\d{{{LONGEST_INTEGER + 1}}}", STRING.sub("", self.text)))


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON value")


def member(table: Any, name: str) -> Any:
    """A member of an object; None where the value is no object or has none."""
    return table.get(name) if isinstance(table, dict) else None


def other_spelling(table: Any, *names: str) -> bool:
    """Whether an object has a member whose name is one of these in other letters: Go takes it, others do not."""
    lowered = {name.casefold() for name in names}
    return isinstance(table, dict) and any(key not in names and key.casefold() in lowered for key in table)


def texts(value: Any) -> tuple[str, ...]:
    """The strings of a list; null is an empty one."""
    items = value if isinstance(value, list) else []
    return tuple("" if item is None else item for item in items if item is None or isinstance(item, str))
