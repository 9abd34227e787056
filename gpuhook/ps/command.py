"""`gpuhook ps`: who uses, and who may use, which GPU."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from gpuhook.doctor.node import Node
from gpuhook.errors import Usage as WrongUsage
from gpuhook.ps.look import look
from gpuhook.ps.model import Usage
from gpuhook.ps.render import Page, render

SHORTEST, LONGEST = 0.1, 86400.0  # seconds between two looks
CLEAR = "\x1b[H\x1b[2J"  # cursor home, erase the screen (ECMA-48)


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="gpuhook ps",
        description="Tells which container and which process uses, or may use, which GPU. Opens no device.",
        epilog="Without root only your own processes can be seen in full; what was not seen is said.",
    )
    made.add_argument("--json", action="store_true", help="for programs; with --watch one line a look")
    made.add_argument(
        "--watch", metavar="SECONDS", nargs="?", type=float, const=2.0, help="look again and again (2 s)"
    )
    made.add_argument("--schema", action="store_true", help="print the JSON Schema of --json")
    made.add_argument("--root", default="/", help=argparse.SUPPRESS)
    return made


def main(argv: list[str]) -> int:
    """Run the command. Raises GpuhookError."""
    given = parser().parse_args(argv)
    if given.schema:
        sys.stdout.write(json.dumps(Usage.model_json_schema(), indent=2, sort_keys=True) + "\n")
        return 0
    if given.watch is not None and not SHORTEST <= given.watch <= LONGEST:
        raise WrongUsage(f"--watch {given.watch:g}: the time must be between {SHORTEST:g} and {LONGEST:g} seconds")
    try:
        if given.watch is None:
            _write(told(given.root, as_json=given.json))
        else:
            watch(given.root, given.watch, as_json=given.json)
    except KeyboardInterrupt:
        return 0 if given.watch is not None else 130
    except BrokenPipeError:  # whoever read has seen enough; Python must not try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def told(root: str, *, as_json: bool, indent: int | None = 2) -> str:
    """One look, as text."""
    usage = look(Node(root))
    if as_json:
        return json.dumps(usage.model_dump(), indent=indent) + "\n"
    return "\n".join(render(usage, Page.here())) + "\n"


def watch(root: str, seconds: float, *, as_json: bool) -> None:
    """Look until somebody interrupts: a terminal's screen is drawn anew, elsewhere looks follow each other."""
    clear = sys.stdout.isatty() and not as_json
    while True:
        text = told(root, as_json=as_json, indent=None)
        _write(CLEAR + text if clear else text if as_json else f"{text}\n")
        time.sleep(seconds)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
