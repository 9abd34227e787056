"""The 470 series' libcuda loads libnvidia-nvvm by the name without a number, which no SONAME gives."""

from __future__ import annotations

import pytest

from gpuhook.driver.model import Library
from gpuhook.plan.ops import Link, MergeCache
from tests.plan.make import INVENTORY, WIDE, plan


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("libnvidia-nvvm.so.4.0.0", {"libnvidia-nvvm.so", "libnvidia-nvvm.so.4"}),
        ("libnvidia-nvvm.so.535.309.01", {"libnvidia-nvvm.so.4"}),
    ],
)
def test_it_has_the_name_without_a_number(file: str, names: set[str]) -> None:
    """As a link and in the loader's cache; drivers that ask by SONAME need none."""
    nvvm = Library(stem="libnvidia-nvvm.so", path=f"/opt/{file}", soname="libnvidia-nvvm.so.4", bits=64)
    ops = plan("compute", inventory=INVENTORY.with_(libraries=(nvvm,))).ops
    assert {op.target for op in ops if isinstance(op, Link)} == {f"{WIDE}/{name}" for name in names}
    entries = next(op.entries for op in ops if isinstance(op, MergeCache))
    assert {(entry.soname, entry.path) for entry in entries} == {(name, f"{WIDE}/{file}") for name in names}
