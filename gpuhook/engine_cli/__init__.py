"""`gpuhook-cli`: nvidia-container-cli's command line over our own engine, for anything that calls that program."""

from __future__ import annotations

from gpuhook.engine_cli.command import launch, main

__all__ = ["launch", "main"]
