"""The device programs of a cgroup: which are attached, what they say, another one in their place (bpf(2)).

Every program of the group and of the groups above is asked, and each of them has a veto. All descriptors are closed
on exec (the kernel makes them so).
"""

from __future__ import annotations

import ctypes
import posix
import struct
from errno import EACCES, EAGAIN, EINVAL, ENOENT, ENOSPC, ENOSYS

from gpuhook.kernel.devprog import allows, reloadable, widened
from gpuhook.kernel.undo import Undo
from gpuhook.note import note, warn
from gpuhook.refusals import CgroupFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALLOW_OVERRIDE, ALLOW_MULTI = 1, 2
_REPLACE = 4
_CGROUP_DEVICE, _TYPE_CGROUP_DEVICE = 6, 15
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH = (5, "PROG_LOAD"), (8, "PROG_ATTACH"), (9, "PROG_DETACH")
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = (13, "PROG_GET_FD_BY_ID"), (15, "OBJ_GET_INFO_BY_FD")
_PROG_QUERY = (16, "PROG_QUERY")
FIRST_ROOM = 64  # programs of one group; more are asked for when it is too small
_ROOM, _INFO, _LOG = 160, 80, 1 << 16
_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280, "ppc64le": 361}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def call_number() -> int:
    """The number of bpf(2) on this machine. Raises OSError (ENOSYS) where we do not know it."""
    machine = posix.uname().machine
    if machine not in _NUMBERS:
        raise OSError(ENOSYS, f"the number of bpf(2) on {machine} is not known")
    return _NUMBERS[machine]


def _bpf(command: tuple[int, str], form: str, *values: int | bytes) -> tuple[int, bytes, OSError | None]:
    """Call bpf(2): its result, the attributes as the kernel left them, and the error if there was one.

    The room is larger than the attributes that we know: newer kernels write into more of it.
    """
    number, room, result = call_number(), ctypes.create_string_buffer(_ROOM), -1
    struct.pack_into(form, room, 0, *values)
    for _ in range(8):  # the checker gives up with EAGAIN while a signal waits
        result = _libc.syscall(ctypes.c_long(number), ctypes.c_long(command[0]), room, ctypes.c_ulong(_ROOM))
        if result >= 0:
            return result, room.raw, None
        code = ctypes.get_errno()
        if code != EAGAIN:
            break
    return result, room.raw, OSError(code, f"bpf({command[1]}): {posix.strerror(code)}")


def _done(answer: tuple[int, bytes, OSError | None]) -> int:
    if answer[2]:
        raise answer[2]
    return answer[0]


def extend(folder: int, devices: Sequence[tuple[int, int]], undo: Undo, before: Callable[[], None]) -> None:
    """Have the device programs of an open cgroup folder say yes to these character devices as well, read and write.

    Each program that says no gets a replacement; all are loaded before the first one is replaced, and `before` is
    called first of all (it may raise). Programs above stay, with a warning where they say no. Raises OSError and
    CgroupFailed; what was done until then is in `undo`.
    """
    own, flags = query(folder)
    for number in query(folder, effective=True)[0]:
        if number not in own:
            _look_above(number, devices)
    swaps = []
    for number in own:
        old = undo.keep(open_program(number))
        program = instructions(old)
        if not all(allows(program, *device) for device in devices):
            before()
            swaps.append((old, undo.keep(load(widened(program, devices)))))
    for old, new in swaps:
        replace(folder, old, new, flags)
        undo.add(replace, folder, new, old, flags)


def _look_above(number: int, devices: Sequence[tuple[int, int]]) -> None:
    """Say which devices a program of a group above forbids: that group is not only the container's, so it stays."""
    undo = Undo()
    try:
        program = instructions(undo.keep(open_program(number)))
    except (OSError, CgroupFailed) as error:
        return note(f"device program {number} of a cgroup above the container's cannot be judged: {error}")
    finally:
        undo.close()
    forbidden = [f"{major}:{minor}" for major, minor in devices if allows(program, major, minor) is False]
    if forbidden:
        warn(
            CgroupFailed.reference,
            f"device program {number} of a cgroup above the container's forbids {', '.join(forbidden)};"
            " allow them there (systemd: DeviceAllow= of the slice or scope)",
        )
    return None


