"""A question asked in a child process that has no rights, no descriptors and little time.

Whatever the child does (hang, crash, print, fork, answer with megabytes), this process gets a text or an error.
"""

from __future__ import annotations

import posix
from posix import _exit
from time import monotonic

from gpuhook.driver.nvml import Refused, drop_capabilities, load_host_runtime
from gpuhook.errors import printable
from gpuhook.kernel import libc
from gpuhook.kernel.child import SIGKILL, kill_session, reap
from gpuhook.kernel.files import in_user_namespace
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534
_MOST = 1 << 16  # bytes of an answer
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 24: "SIGXCPU"}
_ANSWER, _ERROR, _END = b"+", b"-", b"\0"
_CPU_SECONDS = 10


class NoAnswer(Exception):
    """The child did not answer; the text says what happened to it."""


class Confinement(Value):
    """What the child may keep; -1 for nothing.

    file: a descriptor that stays open; root: a descriptor of the folder that becomes its `/` (needs root);
    group: a supplementary group, for device nodes that are not everybody's; user: the uid and gid that it gets.
    """

    file: int = -1
    root: int = -1
    group: int = -1
    user: tuple[int, int] = (NOBODY, NOBODY)


def ask(question: Callable[[], str], confinement: Confinement, seconds: float) -> str:
    """What `question` returns in a child: another user if we are root, no capabilities, no environment.

    Raises NoAnswer (with the child's own reason, or its signal, or the deadline), OSError where there is no child.
    """
    reader, writer = posix.pipe2(posix.O_CLOEXEC)
    try:
        pid = _start(question, confinement, writer)
        try:
            data = _read(reader, monotonic() + seconds)
        finally:
            kill_session(pid)
            status = reap(pid)
    finally:
        posix.close(reader)
    return _judge(data, status, seconds)


def _start(question: Callable[[], str], confinement: Confinement, writer: int) -> int:
    try:
        parent = posix.getpid()
        pid = posix.fork()
        if pid == 0:
            _run(question, confinement, writer, parent)
        return pid
    finally:
        posix.close(writer)


def _judge(data: bytes | None, status: int, seconds: float) -> str:
    if data is None:
        raise NoAnswer(f"it did not answer within {seconds:g} seconds")
    answer, end, _ = data.partition(_END)
    if not end:
        if len(data) > _MOST:
            raise NoAnswer("its answer does not end")
        if status >= 0 and posix.WIFSIGNALED(status):
            number = posix.WTERMSIG(status)
            raise NoAnswer(f"it crashed with {_SIGNALS.get(number, f'signal {number}')}")
        raise NoAnswer("it ended the process")
    text = answer[1:].decode("utf-8", "replace")
    if answer[:1] != _ANSWER:
        raise NoAnswer(printable(text))
    return text


def _read(reader: int, deadline: float) -> bytes | None:
    """Bytes up to the end mark or the pipe's end; None when the deadline passes first."""
    from select import POLLIN, poll

    poller = poll()
    poller.register(reader, POLLIN)
    data = b""
    while _END not in data and len(data) <= _MOST:
        left = deadline - monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return None
        part = posix.read(reader, _MOST)
        if not part:
            break
        data += part
    return data


def _run(question: Callable[[], str], confinement: Confinement, writer: int, parent: int) -> None:
    """The child's life; it never returns."""
    try:
        try:
            _confine(confinement, writer, parent)
            data = _ANSWER + question().encode("utf-8", "replace")
        except (OSError, ValueError, AttributeError, Refused) as error:
            data = _ERROR + str(error).encode("utf-8", "replace")
        data = data.replace(_END, b"") + _END
        while data:
            data = data[posix.write(writer, data) :]
    finally:
        _exit(0)


def _confine(confinement: Confinement, writer: int, parent: int) -> None:
    """Leave everything behind that the question does not need. Raises OSError, and then nothing is asked."""
    posix.setsid()
    _keep_descriptors((writer, confinement.file, confinement.root))
    for name in posix.environ:
        posix.unsetenv(name)
    _limit()
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    if confinement.root >= 0:
        load_host_runtime()
        posix.fchdir(confinement.root)
        posix.chroot(".")
        posix.close(confinement.root)
    if posix.geteuid() == 0:
        _become(confinement.user, confinement.group)
    drop_capabilities()
    # After the change of identity, which clears it; a parent that is gone by now will not end us.
    libc.prctl(libc.PR_SET_PDEATHSIG, SIGKILL)
    if posix.getppid() != parent:
        _exit(0)


def _keep_descriptors(keep: tuple[int, ...]) -> None:
    """Close all descriptors but these; what the libraries print goes nowhere."""
    null = posix.open("/dev/null", posix.O_RDWR)
    for number in (0, 1, 2):
        if number not in keep:
            posix.dup2(null, number)
    for number in map(int, posix.listdir("/proc/self/fd")):
        if number > 2 and number not in keep:
            try:
                posix.close(number)
            except OSError:  # the listing's own
                continue


def _limit() -> None:
    """No core file, no file at all, some seconds of CPU."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))


def _become(user: tuple[int, int], group: int) -> None:
    """Change to this uid and gid. In a user namespace that does not map them, our "root" has no rights already."""
    uid, gid = user
    try:
        posix.setgroups([group] if group >= 0 else [])
        posix.setresgid(gid, gid, gid)
        posix.setresuid(uid, uid, uid)
    except OSError:
        if not in_user_namespace():
            raise
