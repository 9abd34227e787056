"""`gpuhook status`: what is registered where, and by whom."""

from __future__ import annotations

import argparse
import os
import sys

from gpuhook.errors import GpuhookError
from gpuhook.install.add import common, host_at
from gpuhook.install.engine import Registered
from gpuhook.install.engines import ENGINES, chosen
from gpuhook.install.host import Host
from gpuhook.install.journal import read_journal
from gpuhook.install.programs import KIND, is_ours_at

NVIDIA = ("nvidia-container-runtime", "nvidia-container-toolkit", "nvidia-cdi-hook", "nvidia-ctk")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    return common("status", __doc__)


def main(argv: list[str]) -> int:
    """The command `gpuhook status`. Raises GpuhookError."""
    given = parser().parse_args(argv)
    host = host_at(given.root)
    for name in chosen(given.engines) or list(ENGINES):
        found = ENGINES[name].find(host)
        sys.stdout.write(f"{name}: {f'found ({found})' if found else 'not found'}\n")
        if found:
            sys.stdout.writelines(f"  {line}\n" for line in _lines(host, name))
    ours = [path for path, entry in read_journal(host).files.items() if entry.kind == KIND]
    if ours:
        sys.stdout.write("programs\n" + "".join(f"  {path}\n" for path in sorted(ours)))
    return 0


def _lines(host: Host, name: str) -> list[str]:
    try:
        found: list[Registered] = ENGINES[name].registered(host)
    except GpuhookError as error:
        return error.render().split("\n")
    gpu = [one for one in found if whose(host, one.program)]
    return [_line(host, one) for one in gpu] or ["no GPU runtime and no GPU hook is registered"]


def _line(host: Host, one: Registered) -> str:
    default = ", the default" if one.default else ""
    missing = "" if _is_there(host, one.program) else ", which does not exist"
    return f"{one.where}: {one.name}{default} is {one.program}, {whose(host, one.program)}{missing}"


def _is_there(host: Host, program: str) -> bool:
    return bool(host.program(program)) if "/" not in program else host.exists(program)


def whose(host: Host, program: str) -> str:
    """Who made a program that engines are told to call; "" where it has nothing to do with GPUs of NVIDIA."""
    path = program if "/" in program else host.program(program)
    name = os.path.basename(program)
    if (path and is_ours_at(host, path)) or name.startswith("gpuhook"):
        return "gpuhook's"
    return "NVIDIA's" if name.startswith(NVIDIA) else ""
