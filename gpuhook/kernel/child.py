"""Work done in a forked child that may hang, crash or lose itself: bounded in time, always reaped."""

from __future__ import annotations

import posix
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM, ESRCH
from select import POLLIN, poll
from time import monotonic

from gpuhook.errors import GpuhookError
from gpuhook.kernel.libc import PR_SET_PDEATHSIG, prctl
from gpuhook.note import note
from gpuhook.refusals import ApplyFailed, TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal  # of which signal.py makes enumerations, at a price

SIGKILL = 9
STUCK = 0.5  # seconds that a process may take to die
RIGHTS = "the hook needs the rights of root (CAP_SYS_ADMIN) and room for files; --debug tells the step"
ENDED = "the container's process has ended meanwhile"
KILLED = "dmesg tells of memory that ran out and of crashes"
ROOM = "the runtime's limit of processes or files may be used up, or the memory"
HINTS = {ESRCH: ENDED, EAGAIN: ROOM, ENOMEM: ROOM, ENFILE: ROOM, EMFILE: ROOM}
LIMIT = 1 << 20  # bytes of an answer
DONE, REFUSED = b"\x06", b"\x15"  # the last byte of an answer: complete, or an error's text


def run_in_child(work: Callable[[], bytes], deadline: float, name: str, *, limit: int = LIMIT) -> bytes:
    """What `work` returns, computed in a forked child; the caller is single-threaded and has imported all it needs.

    deadline: seconds until the child is killed; name: what it does, for messages; limit: bytes of the answer. An error
    of ours that the child raises is raised here, of the same class. Raises TimedOut, ChildDied and ApplyFailed.
    """
    parent = posix.getpid()
    try:
        (out, into), (said, say) = posix.pipe(), posix.pipe()
        child = posix.fork()
    except OSError as error:
        raise ApplyFailed(f"{name} cannot begin, no process for it: {error.strerror}", hint=ROOM) from error
    if child == 0:
        for number in range(3):  # whoever started us waits until nobody holds these, and a child may be stuck
            posix.dup2(say, number)
        _serve(work, into, parent)
    posix.close(into)
    posix.close(say)
    try:
        answer = _read_all(out, said, deadline, name, limit)
    finally:
        posix.close(out)
        reap(child)
        _pass_on(said)
        posix.close(said)
    if answer.endswith(REFUSED):
        raise _error(answer[:-1])
    if not answer.endswith(DONE):
        raise ChildDied(f"{name} ended without an answer: it crashed or was killed", hint=KILLED)
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
        raise TimedOut(f"{name} did not end within {round(seconds, 1):g} s")

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
        _write_all(
            into,
            _packed(ApplyFailed(f"{error.strerror}", where=where, hint=HINTS.get(error.errno or 0, RIGHTS))) + REFUSED,
        )
    except Exception as fault:  # noqa: BLE001  # a child must never run its parent's code
        _write_all(into, _packed(GpuhookError(f"{type(fault).__name__}: {fault}")) + REFUSED)
    finally:
        posix._exit(0)  # noqa: SLF001  # that is its name


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[posix.write(fd, view) :]


def _read_all(fd: int, said: int, deadline: float, name: str, limit: int) -> bytes:
    give_up = monotonic() + deadline
    data = bytearray()
    while ready := _readable((fd, said) if said >= 0 else (fd,), give_up - monotonic()):
        if said in ready and not _pass_on(said):
            said = -1  # its end: the child has closed it
        if fd not in ready:
            continue
        part = posix.read(fd, 1 << 16)
        data += part
        if not part:
            return bytes(data)
        if len(data) > limit + 1:
            return b""
    raise TimedOut(f"{name} did not end within {round(deadline, 1):g} s")


def _readable(fds: tuple[int, ...], seconds: float) -> list[int]:
    """Those of the descriptors that can be read, or are at their end, within these seconds."""
    poller = poll()
    for fd in fds:
        poller.register(fd, POLLIN)
    return [fd for fd, _ in poller.poll(max(0.0, seconds) * 1000)]


def _pass_on(said: int) -> bool:
    """Write what the child has said to our stderr; whether there was anything."""
    if not _readable((said,), 0) or not (text := posix.read(said, 1 << 16)):
        return False
    try:
        posix.write(2, text)
    except OSError:  # nobody listens, and that must not stop a container
        return True
    return True


def has_ended(child: int, seconds: float) -> bool:
    """Whether a child of ours ends within these seconds. Raises ProcessLookupError where the kernel has reaped it."""
    try:
        pidfd = posix.pidfd_open(child)
    except ProcessLookupError:
        raise
    except OSError:  # Linux has pidfds since 5.3: on older ones it is waited for without a limit
        return True
    try:
        return bool(_readable((pidfd,), seconds))
    finally:
        posix.close(pidfd)


def kill_session(child: int) -> None:
    """Kill a child and what it has started; it may not have got as far as a session of its own."""
    try:
        posix.kill(child, SIGKILL)
        posix.killpg(child, SIGKILL)
    except ProcessLookupError:
        return


def reap(child: int) -> int:
    """Kill a child and take its status; -1 where there is none to take.

    Where SIGCHLD is ignored the kernel has reaped already. Some waits in the kernel cannot even be killed (a FUSE
    server or a driver that does not answer): such a child is left to die when they end.
    """
    try:
        posix.kill(child, SIGKILL)
        if has_ended(child, STUCK):
            return posix.waitpid(child, 0)[1]
        note(f"the process {child} is stuck in the kernel, and left behind")
    except (ProcessLookupError, ChildProcessError):
        pass
    return -1


def _packed(error: GpuhookError) -> bytes:
    """An error as bytes: class, text, where and hint, divided by NUL (which no printable text holds)."""
    parts = (type(error).__name__, error.text, error.where, error.hint)
    return b"\0".join(part.replace("\0", "\\0").encode("utf-8", "backslashreplace") for part in parts)


def _error(answer: bytes) -> GpuhookError:
    from gpuhook import errors, refusals

    name, text, where, hint = (part.decode() for part in answer.split(b"\0"))
    kind: type[GpuhookError] = getattr(errors, name, getattr(refusals, name, GpuhookError))
    return kind(text, where=where, hint=hint)
