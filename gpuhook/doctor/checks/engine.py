"""Checks of the family `engine`."""

from __future__ import annotations
