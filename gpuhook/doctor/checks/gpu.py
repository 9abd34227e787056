"""Checks of the family `gpu`."""

from __future__ import annotations
