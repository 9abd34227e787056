"""libnvidia-nvvm of the 470 series does not bear the driver's version: it counts beside that version's libcuda."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driver.roots import NARROW, WIDE, cache, core, find, paths, put

STEM, NAME = "libnvidia-nvvm.so", "libnvidia-nvvm.so.4.0.0"


def test_it_is_taken_beside_libcuda(tmp_path: Path) -> None:
    """With its own SONAME."""
    core(tmp_path, f"{WIDE}/nvidia/current")
    put(tmp_path, f"{WIDE}/nvidia/current/{NAME}", "libnvidia-nvvm.so.4")
    found = [each for each in find(tmp_path)[0] if each.stem == STEM]
    assert [(each.path, each.soname) for each in found] == [(f"{WIDE}/nvidia/current/{NAME}", "libnvidia-nvvm.so.4")]


def test_it_is_taken_where_the_cache_names_it(tmp_path: Path) -> None:
    """The cache alone does not decide, the neighbour does."""
    entries = core(tmp_path, "/opt/driver")
    cache(tmp_path, [("libnvidia-nvvm.so.4", put(tmp_path, f"/opt/driver/{NAME}")), *entries])
    assert paths(tmp_path, STEM) == [f"/opt/driver/{NAME}"]


@pytest.mark.parametrize("folder", [WIDE, f"{WIDE}/nvidia/tesla-470", "/usr/lib64"])
def test_elsewhere_it_is_another_driver_s(tmp_path: Path, folder: str) -> None:
    """What lies in any other folder has no surety."""
    core(tmp_path, f"{WIDE}/nvidia/current")
    cache(tmp_path, [("libnvidia-nvvm.so.4", put(tmp_path, f"{folder}/{NAME}"))])
    assert paths(tmp_path, STEM) == []


def test_the_versioned_one_wins(tmp_path: Path) -> None:
    """A left-over of an older driver stays unused, whatever comes first in the cache."""
    entries = core(tmp_path)
    old, new = put(tmp_path, f"{WIDE}/{NAME}"), put(tmp_path, f"{WIDE}/{STEM}.550.54.14")
    cache(tmp_path, [*entries, ("libnvidia-nvvm.so.4", old), ("libnvidia-nvvm.so.4", new)])
    assert paths(tmp_path, STEM) == [new]


def test_32_bits_have_their_own(tmp_path: Path) -> None:
    """The 32-bit libcuda vouches for the 32-bit one."""
    core(tmp_path)
    put(tmp_path, f"{NARROW}/libcuda.so.550.54.14", bits=32)
    put(tmp_path, f"{NARROW}/{NAME}", bits=32)
    assert paths(tmp_path, STEM) == [f"{NARROW}/{NAME}"]


def test_a_link_out_of_the_folder_does_not_count(tmp_path: Path) -> None:
    """The file itself must lie there."""
    core(tmp_path)
    put(tmp_path, f"/opt/{NAME}")
    (tmp_path / WIDE[1:] / NAME).symlink_to(f"/opt/{NAME}")
    assert paths(tmp_path, STEM) == []
