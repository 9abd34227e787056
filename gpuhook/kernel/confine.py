"""A process that gives itself up: namespaces of its own, another root, no rights, few system calls.

For a host program that has to read an image's tree (threats.md 4.4, step 6). Each function does one thing to the
calling process, and raises OSError; none can be taken back.
"""

from __future__ import annotations

import ctypes
import posix
from posix import strerror

from gpuhook.kernel.libc import CLONE_NEWNS, MNT_DETACH, MS_PRIVATE, PR_SET_NO_NEW_PRIVS, PR_SET_SECUREBITS, prctl

CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x04000000, 0x08000000, 0x20000000, 0x40000000
RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_AS = 0, 1, 2, 4, 7, 9

_MS_REC = 16384
_PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 22, 47, 4
_ALL_SECUREBITS_AND_LOCKS = 0xFF & ~0x10  # all but "keep capabilities", which there are none of
_CAPABILITY_VERSION = 0x20080522
_F_ADD_SEALS, _EVERY_SEAL = 1033, 0x0F  # no more seals, no shrinking, no growing, no writing
_MFD_CLOEXEC, _MFD_ALLOW_SEALING, _MFD_EXEC = 1, 2, 0x10
_EINVAL, _EPERM = 22, 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {strerror(code)}")
    return result


def sealed_copy(fd: int, size: int) -> int:
    """A copy of the first `size` bytes of an open file that lives in memory and that nobody can change any more."""
    flags = _MFD_CLOEXEC | _MFD_ALLOW_SEALING
    try:
        copy = posix.memfd_create("gpuhook", flags | _MFD_EXEC)
    except OSError as error:
        if error.errno != _EINVAL:
            raise
        copy = posix.memfd_create("gpuhook", flags)  # before Linux 6.3 every such file can be executed
    done = 0
    while done < size and (part := posix.sendfile(copy, fd, done, size - done)):
        done += part
    _check(_libc.fcntl(ctypes.c_int(copy), ctypes.c_int(_F_ADD_SEALS), ctypes.c_int(_EVERY_SEAL)), "fcntl")
    return copy


def unshare() -> None:
    """Namespaces of our own: mounts, network, IPC, host name, and for our children to come, processes.

    Nothing that is mounted from now on is seen elsewhere, nor the other way round.
    """
    kinds = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    _check(_libc.unshare(ctypes.c_int(kinds)), "unshare")
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | MS_PRIVATE), None), "mount")


def make_root() -> None:
    """The current folder, which is the root of a mount, becomes `/`; the former one is nowhere any more."""
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "umount2")
    posix.chdir("/")


class _Limit(ctypes.Structure):
    """struct rlimit of setrlimit(2)."""

    _fields_ = (("soft", ctypes.c_ulong), ("hard", ctypes.c_ulong))


def limit(resource: int, value: int) -> None:
    """Set a resource limit for good."""
    wanted = _Limit(value, value)
    _check(_libc.setrlimit(ctypes.c_int(resource), ctypes.byref(wanted)), "setrlimit")


def renounce(uid: int, gid: int) -> None:
    """Become this user, without any capability and without a way to get one, also by executing something."""
    prctl(PR_SET_SECUREBITS, _ALL_SECUREBITS_AND_LOCKS)
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:  # this kernel knows no more
            break
    _become(uid, gid)
    _libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(head), ctypes.byref(sets)), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _become(uid: int, gid: int) -> None:
    try:
        posix.setgroups([])
    except OSError as error:
        if error.errno != _EPERM:  # in a user namespace that may not change them
            raise
    posix.setresgid(gid, gid, gid)
    posix.setresuid(uid, uid, uid)


# System calls that a program which reads files and writes one has no use for, by machine: whatever mounts, traces,
# talks, starts or loads something. Those since Linux 5.1 have the same numbers everywhere.
_SINCE_5_1 = (*range(424, 434), 434, 435, 438, 440, 442, 447)
_DENIED = {
    "x86_64": (
        0xC000003E,
        (
            41, 53, 56, 57, 58, 59, 62, 101, 133, 155, 161, 165, 166, 167, 168, 169, 175, 176, 200, 234, 246, 248, 249,
            250, 259, 272, 298, 303, 304, 308, 310, 311, 312, 313, 319, 320, 321, 323,
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (
            33, 39, 40, 41, 51, 97, 104, 105, 106, 117, 129, 130, 131, 142, 198, 199, 217, 218, 219, 220, 221, 224,
            225, 241, 264, 265, 268, 270, 271, 272, 273, 279, 280, 282, 294,
        ),
    ),
}  # fmt: skip
_LOAD, _EQUAL, _ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | _EPERM, 0x7FFF0000
_ARCHITECTURE, _NUMBER = 4, 0  # offsets in struct seccomp_data
_X32 = 0x40000000  # calls of another table, which x86-64 kernels may know


class _Statement(ctypes.Structure):
    """struct sock_filter of seccomp(2)."""

    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    """struct sock_fprog of seccomp(2)."""

    _fields_ = (("size", ctypes.c_uint16), ("statements", ctypes.POINTER(_Statement)))


def filter_calls() -> bool:
    """Let the system calls above fail with EPERM from now on; whether this machine's numbers are known.

    execve(2) is among them, execveat(2) is not: a program that is open can be started, no other by its name.
    """
    architecture, numbers = _DENIED.get(posix.uname().machine, (0, ()))
    if not architecture:
        return False
    denied = (*numbers, *_SINCE_5_1)
    rows = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, len(denied) + 1, 0, _X32),
        *((_EQUAL, len(denied) - place, 0, number) for place, number in enumerate(denied)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    statements = (_Statement * len(rows))(*(_Statement(*row) for row in rows))
    program = _Program(len(rows), statements)
    _check(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program), 0, 0), "prctl")
    return True
