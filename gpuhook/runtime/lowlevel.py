"""The low-level runtime that does the work: the first of `runtimes` in config.toml that is there and not ourselves."""

from __future__ import annotations

import posix

from gpuhook.errors import GpuhookError
from gpuhook.kernel.files import READ, is_regular, kind, require_trusted
from gpuhook.refusals import NoLowLevelRuntime
from gpuhook.settings.values import DEFAULT_CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
MARKS = (b"# gpuhook launcher", b"gpuhook.runtime")  # in the first lines of our launchers, and of pip's
DEPTH = b"GPUHOOK_RUNTIME_DEPTH"  # how many times this command has gone through us, an x for each
DEEPEST = 8


def find_runtime(candidates: tuple[str, ...], path: str, source: str = "") -> str:
    """The absolute path of the first usable candidate.

    path: folders, separated by colons, in which bare names are looked up, then in the usual ones; source: the
    configuration file, for messages. Passed over are: relative paths and folders, what is no program, what others
    could have written, and gpuhook itself. Raises NoLowLevelRuntime, which tells why each candidate was not used.
    """
    faults = []
    for candidate in candidates:
        fault = ""
        for place in _places(candidate, path):
            fault = fault_of(place)
            if not fault:
                return place
            if fault != "it does not exist":
                break
        faults.append(f"{candidate or repr(candidate)} ({fault or 'it is no absolute path'})")
    why = "; ".join(faults) or "the list is empty"
    raise NoLowLevelRuntime(
        f"no low-level runtime can be used: {why}",
        where=f"{source or DEFAULT_CONFIG}: [nvidia-container-runtime] runtimes",
        hint='install runc or crun, or set runtimes = ["/path/of/runc"]',
    )


def _places(candidate: str, path: str) -> list[str]:
    """The absolute paths that a candidate may mean."""
    if "/" in candidate:
        return [candidate] if candidate.startswith("/") else []
    folders = [folder.rstrip("/") for folder in path.split(":") if folder.startswith("/")]
    folders += [folder for folder in FOLDERS if folder not in folders]
    return [f"{folder}/{candidate}" for folder in folders] if candidate else []


def fault_of(path: str) -> str:
    """Why a file cannot be the low-level runtime, "" where it can."""
    try:
        status = posix.stat(path)
        if not is_regular(status.st_mode):
            return f"it is {kind(status.st_mode)}"
        if not posix.access(path, posix.X_OK):
            return "it is not executable"
        require_trusted(path, NoLowLevelRuntime)
        if is_ours(path):
            return "it is gpuhook itself"
    except OSError as error:
        return "it does not exist" if error.errno == 2 else error.strerror or str(error)
    except NoLowLevelRuntime as error:
        return f"{error.where} is not safe: {error.text.rpartition(': ')[2]}"
    return ""


def is_ours(path: str) -> bool:
    """Whether a file is one of gpuhook's launchers, under whatever name."""
    fd = posix.open(path, READ)
    try:
        head = posix.read(fd, 4096)
    finally:
        posix.close(fd)
    return head.startswith(b"#!") and any(mark in head for mark in MARKS)


def refuse_loop(environ: Mapping[bytes, bytes]) -> None:
    """Raise NoLowLevelRuntime if this command comes back to us again and again, through a wrapper for example."""
    if len(environ.get(DEPTH, b"")) >= DEEPEST:
        raise NoLowLevelRuntime(
            "the low-level runtime leads back to gpuhook-runtime",
            where=f"{DEFAULT_CONFIG}: [nvidia-container-runtime] runtimes",
            hint='name the real runtime there: runtimes = ["/usr/bin/runc"]',
        )


def become(path: str, args: list[bytes], environ: Mapping[bytes, bytes]) -> NoReturn:
    """Replace this process by the runtime, with the same arguments and environment. Raises NoLowLevelRuntime."""
    env = {**environ, DEPTH: environ.get(DEPTH, b"") + b"x"}
    encoded = path.encode("utf-8", "surrogateescape")
    try:
        posix.execve(encoded, [encoded, *args], env)
    except OSError as error:
        raise NoLowLevelRuntime(f"{path} cannot be started: {error.strerror}", where=path) from error
    raise GpuhookError("execve came back")  # it never does