def query(group: int, *, effective: bool = False) -> tuple[tuple[int, ...], int]:
    """The ids of the device programs of an open cgroup folder, and the flags under which they are attached.

    effective: with those of the groups above that are asked as well (then the flags say nothing).
    """
    room = FIRST_ROOM
    for _ in range(10):
        ids = (ctypes.c_uint32 * room)()
        values = group, _CGROUP_DEVICE, int(effective), 0, ctypes.addressof(ids), room
        answer = _bpf(_PROG_QUERY, "=IIIIQI", *values)
        flags, count = struct.unpack_from("=I8xI", answer[1], 12)
        if not answer[2]:
            return tuple(ids[:count]), flags
        if answer[2].errno != ENOSPC:
            raise answer[2]
        room = count + 8
    raise OSError(ENOSPC, "the cgroup's device programs change all the time")


def open_program(number: int) -> int:
    """A descriptor, closed on exec, of the program with this id."""
    return _done(_bpf(_PROG_GET_FD_BY_ID, "=I", number))


def instructions(program: int) -> bytes:
    """The instructions of an open program, ready to be loaded again. Raises CgroupFailed if they are not shown."""
    size = struct.unpack_from("=I", _info(program, b""), 20)[0]
    room = ctypes.create_string_buffer(size)
    info = _info(program, struct.pack("=20xI8xQ", size, ctypes.addressof(room)))
    if not size or not struct.unpack_from("=Q", info, 32)[0]:
        raise CgroupFailed(
            "the kernel does not show the container's device program, so that it cannot be extended",
            hint="sysctl kernel.kptr_restrict=1 (or net.core.bpf_jit_harden=1), then start the container again",
        )
    return reloadable(room.raw)


def _info(program: int, wanted: bytes) -> bytes:
    info = ctypes.create_string_buffer(wanted, _INFO)
    _done(_bpf(_OBJ_GET_INFO_BY_FD, "=IIQ", program, _INFO, ctypes.addressof(info)))
    return info.raw


def load(program: bytes) -> int:
    """Load a device program: its descriptor, closed on exec. Raises CgroupFailed with the checker's last words."""
    answer = _load(program, 0)
    if answer[2] and answer[2].errno in (EACCES, EINVAL):
        log = ctypes.create_string_buffer(_LOG)
        _load(program, ctypes.addressof(log))
        words = log.value.decode("utf-8", "replace").strip().replace("\n", "; ")
        raise CgroupFailed(f"the kernel refuses the extended device program: {words[-200:] or answer[2].strerror}")
    return _done(answer)


def _load(program: bytes, log: int) -> tuple[int, bytes, OSError | None]:
    code, licence = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"Apache")
    count, level, size = len(program) // 8, int(bool(log)), _LOG if log else 0
    values = _TYPE_CGROUP_DEVICE, count, ctypes.addressof(code), ctypes.addressof(licence), level, size, log
    return _bpf(_PROG_LOAD, "=IIQQIIQII16s", *values, 0, 0, b"gpuhook")


def attach(group: int, program: int, flags: int, replaced: int = 0) -> None:
    """Attach an open program to an open cgroup folder, in place of another one if one is given."""
    _done(_bpf(_PROG_ATTACH, "=IIIII", group, program, _CGROUP_DEVICE, flags, replaced))


def replace(group: int, old: int, new: int, flags: int) -> None:
    """Put one attached program in the place of another, at once, under the flags of the old one.

    Without the multi flag a group has a single program, and attaching is replacing. Before Linux 5.6 there is a
    moment in which both are attached, and a device needs the consent of both.
    """
    if not flags & ALLOW_MULTI:
        return attach(group, new, flags & ALLOW_OVERRIDE)
    try:
        return attach(group, new, ALLOW_MULTI | _REPLACE, old)
    except OSError as error:
        if error.errno == ENOENT:
            raise CgroupFailed(
                "a device program of the container's cgroup cannot be replaced: it has changed, or a link holds it",
                hint="start the container again, or set no-cgroups = true and have the runtime allow the devices",
            ) from None
        if error.errno != EINVAL:
            raise
    return replace_by_hand(group, old, new)


def replace_by_hand(group: int, old: int, new: int) -> None:
    """Attach one program beside another, then detach the other."""
    attach(group, new, ALLOW_MULTI)
    try:
        detach(group, old)
    except OSError:
        detach(group, new)
        raise


def detach(group: int, program: int) -> None:
    """Detach an open program from an open cgroup folder."""
    _done(_bpf(_PROG_DETACH, "=III", group, program, _CGROUP_DEVICE))


def filesystem(folder: int) -> int:
    """The magic number of the filesystem of an open folder (fstatfs(2))."""
    room = ctypes.create_string_buffer(256)
    if _libc.fstatfs(ctypes.c_int(folder), room) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"fstatfs: {posix.strerror(code)}")
    return ctypes.c_ulong.from_buffer(room).value
