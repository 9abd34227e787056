"""Work done in a forked child that may hang, crash or lose itself: bounded in time, always reaped."""

from __future__ import annotations

import posix
from select import select
from time import monotonic

from gpuhook.errors import GpuhookError
from gpuhook.kernel.libc import PR_SET_PDEATHSIG, prctl
from gpuhook.refusals import TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SIGKILL = 9
LIMIT = 1 << 20  # bytes of an answer
DONE, REFUSED = b"\x06", b"\x15"  # the last byte of an answer: complete, or an error's text


def run_in_child(work: Callable[[], bytes], deadline: float, name: str) -> bytes:
    """What `work` returns, computed in a forked child; the caller is single-threaded and has imported all it needs.

    deadline: seconds until the child is killed; name: what it does, for messages. An error of ours that the child
    raises is raised here, of the same class. Raises TimedOut and ChildDied.
    """
    out, into = posix.pipe()
    child = posix.fork()
    if child == 0:
        _serve(work, into)
    posix.close(into)
    try:
        answer = _read_all(out, deadline, name)
    finally:
        posix.close(out)
        _end(child)
    if answer.endswith(REFUSED):
        raise _error(answer[:-1])
    if not answer.endswith(DONE):
        raise ChildDied(f"{name} ended without an answer: it crashed or was killed")
    return answer[:-1]


class ChildDied(GpuhookError):
    """A child of ours ended without an answer."""

    reference = "engine-failed"


def _serve(work: Callable[[], bytes], into: int) -> None:
    """The child's whole life: never returns."""
    try:
        prctl(PR_SET_PDEATHSIG, SIGKILL)
        _write_all(into, work() + DONE)
    except GpuhookError as error:
        _write_all(into, _packed(error) + REFUSED)
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else ""
        _write_all(into, _packed(GpuhookError(f"{error.strerror}", where=where)) + REFUSED)
    except Exception as fault:  # noqa: BLE001  # a child must never run its parent's code
        _write_all(into, _packed(GpuhookError(f"{type(fault).__name__}: {fault}")) + REFUSED)
    finally:
        posix._exit(0)  # noqa: SLF001  # that is its name


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[posix.write(fd, view) :]


def _read_all(fd: int, deadline: float, name: str) -> bytes:
    give_up = monotonic() + deadline
    data = b""
    while select([fd], [], [], max(0.0, give_up - monotonic()))[0]:
        part = posix.read(fd, 1 << 16)
        data += part
        if not part or len(data) > LIMIT:
            return data
    raise TimedOut(f"{name} did not end within {deadline:g} s")


def _end(child: int) -> None:
    """Kill and reap; where SIGCHLD is ignored the kernel has reaped already."""
    try:
        posix.kill(child, SIGKILL)
        posix.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def _packed(error: GpuhookError) -> bytes:
    """An error as bytes: class, text, where and hint, divided by NUL (which no printable text holds)."""
    parts = (type(error).__name__, error.text, error.where, error.hint)
    return b"\0".join(part.replace("\0", "\\0").encode("utf-8", "backslashreplace") for part in parts)


def _error(answer: bytes) -> GpuhookError:
    from gpuhook import errors, refusals

    name, text, where, hint = (part.decode() for part in answer.split(b"\0"))
    kind: type[GpuhookError] = getattr(errors, name, getattr(refusals, name, GpuhookError))
    return kind(text, where=where, hint=hint)
