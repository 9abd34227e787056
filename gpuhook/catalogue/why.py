"""`gpuhook why SLUG`: what the first word of a message means, how to check it, and what to do."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator
from difflib import get_close_matches

from gpuhook.catalogue import entries
from gpuhook.catalogue.model import Entry
from gpuhook.errors import Usage
from gpuhook.terminal import Style


def main(argv: list[str]) -> int:
    """Run the command. Raises Usage."""
    parser = argparse.ArgumentParser(prog="gpuhook why", description=__doc__)
    parser.add_argument("slug", nargs="?", help="the reference of a message, such as driver-lib-mismatch")
    parser.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(argv)
    if given.slug is None:
        sys.stdout.write("".join(f"{slug:<28} {entry.title}\n" for slug, entry in entries().items()))
        return 0
    entry = find(given.slug.strip(":"))
    if given.json:
        sys.stdout.write(entry.model_dump_json(indent=2) + "\n")
    else:
        width = max(60, min(100, shutil.get_terminal_size((80, 24)).columns))
        sys.stdout.write("\n".join(page(entry, Style.of(sys.stdout), width)) + "\n")
    return 0


def find(slug: str) -> Entry:
    """The entry of this slug. Raises Usage with the nearest one."""
    known = entries()
    if slug in known:
        return known[slug]
    near = get_close_matches(slug, known, 1)
    raise Usage(f"no entry {slug!r}", hint=f"did you mean {near[0]}?" if near else "gpuhook why lists all")


def page(entry: Entry, style: Style, width: int) -> Iterator[str]:
    """The entry as lines of text."""
    yield f"{style.bold(entry.slug)}  {entry.title} ({entry.severity})"
    sections = (("what you see", (entry.symptom,)), ("how to check", entry.check), ("what to do", entry.fix))
    for title, texts in sections:
        yield ""
        yield style.bold(title)
        for text in texts:
            yield textwrap.fill(
                text,
                width,
                initial_indent="  - ",
                subsequent_indent="    ",
                break_on_hyphens=False,
                break_long_words=False,
            )
