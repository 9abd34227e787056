"""Checks of the family `driver`."""

from __future__ import annotations
