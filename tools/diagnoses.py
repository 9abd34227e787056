"""Writes docs/diagnoses.md from the catalogue: `python -m tools.diagnoses`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuhook.catalogue import entries

PAGE = Path(__file__).resolve().parents[1] / "docs" / "diagnoses.md"


def lines() -> Iterator[str]:
    """The page."""
    yield "# What goes wrong with GPU containers"
    yield ""
    yield "Every message of gpuhook begins with a reference; `gpuhook why REFERENCE` prints its entry."
    yield "This page is made from `gpuhook/catalogue/entries.json` by `python -m tools.diagnoses`."
    yield "The number is in how many public reports the cause was seen."
    yield "Words in {braces} stand for what is found."
    yield ""
    yield "| reference | seen | severity | |"
    yield "|---|---|---|---|"
    for slug, entry in entries().items():
        yield f"| [{slug}](#{slug}) | {entry.seen or ''} | {entry.severity} | {entry.title} |"
    for slug, entry in entries().items():
        yield ""
        yield f"## {slug}"
        yield ""
        yield f"**{entry.title}** ({entry.severity})"
        yield ""
        yield f"What you see: {entry.symptom}"
        for title, texts in (("How to check", entry.check), ("What to do", entry.fix)):
            yield ""
            yield f"{title}:"
            yield ""
            yield from (f"- {text}" for text in texts)


def text() -> str:
    """The page as text."""
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
