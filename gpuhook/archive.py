"""Writes the archives of compiled modules from which launchers start: `python gpuhook/archive.py`.

There is one for each stage of a container's start: the modules that the stage needs, in an order in which each finds
what it imports in place; the first also holds the code of gpuhook/preload.py. Run it with `-X no_debug_ranges`:
smaller code loads faster.
"""

from __future__ import annotations
import __future__

import ast
import marshal
import os
import sys
from pathlib import Path
from types import CodeType

PACKAGE = Path(__file__).resolve().parent
# What each stage starts with; what these import at their tops belongs to it.
STAGES = {
    "start": ("hook", "oci.bundle", "oci.state", "request.devices", "settings.load"),
    "gpu": ("request.build", "backend.start", "backend.program", "backend.cli"),
    "engine": ("backend.engine", "backend.apply", "kernel.cgroup"),
    "runtime": ("runtime.entry", "runtime.create"),
}
Record = tuple[str, str, str, int, int, CodeType]


def source_of(name: str) -> Path | None:
    """The file of a module of ours, named without the package ("" is the package itself); None if there is none."""
    path = PACKAGE.joinpath(*name.split(".")) if name else PACKAGE
    for file in (path.with_suffix(".py") if name else None, path / "__init__.py"):
        if file is not None and file.is_file():
            return file
    return None


def imported(source: Path) -> list[str]:
    """The modules of ours that a file imports at its top, outside of TYPE_CHECKING blocks."""
    names: list[str] = []
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gpuhook":
            module = node.module.removeprefix("gpuhook").removeprefix(".")
            names += [module, *(f"{module}.{alias.name}".removeprefix(".") for alias in node.names)]
        elif isinstance(node, ast.Import):
            ours = (alias.name for alias in node.names if alias.name.split(".")[0] == "gpuhook")
            names += [name.removeprefix("gpuhook").removeprefix(".") for name in ours]
    return [name for name in names if source_of(name) is not None]


def collect(name: str, done: list[str]) -> None:
    """Add a module to `done`, after its package and everything that it imports."""
    source = source_of(name)
    if source is None or name in done:
        return
    if name:
        collect(name.rpartition(".")[0], done)
    for other in imported(source):
        collect(other, done)
    if name not in done:
        done.append(name)


def record(name: str) -> Record:
    """A module as preload.place wants it."""
    source = source_of(name)
    if source is None:
        raise ValueError(f"no module {name}")
    status = source.stat()
    full = f"gpuhook.{name}" if name else "gpuhook"
    folder = str(source.parent) if source.name == "__init__.py" else ""
    return full, folder, str(source), status.st_mtime_ns, status.st_size, compiled(source)


def compiled(source: Path) -> CodeType:
    """A module's code without docstrings, and without its import of __future__, which would cost 120 µs."""
    tree = ast.parse(source.read_bytes(), str(source))
    tree.body = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    flags = __future__.annotations.compiler_flag
    code: CodeType = compile(tree, str(source), "exec", flags=flags, dont_inherit=True, optimize=2)
    return code


def archives() -> dict[str, bytes]:
    """The archives' bytes by stage: marshalled records. The first is a pair of preload's code and its records."""
    done: list[str] = ["preload"]
    found: dict[str, bytes] = {}
    for stage, roots in STAGES.items():
        before = len(done)
        for root in roots:
            collect(root, done)
        records = [record(name) for name in done[before:]]
        found[stage] = marshal.dumps(records if found else (compiled(PACKAGE / "preload.py"), records))
    return found


def archive_path() -> str:
    """Where the archives for the running interpreter are, beside its byte-code files: a path without the stage."""
    return f"{PACKAGE}/__pycache__/start-{sys.implementation.cache_tag}-{sys.hexversion:08x}."


def write() -> None:
    """Write the archives in place of older ones, each atomically."""
    for stage, data in archives().items():
        path = Path(archive_path() + stage)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_bytes(data)
        new.chmod(0o644)
        new.replace(path)


if __name__ == "__main__":
    write()
