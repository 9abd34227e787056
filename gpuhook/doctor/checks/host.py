"""Checks of the family `host`."""

from __future__ import annotations
