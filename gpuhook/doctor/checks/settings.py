"""Checks of the family `settings`."""

from __future__ import annotations
