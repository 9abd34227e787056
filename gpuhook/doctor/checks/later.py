"""Checks of the family `later`."""

from __future__ import annotations
