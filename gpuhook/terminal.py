"""Marks and colours for people on a terminal: none where output goes elsewhere or NO_COLOR is set (no-color.org)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TextIO


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
