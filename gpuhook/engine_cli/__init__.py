"""`gpuhook-cli`: nvidia-container-cli's command line over our own engine, in place of it for anything that calls it."""

from __future__ import annotations




