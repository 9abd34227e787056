"""Fully qualified CDI names, `vendor/class=device` (CDI specification, "Kind" and "Device names")."""

from __future__ import annotations

import re

VENDOR = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
CLASS = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
DEVICE = r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?"
NAME = re.compile(f"{VENDOR}/{CLASS}={DEVICE}")


def is_name(text: str) -> bool:
    """Whether the text is a fully qualified CDI name."""
    return NAME.fullmatch(text) is not None
