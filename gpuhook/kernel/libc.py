"""System calls that Python's `posix` does not have: one short function each, under the kernel's own names.

Every call that makes a descriptor asks for close-on-exec. Errors are OSError with the call's name and the path.
Numbers of calls since Linux 5.1 are the same on every machine.
"""

from __future__ import annotations

import ctypes
from posix import strerror, uname
from sys import byteorder

from gpuhook.refusals import KernelTooOld

AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW = -100, 0x1000, 0x100
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
ENOSYS = 38
MNT_DETACH = 2
_LOCK_EX, _LOCK_NB = 2, 4
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
MS_PRIVATE = 1 << 18
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, 0o2000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 1, 4, 28, 38
SECBIT_NO_SETUID_FIXUP = 4
PROC_SUPER_MAGIC, SYSFS_MAGIC, TMPFS_MAGIC = 0x9FA0, 0x62656572, 0x01021994

_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 0x4, 0x40
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 1
_FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 6
_STATX_MNT_ID, _STATX_ATTR_MOUNT_ROOT = 0x1000, 0x2000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttr(ctypes.Structure):
    """struct mount_attr of mount_setattr(2)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def missing_call(call: str) -> KernelTooOld:
    """The refusal of a kernel, or of a seccomp filter that does not know the call, which looks the same."""
    return KernelTooOld(
        f"Linux {uname().release} lacks {call}, and the embedded engine needs 5.12 or newer",
        hint='install nvidia-container-cli, which works on older kernels, with backend = "auto" in [gpuhook]',
    )


def _check(result: int, call: str, path: str = "") -> int:
    if result < 0:
        code = ctypes.get_errno()
        if code == ENOSYS:
            raise missing_call(call)
        raise OSError(code, f"{call}: {strerror(code)}", path or None)
    return result


def _call(number: int, name: str, path: str, *arguments: object) -> int:
    """Make a system call by its number: ints as longs, the rest as it is."""
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *passed), name, path)


def open_tree(fd: int, path: str = "") -> int:
    """A detached copy of the mount of exactly this open file (open_tree(2), Linux 5.2); path: for messages."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH
    return _call(428, "open_tree", path, fd, b"", flags)


def mount_setattr(fd: int, attributes: int, path: str = "") -> None:
    """Add attributes to a mount and make it private (mount_setattr(2), Linux 5.12)."""
    wanted = _MountAttr(attributes, 0, MS_PRIVATE, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _call(442, "mount_setattr", path, fd, b"", AT_EMPTY_PATH, ctypes.byref(wanted), size)


def move_mount(mount_fd: int, target_fd: int, path: str = "") -> None:
    """Attach a detached mount on exactly this open file or folder (move_mount(2), Linux 5.2)."""
    flags = _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
    _call(429, "move_mount", path, mount_fd, b"", target_fd, b"", flags)


def new_mount(filesystem: str, attributes: int, **options: str) -> int:
    """A detached mount of a new filesystem with these options (fsopen(2), fsconfig(2), fsmount(2))."""
    import posix

    context = _call(430, "fsopen", filesystem, filesystem.encode(), _FSOPEN_CLOEXEC)
    try:
        for name, value in options.items():
            _call(431, "fsconfig", name, context, _FSCONFIG_SET_STRING, name.encode(), value.encode(), 0)
        _call(431, "fsconfig", filesystem, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _call(432, "fsmount", filesystem, context, _FSMOUNT_CLOEXEC, attributes)
    finally:
        posix.close(context)


def setns(fd: int, kind: int) -> None:
    """Enter a namespace of this kind: of a namespace descriptor, or of the process behind a pidfd (setns(2))."""
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def unshare(kinds: int) -> None:
    """Give this process namespaces of these kinds for itself (unshare(2))."""
    _check(_libc.unshare(ctypes.c_int(kinds)), "unshare")


def lock(fd: int) -> None:
    """Lock this open file or folder against everybody else's lock (flock(2)); EAGAIN where somebody has it."""
    _check(_libc.flock(ctypes.c_int(fd), ctypes.c_int(_LOCK_EX | _LOCK_NB)), "flock")


def umount2(path: str, flags: int = MNT_DETACH) -> None:
    """Take a mount away (umount2(2))."""
    _check(_libc.umount2(path.encode("utf-8", "surrogateescape"), ctypes.c_int(flags)), "umount2", path)


def fchown(fd: int, uid: int, gid: int) -> None:
    """Change the owner of exactly this open file, also where it is open as a mere path (fchownat(2))."""
    _check(
        _libc.fchownat(ctypes.c_int(fd), b"", ctypes.c_uint32(uid), ctypes.c_uint32(gid), ctypes.c_int(AT_EMPTY_PATH)),
        "fchownat",
    )


def prctl(option: int, value: int) -> None:
    """Change something about this process (prctl(2))."""
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), 0, 0, 0), "prctl")


def make_files_as(uid: int, gid: int) -> None:
    """Let everything that this process makes belong to these ids, and keep all capabilities (setfsuid(2)).

    A filesystem that was mounted in a user namespace takes files of ids that exist there, and no others (EOVERFLOW).
    """
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    for call, number in ((_libc.setfsgid, gid), (_libc.setfsuid, uid)):
        call(ctypes.c_uint32(number))
        if call(ctypes.c_uint32(0xFFFFFFFF)) != number:  # it answers with the former id, and does not tell of failure
            raise OSError(1, f"setfsuid: {strerror(1)}")


def filesystem_of(fd: int) -> int:
    """The magic number of the filesystem that an open file is on (fstatfs(2))."""
    room = ctypes.create_string_buffer(256)
    _check(_libc.fstatfs(ctypes.c_int(fd), room), "fstatfs")
    return ctypes.c_ulong.from_buffer(room).value & 0xFFFFFFFF


def mount_id(fd: int) -> int:
    """The id of the mount that an open file is on, as mountinfo has it (statx(2), Linux 5.8)."""
    return _number(_statx(fd)[0x90:0x98])


def is_mount_root(fd: int) -> bool:
    """Whether an open file is the root of the mount that it is on (statx(2), Linux 5.8)."""
    return bool(_number(_statx(fd)[8:16]) & _STATX_ATTR_MOUNT_ROOT)


def _statx(fd: int) -> bytes:
    """What the kernel tells of an open file: a struct statx, with what it says about the mount."""
    room = ctypes.create_string_buffer(256)
    flags, mask = ctypes.c_int(AT_EMPTY_PATH), ctypes.c_uint(_STATX_MNT_ID)
    _check(_libc.statx(ctypes.c_int(fd), b"", flags, mask, room), "statx")
    if not _number(room.raw[:4]) & _STATX_MNT_ID:  # an older kernel, or the C library's stand-in for the call
        raise missing_call("mount ids in statx (5.8)")
    return room.raw


def _number(field: bytes) -> int:
    """A field of a structure in this machine's byte order."""
    return int.from_bytes(field, byteorder)
