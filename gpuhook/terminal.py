"""Output for people: marks, colours and wrapped lines. No colour where output goes elsewhere or NO_COLOR is set."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TextIO

from gpuhook.errors import escaped

ASCII = {"…": "...", "→": "->", "–": "-", "•": "--", "✓": "ok", "✗": "X"}
NARROWEST = 60  # columns
LONGEST = 4000  # characters of a text
Mark = Literal["good", "plain", "warn", "bad"]


def lenient(stream: TextIO | None) -> None:
    """Let a stream say in ASCII what its encoding does not have, where it would fail (a locale that is not UTF-8)."""
    codecs.register_error("gpuhook", _in_ascii)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="gpuhook")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(ASCII.get(letter, ascii(letter)[1:-1]) for letter in text), error.end


def shown(text: str) -> str:
    """A text in which nothing is left that could forge a line or steer a terminal; images' authors choose some."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text)} characters)"
    return escaped(text)


def columns(usual: int, most: int) -> int:
    """The width of standard output (COLUMNS counts first), within limits. usual: where nobody says."""
    return max(NARROWEST, min(most, shutil.get_terminal_size((usual, 24)).columns))


def columns_of_list() -> int:
    """The width for a list of which programs may want a line an entry: without limit where it goes elsewhere."""
    return columns(80, 110) if sys.stdout.isatty() else sys.maxsize


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> Iterator[str]:
    """A text in lines of this width that begin with `first` and `rest`; a longer word stays whole, to be copied."""
    yield from textwrap.wrap(
        shown(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


@dataclass(frozen=True)
class Style:
    """How findings are marked. color: whether escape sequences are used; unicode: whether the marks are ✓ and ✗."""

    color: bool = False
    unicode: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """What suits this stream."""
        color = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        encoding = (getattr(stream, "encoding", "") or "").lower().replace("-", "")
        return cls(color=color, unicode=encoding == "utf8")

    def paint(self, code: str, text: str) -> str:
        """The text in a colour or weight of SGR (ECMA-48)."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.color else text

    def bold(self, text: str) -> str:
        """A title."""
        return self.paint("1", text)

    def faint(self, text: str) -> str:
        """What may be passed over."""
        return self.paint("2", text)

    def good(self) -> str:
        """The mark of what is right."""
        return self.paint("32", "✓" if self.unicode else "ok")

    def plain(self) -> str:
        """The mark of what is neither right nor wrong."""
        return self.paint("2", "•" if self.unicode else "--")

    def warn(self) -> str:
        """The mark of a warning."""
        return self.paint("33", "!")

    def bad(self) -> str:
        """The mark of what is wrong."""
        return self.paint("31", "✗" if self.unicode else "X")

    def arrow(self) -> str:
        """What advice begins with."""
        return "→" if self.unicode else "->"

    def item(self, mark: Mark, title: str, text: str, width: int) -> Iterator[str]:
        """A mark, a title in bold and a text, in lines of this width: colours take no room."""
        bare = Style(unicode=self.unicode)
        title = shown(title)
        head = f"{getattr(bare, mark)()} {title}"
        lines = list(wrapped(f"{title}{text}", width, f"{getattr(bare, mark)()} ", "    "))
        if lines[0].startswith(head):
            lines[0] = f"{getattr(self, mark)()} {self.bold(title)}{lines[0][len(head) :]}"
        yield from lines

    def advice(self, text: str, width: int) -> Iterator[str]:
        """What to do, below an item."""
        yield from wrapped(f"{self.arrow()} {text}", width, "  ", "    ")
