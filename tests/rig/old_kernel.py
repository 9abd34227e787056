"""Makes the kernel look old to a program: `python old_kernel.py NUMBER[,NUMBER] PROGRAM [ARG ...]` (x86-64).

A seccomp filter answers ENOSYS to these system calls and lets all others through (seccomp(2)).
"""

import ctypes
import os
import struct
import sys

ENOSYS = 38


def instruction(code: int, yes: int, no: int, value: int) -> bytes:
    """A struct sock_filter."""
    return struct.pack("HBBI", code, yes, no, value)


def install(numbers: list[int]) -> None:
    """Answer ENOSYS to these calls from now on, in all that follows."""
    program = instruction(0x20, 0, 0, 0)  # the call's number
    for number in numbers:
        program += instruction(0x15, 0, 1, number) + instruction(0x06, 0, 0, 0x00050000 | ENOSYS)
    program += instruction(0x06, 0, 0, 0x7FFF0000)
    room = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(room))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(header, len(header)), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    install([int(number) for number in sys.argv[1].split(",")])
    os.execv(sys.argv[2], sys.argv[2:])
