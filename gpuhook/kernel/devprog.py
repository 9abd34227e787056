"""Device programs of cgroup v2 as arithmetic over instructions: what one says, and one that says yes more often.

A device program gets three words, `access << 16 | kind`, major and minor, and returns 1 for yes or 0 for no
(linux/bpf.h, struct bpf_cgroup_dev_ctx, Linux 4.15).
"""

from __future__ import annotations

import struct

from gpuhook.refusals import CgroupFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Instruction = tuple[int, int, int, int]

READ, WRITE = 2, 4
_CHAR = 2
# One instruction: opcode, source << 4 | destination, jump or memory offset, immediate (linux/bpf.h, struct bpf_insn).
_FORM = "<BBhi"
_CONTEXT = -1  # stands for the pointer to the three words; numbers in registers are never negative
_SCRATCH = 11  # the register in which a hardened kernel's just-in-time compiler hides constants
_MASK = {4: 0xFFFFFFFF, 6: 0xFFFFFFFF, 5: (1 << 64) - 1, 7: (1 << 64) - 1}
_CLEARS = {0xAC: 0xB4, 0xAF: 0xB7}  # x ^= x and x = 0, in 32 and in 64 bits
_LOADS = {0x61: 4, 0x69: 2, 0x71: 1}
_OPERATIONS: dict[int, Callable[[int, int], int]] = {
    0x00: lambda a, b: a + b,
    0x10: lambda a, b: a - b,
    0x40: lambda a, b: a | b,
    0x50: lambda a, b: a & b,
    0x60: lambda a, b: a << (b & 63),
    0x70: lambda a, b: a >> (b & 63),
    0xA0: lambda a, b: a ^ b,
    0xB0: lambda _a, b: b,
}
_TESTS: dict[int, Callable[[int, int], bool]] = {
    0x10: lambda a, b: a == b,
    0x20: lambda a, b: a > b,
    0x30: lambda a, b: a >= b,
    0x40: lambda a, b: bool(a & b),
    0x50: lambda a, b: a != b,
    0xA0: lambda a, b: a < b,
    0xB0: lambda a, b: a <= b,
}


def allows(program: bytes, major: int, minor: int) -> bool | None:
    """Whether a program lets a character device be read, written, and both; None if we do not understand it.

    We run it ourselves, since the kernel has no way to ask a device program a question.
    """
    answers = [verdict(program, access, major, minor) for access in (READ, WRITE, READ | WRITE)]
    return None if None in answers else all(answers)


def verdict(program: bytes, access: int, major: int, minor: int) -> int | None:
    """What a device program returns for a character device; None where it does something unusual, or loops."""
    context = struct.pack("<III", access << 16 | _CHAR, major, minor)
    code = _decoded(program)
    registers: list[int | None] = [None, _CONTEXT, *[None] * 9]
    at = 0
    for _ in code:
        if not 0 <= at < len(code):
            return None
        if code[at][0] == 0x95:
            return registers[0]
        jump = _step(code[at], registers, context)
        if jump is None:
            return None
        at += 1 + jump
    return None


def _step(instruction: Instruction, registers: list[int | None], context: bytes) -> int | None:
    """Do one instruction and say how far to jump after it; None for what we do not know."""
    opcode, pair, offset, immediate = instruction
    target, source, family = pair & 15, pair >> 4, opcode & 7
    if target >= _SCRATCH or source >= _SCRATCH:
        return None
    if family == 1:
        return _load_word(opcode, target, registers, context[offset:] if registers[source] == _CONTEXT else b"")
    other = registers[source] if opcode & 8 else immediate & _MASK.get(family, 0)
    if other is None or family not in _MASK:
        return None
    if family in (4, 7):
        return None if offset else _calculate(opcode, target, registers, other)
    return offset if opcode == 0x05 else _branch(opcode, registers[target], other, offset)


def _load_word(opcode: int, target: int, registers: list[int | None], memory: bytes) -> int | None:
    size = _LOADS.get(opcode, len(memory) + 1)
    if size > len(memory):
        return None
    registers[target] = int.from_bytes(memory[:size], "little")
    return 0


