"""`gpuhook completion SHELL`: prints the script that makes a shell complete our command lines."""

from __future__ import annotations

import argparse
import sys

from gpuhook.completion import bash, fish, zsh
from gpuhook.completion.collect import programs

SCRIPTS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
HOW = """\
for this session:
  bash, zsh:  source <(gpuhook completion bash)      (or zsh)
  fish:       gpuhook completion fish | source
for good: its output in
  bash:  ~/.local/share/bash-completion/completions/gpuhook
  zsh:   a folder of $fpath, as _gpuhook
  fish:  ~/.config/fish/completions/gpuhook.fish
bash and fish find gpuhook-cli's under that name: make it a link.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="gpuhook completion",
        description=__doc__,
        epilog=HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("shell", choices=SCRIPTS, help="whose script to print")
    return made


def main(argv: list[str]) -> int:
    """Run the command."""
    given = parser().parse_args(argv)
    sys.stdout.write(SCRIPTS[given.shell](programs()))
    return 0
