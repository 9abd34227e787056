"""`gpuhook why SLUG`: what the first word of a message means, how to check it, and what to do."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches

from gpuhook.catalogue import entries
from gpuhook.catalogue.model import Entry
from gpuhook.errors import Usage
from gpuhook.terminal import Style, columns, columns_of_list, wrapped

PLACE = re.compile(r"\{[a-z]")
FILLED = "Words in {braces} stand for what is found on a node; `gpuhook doctor` and `gpuhook explain` fill them in."


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(prog="gpuhook why", description=__doc__)
    made.add_argument("slug", nargs="?", help="the reference of a message, such as driver-lib-mismatch")
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def main(argv: list[str]) -> int:
    """Run the command. Raises Usage."""
    given = parser().parse_args(argv)
    if given.json:
        found: object = [one.model_dump() for one in entries().values()]
        if given.slug is not None:
            found = find(given.slug).model_dump()
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return 0
    if given.slug is None:
        lines = listed(columns_of_list())
    else:
        lines = page(find(given.slug), Style.of(sys.stdout), columns(80, 100))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def find(slug: str) -> Entry:
    """The entry of this slug, which may be copied with its colon. Raises Usage with the nearest one."""
    known, slug = entries(), slug.strip().strip(":").lower()
    if slug in known:
        return known[slug]
    near = get_close_matches(slug, known, 1)
    raise Usage(f"no entry {slug!r}", hint=f"did you mean {near[0]}?" if near else "gpuhook why lists all")


def listed(width: int) -> Iterator[str]:
    """All entries, a line each or more where the title is long."""
    left = max(map(len, entries())) + 2
    for slug, entry in entries().items():
        yield from wrapped(entry.title, width, f"{slug:<{left}}", " " * left)


def page(entry: Entry, style: Style, width: int) -> Iterator[str]:
    """The entry as lines of text."""
    title, *rest = wrapped(f"{entry.slug}  {entry.title} ({entry.severity})", width, "", "  ")
    yield style.bold(entry.slug) + title.removeprefix(entry.slug)
    yield from rest
    sections = (("what you see", (entry.symptom,)), ("how to check", entry.check), ("what to do", entry.fix))
    for name, texts in sections:
        yield ""
        yield style.bold(name)
        for text in texts:
            yield from wrapped(text, width, "  - ", "    ")
    if any(PLACE.search(text) for _, texts in sections for text in texts):
        yield ""
        yield from (style.faint(line) for line in wrapped(FILLED, width))
