"""What goes wrong with GPU containers: one entry for each reference that a message carries, kept as data.

`entries.json` is the only place; `gpuhook why`, `gpuhook doctor` and docs/diagnoses.md are made from it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from gpuhook.catalogue.model import Entry


@cache
def entries() -> dict[str, Entry]:
    """All entries by slug: those of the field first, by how often they are seen, then those of gpuhook itself."""
    data = json.loads(files("gpuhook.catalogue").joinpath("entries.json").read_text(encoding="utf-8"))
    found = [Entry.model_validate(item) for item in data]
    return {entry.slug: entry for entry in found}
