"""The words of TOML 1.0 (toml.io/en/v1.0.0, the terminals of its grammar), and a cursor that goes over a text."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
BLANK = re.compile(r"[ \t]*")
REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
BETWEEN = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
BARE = re.compile(r"[A-Za-z0-9_-]+")

_ESCAPE = r'\\(?:[btnfr"\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})'
STRINGS = (
    ('"""', re.compile(rf'"""\n?((?:[^"\\]|{_ESCAPE}|\\[ \t]*\n|"{{1,2}}(?!"))*(?:"{{1,2}}(?="""))?)"""')),
    ("'''", re.compile(r"'''\n?((?:[^']|'{1,2}(?!'))*(?:'{1,2}(?='''))?)'''")),
    ('"', re.compile(rf'"((?:[^"\\\n]|{_ESCAPE})*)"')),
    ("'", re.compile(r"'([^'\n]*)'")),
)
_ONE_ESCAPE = re.compile(rf"{_ESCAPE}|\\[ \t]*\n[ \t\n]*")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}

_DIGITS = r"[0-9](?:_?[0-9])*"
_WHOLE = r"(?:0|[1-9](?:_?[0-9])*)"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
SCALAR = re.compile(r"[^\s,\]}#]+(?: [0-9]{2}:[^\s,\]}#]+)?")
INTEGER = re.compile(
    rf"[+-]?{_WHOLE}|0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*",
)
FLOAT = re.compile(
    rf"[+-]?(?:inf|nan|{_WHOLE}(?:\.{_DIGITS}(?:[eE][+-]?{_DIGITS})?|[eE][+-]?{_DIGITS}))",
)
DATE = re.compile(
    rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[Tt ]{_TIME}(?:[Zz]|[+-][0-9]{{2}}:[0-9]{{2}})?)?|{_TIME}",
)


class NotToml(ValueError):
    """The text is no TOML; says why and carries the line, counted from 1."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


class Cursor:
    """A place in a text that moves forward as words are taken."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._line, self._counted = 1, 0

    def line(self, at: int) -> int:
        """The line, from 1, of a place not before the last one that was asked for; else counted from the start."""
        if at < self._counted:
            return self.text.count("\n", 0, at) + 1
        self._line += self.text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def fault(self, why: str, at: int | None = None) -> NotToml:
        """The error to raise for something at a place, by default this one."""
        return NotToml(why, self.line(self.at if at is None else at))

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Moves behind the pattern where it matches here."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def eat(self, word: str) -> bool:
        """Moves behind the word and says whether it stood here."""
        found = self.text.startswith(word, self.at)
        if found:
            self.at += len(word)
        return found

    def ahead(self) -> str:
        """What comes next on the line, for a message."""
        rest = self.text[self.at : self.at + 24].split("\n", 1)[0]
        return repr(rest) if rest else "the end of the line"

    def string(self) -> str:
        """Takes a string of any of the four kinds; what it means."""
        mark, pattern = next(kind for kind in STRINGS if self.text.startswith(kind[0], self.at))
        found = self.take(pattern)
        if not found:
            raise self.fault(f"the text that begins with {mark} has no end, or an escape in it is unknown")
        try:
            return _meaning(found[1]) if mark[0] == '"' else found[1]
        except ValueError:
            raise self.fault("an escape names no Unicode character", found.start()) from None


def _meaning(text: str) -> str:
    meaning = _ONE_ESCAPE.sub(_character, text)
    meaning.encode()  # a lone surrogate cannot be
    return meaning


def _character(found: re.Match[str]) -> str:
    escape = found[0]
    if escape[1] not in "uU":
        return _ESCAPED.get(escape[1], "")  # the rest are ends of lines, which vanish with what indents the next
    code = int(escape[2:], 16)
    if code > 0x10FFFF:
        raise ValueError("no such character")
    return chr(code)
