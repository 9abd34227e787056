"""`gpuhook launchers DIR`: small programs that start the interpreter lean and isolated.

A launcher names its interpreter and all its folders in full: no PATH, no PYTHON* variable, no user site, no current
directory is consulted, and the interpreter starts in about 10 ms.
"""

from __future__ import annotations

import argparse
import compileall
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from gpuhook.errors import GpuhookError, Usage
from gpuhook.kernel.files import require_trusted

MARK = "# gpuhook launcher"
TEMPLATE = """\
#!{interpreter} -IS
{mark}: written by `gpuhook launchers`; write it anew when gpuhook or Python moves.
import sys

sys.dont_write_bytecode = True
standard = sys.path[:]
sys.path[:] = [{package!r}]
import gpuhook

sys.path[:] = [*standard, *{others!r}]
from gpuhook.hook import launch

launch()
"""


def launcher_text(interpreter: str, package: str, others: list[str]) -> str:
    """A launcher's text. package: the folder that holds gpuhook; others: where pydantic and toml are found."""
    return TEMPLATE.format(interpreter=interpreter, mark=MARK, package=package, others=others)


def folders() -> tuple[str, list[str]]:
    """The folder that holds gpuhook, and all folders that gpuhook and its packages are found in."""
    package = str(Path(__file__).resolve().parent.parent)
    others = [package]
    for name in ("pydantic", "toml"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise GpuhookError(f"the package {name} is not installed", hint=f"pip install {name}")
        folder = Path(spec.origin).resolve().parent
        place = str(folder.parent if folder.name == name else folder)
        if place not in others:
            others.append(place)
    return package, others


def write_launcher(folder: Path, name: str) -> Path:
    """Write one launcher, atomically, mode 0755. Raises GpuhookError where something in its chain is unsafe."""
    interpreter = os.path.realpath(sys.executable)
    package, others = folders()
    for place in (interpreter, f"{package}/gpuhook", *others):
        require_trusted(place)
    target = folder / name
    new = folder / f".{name}.{os.getpid()}"
    new.write_text(launcher_text(interpreter, package, others))
    new.chmod(0o755)
    new.replace(target)
    return target


def main(argv: list[str]) -> int:
    """The command `gpuhook launchers`."""
    parser = argparse.ArgumentParser(prog="gpuhook launchers", description=__doc__)
    parser.add_argument("folder", type=Path, help="an existing folder, such as /usr/local/bin")
    parser.add_argument("--name", default="gpuhook", help="file name of the launcher (default: gpuhook)")
    given = parser.parse_args(argv)
    if "/" in given.name or given.name in ("", ".", ".."):
        raise Usage(f"{given.name!r} is no file name")
    if not given.folder.is_dir():
        raise Usage(f"{given.folder} is no folder", hint=f"mkdir -p {given.folder}")
    compileall.compile_dir(Path(__file__).parent, quiet=2)
    try:
        target = write_launcher(given.folder.resolve(), given.name)
    except OSError as error:
        raise GpuhookError(f"cannot write the launcher: {error.strerror}", where=str(error.filename)) from error
    sys.stdout.write(f"{target}\n")
    return 0
