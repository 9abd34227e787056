"""What a terminal shows after a program wrote to it, as an SVG picture."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

COLUMNS = 80
ADVANCE, LINE, SIZE = 8.4, 20, 14  # pixels: of a letter, of a line; and the font's size
PAD, BAR = 16, 36  # around the text; the title bar's height
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
# Contrast with the ground is 4.5 or more for each; the frame shows on white and on black.
GROUND, BAR_GROUND, FRAME = "#0d1117", "#21262d", "#6e7681"
TEXT, FAINT = "#e6edf3", "#9198a1"
COLOURS = {31: "#ff7b72", 32: "#3fb950", 33: "#d29922"}
LIGHTS = ("#ff5f57", "#febc2e", "#28c840")
SGR = re.compile(r"\x1b\[([0-9;]*)m")  # Select Graphic Rendition (ECMA-48)


@dataclass(frozen=True)
class Look:
    """How letters look."""

    fill: str = TEXT
    bold: bool = False

    def after(self, code: int) -> Look:
        """With one more SGR code. Raises ValueError for one that no command of ours writes."""
        if code == 0:
            return Look()
        if code in (1, 2):
            return replace(self, bold=True) if code == 1 else replace(self, fill=FAINT)
        if code in COLOURS:
            return replace(self, fill=COLOURS[code])
        raise ValueError(f"the SGR code {code} is not known here")


def picture(title: str, text: str) -> str:
    """The SVG of a terminal in which the command `title` wrote this. Raises ValueError for what cannot be drawn."""
    lines = text.rstrip("\n").split("\n")
    width, height = COLUMNS * ADVANCE + 2 * PAD, len(lines) * LINE + 2 * PAD + BAR
    plain = SGR.sub("", text)
    frame = f'width="{width - 1:g}" height="{height - 1}" rx="8" fill="{GROUND}" stroke="{FRAME}"'
    body = [line for number, spans in enumerate(_rows(lines)) for line in _row(number, spans)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}"',
            f'     height="{height}" role="img" aria-labelledby="title description">',
            f'  <title id="title">{escape(title)}</title>',
            f'  <desc id="description">{escape(plain.rstrip())}</desc>',
            f'  <rect x="0.5" y="0.5" {frame}/>',
            f'  <path d="M1 {BAR}V8q0-7 7-7h{width - 16:g}q7 0 7 7v{BAR - 8}z" fill="{BAR_GROUND}"/>',
            *(
                f'  <circle cx="{20 + 18 * at}" cy="{BAR // 2}" r="6" fill="{fill}"/>'
                for at, fill in enumerate(LIGHTS)
            ),
            f'  <g font-family="{FONTS}" font-size="{SIZE}" fill="{TEXT}" xml:space="preserve">',
            f'    <text x="{width / 2:g}" y="{BAR // 2 + 5}" text-anchor="middle">{escape(title)}</text>',
            *body,
            "  </g>",
            "</svg>",
            "",
        ]
    )


def _rows(lines: list[str]) -> Iterator[list[tuple[int, Look, str]]]:
    """For each line its spans: the column, the look, the letters. A look lasts over the lines' ends."""
    look = Look()
    for line in lines:
        spans, column = [], 0
        for number, part in enumerate(SGR.split(line)):
            if number % 2:
                for code in part.split(";"):
                    look = look.after(int(code or 0))
            elif part:
                _require_drawable(part)
                spans.append((column, look, part))
                column += len(part)
        if column > COLUMNS:
            raise ValueError(f"a line has {column} columns: {line!r}")
        yield spans


def _require_drawable(part: str) -> None:
    odd = [letter for letter in part if not letter.isprintable() or unicodedata.east_asian_width(letter) in "WF"]
    if odd:
        raise ValueError(f"{odd[0]!r} takes no single column: {part!r}")


def _row(number: int, spans: list[tuple[int, Look, str]]) -> Iterator[str]:
    """The words stand at their columns, whatever a font makes of a letter."""
    y = BAR + PAD + number * LINE + SIZE
    for column, look, text in spans:
        bold = ' font-weight="bold"' if look.bold else ""
        fill = f' fill="{look.fill}"' if look.fill != TEXT else ""
        for word in re.finditer(r"\S+(?: \S+)*", text):
            x, length = PAD + (column + word.start()) * ADVANCE, len(word[0]) * ADVANCE
            yield f'    <text x="{x:g}" y="{y}" textLength="{length:g}"{fill}{bold}>{escape(word[0])}</text>'
