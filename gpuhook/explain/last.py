"""`gpuhook explain --last-failure`: the last container that the hook of this node refused, in full."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping

from gpuhook import failures
from gpuhook.catalogue import entries
from gpuhook.explain.render import Page
from gpuhook.settings.snapshot import place
from gpuhook.terminal import wrapped

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
    reference, left = record.get("reference", ""), max(len(name) for name in ROWS)
    yield from page.style.item("bad", reference, f": {record.get('text', '')}", page.width)
    for name in ROWS:
        if record.get(name):
            yield from wrapped(record[name], page.width, f"  {name:<{left}}  ", " " * (left + 4))
    if reference in entries():
        yield f"  more: gpuhook why {reference}"
