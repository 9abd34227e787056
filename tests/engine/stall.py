"""The hook in a container whose file system stops answering once the first mount is made."""

from __future__ import annotations

import sys
from time import sleep

from gpuhook.backend import engine
from gpuhook.backend.tree import Tree
from gpuhook.hook import main

attach = Tree.attach


def attach_and_stall(self: Tree, mount: int, target: int, path: str) -> None:
    """As the original, and then nothing more."""
    attach(self, mount, target, path)
    sleep(600)


if __name__ == "__main__":
    Tree.attach = attach_and_stall  # type: ignore[method-assign]
    engine.CLEAN_UP = engine.DEADLINE - 0.5
    sys.exit(main(sys.argv[1:]))