def _calculate(opcode: int, target: int, registers: list[int | None], other: int) -> int | None:
    """Arithmetic; of a pointer only a copy is known."""
    operation, mask, value = opcode & 0xF0, _MASK[opcode & 7], registers[target]
    if operation == 0xB0:
        registers[target] = other if other < 0 else other & mask
    elif operation not in _OPERATIONS or value is None or value < 0 or other < 0:
        return None
    else:
        registers[target] = _OPERATIONS[operation](value & mask, other & mask) & mask
    return 0


def _branch(opcode: int, value: int | None, other: int, offset: int) -> int | None:
    test, mask = _TESTS.get(opcode & 0xF0), _MASK[opcode & 7]
    if test is None or value is None or value < 0 or other < 0:
        return None
    return offset if test(value & mask, other & mask) else 0


def widened(program: bytes, devices: Iterable[tuple[int, int]]) -> bytes:
    """A program that says yes to reading and writing these character devices and else what `program` says.

    It never says yes to making a node. The number of devices is limited by a jump's reach, 32767 instructions.
    """
    majors: dict[int, list[int]] = {}
    for major, minor in sorted(set(devices)):
        majors.setdefault(major, []).append(minor)
    size = left = sum(1 + len(minors) for minors in majors.values())
    own = [
        _code(0x61, 2, 1, 0),  # r2 = access << 16 | kind
        _code(0xBF, 3, 2),
        _code(0x77, 3, immediate=16),  # r3 = access
        _code(0x57, 2, immediate=0xFFFF),  # r2 = kind
        _code(0x55, 2, offset=size + 7, immediate=_CHAR),
        _code(0x57, 3, immediate=~(READ | WRITE)),
        _code(0x55, 3, offset=size + 5, immediate=0),
        _code(0x61, 4, 1, 4),  # r4 = major
        _code(0x61, 5, 1, 8),  # r5 = minor
    ]
    # Minors stand below their major, so that the kernel's checker sees few paths and its work grows with the list.
    for major, minors in majors.items():
        own.append(_code(0x55, 4, offset=len(minors), immediate=major))
        left -= 1
        for minor in minors:
            own.append(_code(0x15, 5, offset=left, immediate=minor))
            left -= 1
    own += [_code(0x05, offset=2), _code(0xB7, 0, immediate=1), _code(0x95)]
    return b"".join(own) + program


def _decoded(program: bytes) -> list[Instruction]:
    return [(opcode, pair, offset, value) for opcode, pair, offset, value in struct.iter_unpack(_FORM, program)]


def _code(opcode: int, target: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    return struct.pack(_FORM, opcode, source << 4 | target, offset, immediate)


def reloadable(program: bytes) -> bytes:
    """The instructions as they have to be loaded, from those that the kernel shows of a loaded program.

    Raises CgroupFailed for a program that does more than compare numbers.
    """
    code = _decoded(program)
    if any(opcode == 0x85 or (opcode == 0x18 and pair >> 4) for opcode, pair, _, _ in code):
        raise CgroupFailed(
            "the container's device program calls functions or has maps; only one that compares numbers is extended",
            hint="set no-cgroups = true and have the runtime allow the devices",
        )
    used = {pair & 15 for _, pair, _, _ in code} | {pair >> 4 for _, pair, _, _ in code}
    return _unblinded(code, used) if _SCRATCH in used else program


def _unblinded(code: list[Instruction], used: set[int]) -> bytes:
    """The program without the register that is the kernel's own (it shows up with net.core.bpf_jit_harden = 2).

    A hardened kernel writes `x = 5` as `r11 = 5 ^ random; r11 ^= random; x = r11`, so any free register will do,
    and `x = 0` as `x ^= x`, which its own checker takes for a read of a register that was never set.
    """
    free = [number for number in range(10) if number not in used]
    if not free:
        raise CgroupFailed(
            "the kernel hides the constants of the container's device program",
            hint="sysctl net.core.bpf_jit_harden=1, then start the container again",
        )
    parts = []
    for opcode, pair, offset, immediate in code:
        target, source = (free[0] if number == _SCRATCH else number for number in (pair & 15, pair >> 4))
        if opcode in _CLEARS and target == source:
            parts.append(_code(_CLEARS[opcode], target))
        else:
            parts.append(_code(opcode, target, source, offset, immediate))
    return b"".join(parts)
