"""Checks of the family `kubernetes`."""

from __future__ import annotations
