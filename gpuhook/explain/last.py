"""`gpuhook explain --last-failure`: the last container that the hook of this node refused, in full."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping

from gpuhook import failures
from gpuhook.backend.log import escaped
from gpuhook.catalogue import entries
from gpuhook.explain.render import Page
from gpuhook.settings.snapshot import place

ROWS = ("where", "hint", "container", "bundle", "stage", "time", "version")


def show(*, as_json: bool, folder: str = "") -> int:
    """Print it and return the exit status. folder: where it is kept, "" for this user's."""
    record = failures.last(folder)
    if as_json:
        sys.stdout.write(json.dumps(record, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(lines(record, Page.here()) if record else absent(folder or place())) + "\n")
    return 0


def absent(folder: str) -> Iterator[str]:
    """What to say where nothing is kept."""
    yield f"no failure of the hook is kept here ({folder}); it is forgotten at a reboot and an update of gpuhook"
    if folder != "/run/gpuhook":
        yield "as root: those of containers that root's engines start"


def lines(record: Mapping[str, str], page: Page) -> Iterator[str]:
    """The lines for a person. What an image's author may have chosen is escaped."""
    shown = {name: escaped(record.get(name, "")) for name in (*ROWS, "reference", "text")}
    yield f"{page.style.bad()} {page.style.bold(shown['reference'])}"
    yield from wrapped(shown["text"], page.width, "  ")
    left = max(len(name) for name in ROWS)
    for name in ROWS:
        if shown[name]:
            yield from wrapped(shown[name], page.width, f"  {name:<{left}}  ")
    if shown["reference"] in entries():
        yield f"more: gpuhook why {shown['reference']}"


def wrapped(text: str, width: int, begin: str) -> Iterator[str]:
    """A text in lines of this width after its beginning; a word that is longer stays whole, to be copied."""
    yield from textwrap.wrap(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
