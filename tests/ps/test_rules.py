"""What device rules say of a GPU."""

from __future__ import annotations

import struct

import pytest

from gpuhook.kernel.devprog import widened
from gpuhook.ps.rules import Rules

NO = struct.pack("<BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)  # return 0
GPU0 = widened(NO, [(195, 0)])
STRANGE = struct.pack("<BBhi", 0x85, 0, 0, 1)  # calls a function


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (Rules(lines=("c 195:0 rw",)), True),
        (Rules(lines=()), False),
        (Rules(programs=()), True),
        (Rules(programs=(GPU0,)), True),
        (Rules(programs=(GPU0, NO)), False),
        (Rules(programs=(GPU0, STRANGE)), None),
        (Rules(programs=(STRANGE, NO)), False),
        (Rules(lines=("a *:* rwm",), programs=(NO,)), False),
        (Rules(lines=("a *:* rwm",), complete=False), None),
        (Rules(lines=(), complete=False), False),
    ],
)
def test_each_rule_has_a_veto(rules: Rules, allowed: bool | None) -> None:
    """Only what is known to forbid it is a no; what was not seen or understood leaves it open."""
    assert rules.allows(195, 0) is allowed
