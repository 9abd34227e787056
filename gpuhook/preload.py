"""Modules put in place at once, from archives, without the import system, which takes 80 µs for each.

A launcher opens the first archive (gpuhook/archive.py writes them) and runs this module's code first. Started in any
other way, nothing is preloaded and every module is imported as usual. What is stale or absent is imported as usual.
"""

from __future__ import annotations

import sys
from marshal import loads  # as trusted as the .pyc files beside it
from posix import stat

archives = ""  # the archives' path without the stage's name; launchers set it


def stage(name: str) -> None:
    """Put the modules of this stage ("start", "gpu", "engine") in place, if a launcher has said where they are."""
    if not archives:
        return
    try:
        with open(archives + name, "rb") as file:
            modules = loads(file.read())  # noqa: S302  # as trusted as the byte-code files beside it
    except (OSError, ValueError, EOFError, TypeError):
        return
    for module in modules:
        place(*module)


def place(name: str, folder: str, source: str, mtime_ns: int, size: int, code: object) -> None:
    """Make one module of its code. folder: of a package, "" for a plain module; the rest tells if it is stale."""
    if name in sys.modules:
        return
    try:
        status = stat(source)
    except OSError:
        return
    if (status.st_mtime_ns, status.st_size) != (mtime_ns, size):
        return
    module = type(sys)(name)
    above, _, last = name.rpartition(".")
    if above and above not in sys.modules:
        return
    values = module.__dict__
    values["__package__"] = name if folder else above
    values["__file__"] = source
    if folder:
        values["__path__"] = [folder]
    sys.modules[name] = module
    try:
        exec(code, values)  # type: ignore[arg-type]  # noqa: S102  # what a .pyc file would be, read in another way
    except BaseException:
        del sys.modules[name]
        raise
    if above:
        setattr(sys.modules[above], last, module)
