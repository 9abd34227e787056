"""The pictures of the README are what the commands print."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tools.pictures import FOLDER, PROJECT, SHOTS, drawn
from tools.terminal_svg import COLUMNS, FAINT, GROUND, TEXT, Look, picture


@pytest.mark.parametrize("name", sorted(SHOTS))
def test_a_picture_is_what_the_command_prints(name: str) -> None:
    """Stale ones are made anew by `python -m tools.pictures`."""
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn(name)


def test_every_picture_is_shown() -> None:
    """In the README, with words for those who cannot see it; none lies about unused."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in FOLDER.iterdir()} == set(SHOTS)
    for name in SHOTS:
        before, _, _ = text.partition(f"](docs/pictures/{name}.svg)")
        assert before != text
        assert len(before.rpartition("![")[2]) > 20


@pytest.mark.parametrize("name", sorted(SHOTS))
def test_a_picture_is_sound(name: str) -> None:
    """It is XML, and names no scratch folder."""
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "/tmp" not in text
    assert str(PROJECT) not in text


def test_looks_and_places() -> None:
    """Colours and weights are those of the sequences; each run of words begins at its column."""
    drawing = picture("t", "\x1b[31m✗\x1b[0m \x1b[1ma  <b>\x1b[0m\n\x1b[2mdim\x1b[0m\n")
    texts = [
        (item.text, item.get("x"), item.get("fill") or TEXT, item.get("font-weight"))
        for item in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert texts[1:] == [
        ("✗", "16", "#ff7b72", None),
        ("a", "32.8", TEXT, "bold"),
        ("<b>", "58", TEXT, "bold"),
        ("dim", "16", FAINT, None),
    ]


@pytest.mark.parametrize("text", ["x" * (COLUMNS + 1), "\x1b[2K", "a\tb", "\x1b[35mx", "漢"])
def test_what_cannot_be_drawn_is_refused(text: str) -> None:
    """A line that is too long, a sequence or a letter of another kind: nothing is left out in silence."""
    with pytest.raises(ValueError, match=r"columns|single column|is not known"):
        picture("t", text)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_can_be_read() -> None:
    """4.5 and more on the ground."""
    for code in (0, 2, 31, 32, 33):
        assert contrast(Look().after(code).fill, GROUND) >= 4.5
