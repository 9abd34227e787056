from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.kernel.devprog import allows, reloadable, verdict, widened
from gpuhook.refusals import CgroupFailed
from tests.kernel.probes import ALLOW_ALL, DENY_ALL, GPU, NULL, insn, runc_like

numbers = st.one_of(st.sampled_from([0, 1, 3, 5, 10, 136, 195, 200, 229, 254, 255]), st.integers(0, 4095))
device = st.tuples(numbers, numbers)
rules = st.tuples(st.sampled_from([1, 2]), st.none() | numbers, st.none() | numbers, st.integers(1, 7))


def by_rules(listed: list[tuple[int, int | None, int | None, int]], access: int, major: int, minor: int) -> bool:
    return any(
        kind == 2 and its_major in (None, major) and its_minor in (None, minor) and access & ~its_access == 0
        for kind, its_major, its_minor, its_access in listed
    )


@given(st.lists(rules, max_size=12), st.integers(1, 7), device)
def test_running_a_program_gives_what_its_rules_say(
    listed: list[tuple[int, int | None, int | None, int]], access: int, asked: tuple[int, int]
) -> None:
    """A runtime's program, run by us, answers like the list that it was made from."""
    program = runc_like(tuple(listed))

    assert verdict(program, access, *asked) == by_rules(listed, access, *asked)


@given(st.lists(rules, max_size=8), st.lists(device, min_size=1, max_size=40), st.integers(1, 7), device, st.data())
def test_a_widened_program_adds_reading_and_writing_and_nothing_else(
    listed: list[tuple[int, int | None, int | None, int]],
    added: list[tuple[int, int]],
    access: int,
    other: tuple[int, int],
    data: st.DataObject,
) -> None:
    """Yes to rw of the added devices; for mknod and for all other devices the old program decides."""
    old = runc_like(tuple(listed))
    asked = data.draw(st.sampled_from([other, *added]))
    expected = verdict(old, access, *asked) if access & 1 or asked not in added else 1

    assert verdict(widened(old, added), access, *asked) == expected


@given(device, device)
def test_widening_twice_keeps_both(first: tuple[int, int], second: tuple[int, int]) -> None:
    """A program that was extended once can be extended again."""
    program = widened(widened(DENY_ALL, [first]), [second])

    assert allows(program, *first)
    assert allows(program, *second)


@pytest.mark.parametrize(("program", "expected"), [(ALLOW_ALL, True), (DENY_ALL, False), (runc_like(), False)])
def test_allows_a_gpu(program: bytes, expected: bool) -> None:
    """Whole programs are judged by read, write, and both."""
    assert allows(program, *GPU) is expected


def test_reading_alone_is_not_enough() -> None:
    """A program that lets a device only be read is one that has to be extended."""
    assert allows(runc_like(((2, 195, 0, 2),)), *GPU) is False
    assert allows(runc_like(((2, 195, 0, 6),)), *GPU) is True
    assert allows(runc_like(), *NULL) is True


@pytest.mark.parametrize(
    "program",
    [
        insn(0x85, value=5) + insn(0x95),
        insn(0x05, offset=-1) + insn(0x95),
        insn(0x05, offset=9) + insn(0x95),
        insn(0xB7),
        insn(0x95),
        insn(0x61, 0, 1, 12) + insn(0x95),
        insn(0x61, 0, 10, -8) + insn(0x95),
        insn(0x07, 1, value=4) + insn(0x95),
        insn(0xBF, 0, 12) + insn(0x95),
        insn(0x87, 0) + insn(0x95),
        insn(0x65, 0, offset=0, value=-1) + insn(0x95),
        b"",
    ],
)
def test_a_program_that_is_not_understood_gets_no_answer(program: bytes) -> None:
    """Calls, loops, jumps and loads out of bounds, unset registers and unknown instructions are not guessed at."""
    assert verdict(program, 6, *GPU) is None
    assert allows(program, *GPU) is None


@given(st.binary(max_size=200).map(lambda data: data[: len(data) // 8 * 8]))
def test_any_bytes_are_judged_without_a_failure(program: bytes) -> None:
    """Whatever the instructions, the answer is a number or None."""
    assert allows(program, *GPU) in (True, False, None)


@pytest.mark.parametrize("program", [insn(0x85, value=1) + insn(0x95), insn(0x18, 1, 1) + insn(0) + insn(0x95)])
def test_programs_with_functions_or_maps_are_refused(program: bytes) -> None:
    """What cannot be loaded again as shown is said to be so."""
    with pytest.raises(CgroupFailed, match="functions or has maps"):
        reloadable(program)


def test_a_hardened_kernels_register_is_replaced() -> None:
    """Constants hidden in r11, and x ^= x for zero, become a program that can be loaded and says the same."""
    shown = insn(0xB7, 11, value=0x1234 ^ 7) + insn(0xA7, 11, value=7) + insn(0x61, 2, 1) + insn(0x5D, 2, 11, offset=1)
    shown += insn(0xBF, 0, 11) + insn(0xAF, 0, 0) + insn(0xAC, 3, 3) + insn(0x95)

    program = reloadable(shown)

    assert all(instruction & 15 <= 10 and instruction >> 4 <= 10 for instruction in program[1::8])
    assert program[-24:-8] == insn(0xB7, 0) + insn(0xB4, 3)
    assert verdict(program, 6, *GPU) == 0


def test_no_free_register_for_hidden_constants() -> None:
    """If all registers are in use, the refusal names the setting."""
    shown = b"".join(insn(0xB7, number) for number in range(10)) + insn(0xB7, 11) + insn(0x95)

    with pytest.raises(CgroupFailed) as caught:
        reloadable(shown)

    assert "bpf_jit_harden" in caught.value.hint
