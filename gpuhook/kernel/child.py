"""Work done in a forked child that may hang, crash or lose itself: bounded in time, always reaped."""

from __future__ import annotations

import posix
from select import select
from time import monotonic

from gpuhook.errors import GpuhookError
from gpuhook.kernel.libc import PR_SET_PDEATHSIG, prctl
from gpuhook.refusals import ApplyFailed, TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal  # of which signal.py makes enumerations, at a price

SIGKILL = 9
RIGHTS = "the hook needs the rights of root (CAP_SYS_ADMIN) and room for files; --debug tells the step"
LIMIT = 1 << 20  # bytes of an answer
DONE, REFUSED = b"\x06", b"\x15"  # the last byte of an answer: complete, or an error's text


def run_in_child(work: Callable[[], bytes], deadline: float, name: str, *, limit: int = LIMIT) -> bytes:
    """What `work` returns, computed in a forked child; the caller is single-threaded and has imported all it needs.

    deadline: seconds until the child is killed; name: what it does, for messages; limit: bytes of the answer. An error
    of ours that the child raises is raised here, of the same class. Raises TimedOut and ChildDied.
    """
    out, into = posix.pipe()
    parent = posix.getpid()
    child = posix.fork()
    if child == 0:
        _serve(work, into, parent)
    posix.close(into)
    try:
        answer = _read_all(out, deadline, name, limit)
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


def follow_parent() -> None:
    """In the child: die when the parent does.

    A change of user or file-system ids makes the kernel forget it (prctl(2)), so it is said again after one. A parent
    that is gone already has left us to somebody else.
    """
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if posix.getppid() != _parent:
        posix._exit(1)  # noqa: SLF001  # that is its name


def give_up_after(seconds: float, name: str) -> None:
    """In the child: raise TimedOut wherever it then is, system calls included; name: what it does, for the message.

    Its parent's deadline kills it, and then it can take nothing back.
    """

    def expire(*_: object) -> None:
        raise TimedOut(f"{name} did not end within {seconds:g} s")

    _signal.signal(_signal.SIGALRM, expire)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def take_the_time() -> None:
    """In the child: call `give_up_after` off."""
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def raise_limit_of_files() -> None:
    """As many open files as we may have: each file of the driver is held by a descriptor."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


_parent = 0  # of a child of ours, in the child


def _serve(work: Callable[[], bytes], into: int, parent: int) -> None:
    """The child's whole life: never returns."""
    global _parent  # one value for the life of this process
    _parent = parent
    try:
        follow_parent()
        _write_all(into, work() + DONE)
    except GpuhookError as error:
        _write_all(into, _packed(error) + REFUSED)
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else ""
        _write_all(into, _packed(ApplyFailed(f"{error.strerror}", where=where, hint=RIGHTS)) + REFUSED)
    except Exception as fault:  # noqa: BLE001  # a child must never run its parent's code
        _write_all(into, _packed(GpuhookError(f"{type(fault).__name__}: {fault}")) + REFUSED)
    finally:
        posix._exit(0)  # noqa: SLF001  # that is its name


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[posix.write(fd, view) :]


def _read_all(fd: int, deadline: float, name: str, limit: int) -> bytes:
    give_up = monotonic() + deadline
    data = bytearray()
    while select([fd], [], [], max(0.0, give_up - monotonic()))[0]:
        part = posix.read(fd, 1 << 16)
        data += part
        if not part:
            return bytes(data)
        if len(data) > limit + 1:
            return b""
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
