"""What execve(2) would say of a command, without starting it; the hook learns it from the kernel."""

from __future__ import annotations

import os
import posix

from gpuhook.kernel.files import READ
from gpuhook.refusals import BackendMissing

LONGEST = 32 * os.sysconf("SC_PAGE_SIZE")  # bytes of an argument with its end (MAX_ARG_STRLEN, execve(2))
HEAD = 256  # bytes of a file that the kernel looks at (BINPRM_BUF_SIZE)


def require_executable(argv: tuple[str, ...]) -> None:
    """Refuse a command whose start would fail. Raises BackendMissing."""
    why = _why_not(argv)
    if why:
        raise BackendMissing(
            f"cannot execute {argv[0]}: {why}",
            where=argv[0],
            hint="a script's interpreter may be missing, or the file is damaged: install nvidia-container-cli anew",
        )


def _why_not(argv: tuple[str, ...]) -> str:
    if any(len(word.encode("utf-8", "surrogateescape")) >= LONGEST for word in argv):
        return "Argument list too long"
    try:
        head = _head(argv[0])
        if head.startswith(b"#!"):
            posix.stat(head[2:].split(b"\n")[0].split()[0])
    except IndexError:  # nothing after #!
        head = b""
    except OSError as error:
        return error.strerror or str(error)
    return "" if head.startswith((b"#!", b"\x7fELF")) else "Exec format error"


def _head(path: str) -> bytes:
    fd = posix.open(path, READ)
    try:
        return posix.read(fd, HEAD)
    finally:
        posix.close(fd)
