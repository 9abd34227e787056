"""`gpuhook launchers DIR`: small programs that start the interpreter lean and isolated.

A launcher names its interpreter and all its folders in full: no PATH, no PYTHON* variable, no user site, no current
directory is consulted, and the interpreter starts in about 10 ms.
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from gpuhook import archive
from gpuhook.archive import archive_path
from gpuhook.errors import GpuhookError, Usage
from gpuhook.kernel.files import require_trusted
from gpuhook.note import note
from gpuhook.runtime_launcher import START, guard, runtime_text

MARK = "# gpuhook launcher"
TEMPLATE = (
    """\
#!{interpreter} -IS
{mark}: written by `gpuhook launchers`; write it anew when gpuhook or Python moves.
"""
    + START
    + """\
from {entry} import launch

launch()
"""
)
ENTRIES = {"gpuhook": "gpuhook.hook", "gpuhook-docker": "gpuhook.docker_cli", "gpuhook-cli": "gpuhook.engine_cli"}
RUNTIME = "gpuhook-runtime"
# The names that engines look for, and what of ours answers to them.
NVIDIA_NAMES = {
    "nvidia-container-runtime-hook": "gpuhook",
    "nvidia-container-runtime": RUNTIME,
    "nvidia-docker": "gpuhook-docker",
    "nvidia-container-cli": "gpuhook-cli",
}


def launcher_text(interpreter: str, folders: list[str], archives: str, entry: str = "gpuhook.hook") -> str:
    """A launcher's text.

    folders: where gpuhook, pydantic and toml are found; archives: their path without the stage; entry: the module
    whose function `launch` it calls.
    """
    return TEMPLATE.format(
        interpreter=interpreter, mark=MARK, folders=folders, archives=archives, entry=entry, guard=guard(archives)
    )


def text_for(name: str, inside: Callable[[str], str] = str) -> str:
    """The text of the launcher of this name, one of ours or of NVIDIA's; any other name is the hook's.

    inside: how the machine that is to run it names a path of this one. Raises GpuhookError where something that it
    starts can be written by others, or does not exist.
    """
    ours = NVIDIA_NAMES.get(name, name)
    interpreter = os.path.realpath(sys.executable)
    folders = package_folders()
    for place in (interpreter, str(Path(__file__).resolve().parent), *folders):
        require_trusted(place)
    places = inside(interpreter), [inside(folder) for folder in folders], inside(archive_path())
    if ours == RUNTIME:
        return runtime_text(*places)
    return launcher_text(*places, entry=ENTRIES.get(ours, ENTRIES["gpuhook"]))


def package_folders() -> list[str]:
    """The folders that gpuhook and the packages it imports are found in."""
    found = [str(Path(__file__).resolve().parent.parent)]
    for name in ("pydantic", "toml"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise GpuhookError(f"the package {name} is not installed", hint=f"pip install {name}")
        folder = Path(spec.origin).resolve().parent
        place = str(folder.parent if folder.name == name else folder)
        if place not in found:
            found.append(place)
    return found


def write_launcher(folder: Path, name: str) -> Path:
    """Write one launcher, atomically, mode 0755. Raises GpuhookError where something in its chain is unsafe."""
    text = text_for(name)
    target = folder / name
    new = folder / f".{name}.{os.getpid()}"
    new.write_text(text)
    try:
        new.chmod(0o755)
        new.replace(target)
    except OSError:
        new.unlink()
        raise
    return target


def compile_package() -> None:
    """Compile gpuhook, and write the archive for a fast start. Where its folder is read-only, starts are slower."""
    if _is_compiled():
        return
    compileall.compile_dir(Path(__file__).parent, quiet=2)
    command = [os.path.realpath(sys.executable), "-I", "-S", "-X", "no_debug_ranges", archive.__file__]
    done = subprocess.run(command, capture_output=True, check=False, env={})
    if done.returncode:
        note(f"no archive, starts take longer: {done.stderr.decode(errors='replace').strip()}")


def _is_compiled() -> bool:
    """Whether the archives are newer than every module."""
    package = Path(__file__).parent
    try:
        oldest = min(os.stat(f"{archive_path()}{stage}").st_mtime_ns for stage in archive.STAGES)
    except OSError:
        return False
    return all(source.stat().st_mtime_ns < oldest for source in package.rglob("*.py"))


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(prog="gpuhook launchers", description=__doc__)
    made.add_argument("folder", type=Path, help="an existing folder, such as /usr/local/bin")
    made.add_argument("--name", default="gpuhook", help="file name of the launcher (default: gpuhook)")
    return made


def main(argv: list[str]) -> int:
    """The command `gpuhook launchers`."""
    given = parser().parse_args(argv)
    if "/" in given.name or given.name in ("", ".", ".."):
        raise Usage(f"{given.name!r} is no file name")
    if not given.folder.is_dir():
        raise Usage(f"{given.folder} is no folder", hint=f"mkdir -p {given.folder}")
    compile_package()
    try:
        target = write_launcher(given.folder.resolve(), given.name)
    except OSError as error:
        raise GpuhookError(f"cannot write the launcher: {error.strerror}", where=str(error.filename)) from error
    sys.stdout.write(f"{target}\n")
    return 0
