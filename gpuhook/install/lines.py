"""The ends of lines, of which a text may have two kinds."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

LINE = re.compile(r"[^\n]*\n|[^\n]+")


def with_ends(given: str, text: str) -> str:
    """A text whose lines end as the same lines of the one that was given do; both kinds are in that."""
    old, new = (LINE.findall(one) for one in (given, text))
    first = "\r\n" if old[0].endswith("\r\n") else "\n"
    plain = [line.replace("\r\n", "\n") for line in old]
    found = []
    for kind, i, j, k, m in SequenceMatcher(None, plain, new, autojunk=False).get_opcodes():
        found += old[i:j] if kind == "equal" else [line.replace("\n", first) for line in new[k:m]]
    return "".join(found)
