"""Drivers whose halves do not fit together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.driver.build import build
from gpuhook.driver.inventory import take_inventory
from gpuhook.refusals import DriverLibsMissing, DriverMismatch
from tests.driver.roots import CORE, NARROW, VERSION, WIDE, cache, core, find, paths, put

OTHER = "550.90.07"


@pytest.mark.parametrize("layout", ["debian", "rhel"])
@pytest.mark.parametrize("with_cache", [True, False])
def test_libraries_that_were_updated_under_a_running_module(tmp_path: Path, layout: str, with_cache: bool) -> None:
    """Both versions, the files and the cure are in the message."""
    driver = build(str(tmp_path), layout=layout, libraries_version=OTHER, cache=with_cache)
    with pytest.raises(DriverMismatch) as caught:
        take_inventory(driver.host())
    assert caught.value.text == f"kernel module {VERSION}, libraries {OTHER}: they must be the same version"
    assert f"{driver.libdir}/libcuda.so.{OTHER} (updated just now)" in caught.value.where
    assert f"{driver.libdir}/libnvidia-ml.so.{OTHER}" in caught.value.where
    assert "/proc/driver/nvidia/version" in caught.value.where
    assert "reboot, or unload and reload" in caught.value.hint


def test_the_message_is_one_line_and_three(tmp_path: Path) -> None:
    """The house format: the first line is complete, then where, then what to do."""
    driver = build(str(tmp_path), libraries_version=OTHER)
    with pytest.raises(DriverMismatch) as caught:
        take_inventory(driver.host())
    lines = caught.value.render().split("\n")
    assert len(lines) == 3
    assert lines[0].startswith("gpuhook: driver-lib-mismatch: kernel module 550.54.14, libraries 550.90.07")


def test_both_versions_are_installed(tmp_path: Path) -> None:
    """The right one is taken, and nobody is told off."""
    driver = build(str(tmp_path), libraries_version=(VERSION, OTHER))
    found = take_inventory(driver.host()).libraries
    assert {library.path.partition(".so.")[2] for library in found} == {VERSION}


def test_one_core_library_of_another_version(tmp_path: Path) -> None:
    """Half an update is a mismatch too: the container would have no libcuda."""
    cache(tmp_path, [core(tmp_path)[0], ("libcuda.so.1", put(tmp_path, f"/opt/libcuda.so.{OTHER}"))])
    (tmp_path / f"{WIDE}/libcuda.so.{VERSION}".lstrip("/")).unlink()
    with pytest.raises(DriverMismatch, match=OTHER):
        find(tmp_path)


def test_one_core_library_of_another_version_beside_no_cache(tmp_path: Path) -> None:
    """Without a cache its SONAME link tells."""
    put(tmp_path, f"{WIDE}/libnvidia-ml.so.{VERSION}")
    put(tmp_path, f"{WIDE}/libcuda.so.{OTHER}")
    (tmp_path / f"{WIDE}/libcuda.so.1".lstrip("/")).symlink_to(f"libcuda.so.{OTHER}")
    with pytest.raises(DriverMismatch, match=OTHER):
        find(tmp_path)


@pytest.mark.parametrize("stem", CORE)
def test_one_core_library_is_not_installed(tmp_path: Path, stem: str) -> None:
    """A host with nvidia-smi alone, or with libcuda alone, still has a driver."""
    put(tmp_path, f"{WIDE}/{stem}.{VERSION}")
    assert paths(tmp_path) == [f"{WIDE}/{stem}.{VERSION}"]


def test_no_libraries_at_all(tmp_path: Path) -> None:
    """What to install is said, for this branch."""
    driver = build(str(tmp_path), without=CORE)
    with pytest.raises(DriverLibsMissing) as caught:
        take_inventory(driver.host())
    assert f"kernel module {VERSION} is loaded" in caught.value.text
    assert "libnvidia-compute-550" in caught.value.hint


def test_only_32_bit_libraries(tmp_path: Path) -> None:
    """They are not enough, and that is said."""
    core(tmp_path, NARROW)
    for stem in CORE:
        put(tmp_path, f"{NARROW}/{stem}.{VERSION}", bits=32)
    with pytest.raises(DriverLibsMissing, match="only 32-bit libraries"):
        find(tmp_path)


def test_32_bit_libraries_of_another_version_are_no_mismatch(tmp_path: Path) -> None:
    """Nor are foreign files: only native libraries are the driver's other half."""
    put(tmp_path, f"{WIDE}/libcuda.so.{OTHER}", machine=243)
    narrow = put(tmp_path, f"{NARROW}/libcuda.so.{OTHER}", bits=32)
    cache(tmp_path, [("libcuda.so.1", narrow, 32)])
    with pytest.raises(DriverLibsMissing):
        find(tmp_path)


def test_a_stub_without_a_version_is_no_mismatch(tmp_path: Path) -> None:
    """CUDA's development stubs are called libcuda.so."""
    put(tmp_path, f"{WIDE}/libcuda.so")
    os.mkfifo(tmp_path / f"{WIDE}/libcuda.so.{OTHER}".lstrip("/"))
    with pytest.raises(DriverLibsMissing):
        find(tmp_path)


def test_the_age_of_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long ago the files came tells whether an update is to blame."""
    core(tmp_path, version=OTHER)
    now = os.stat(tmp_path / f"{WIDE}/libcuda.so.{OTHER}".lstrip("/")).st_ctime
    monkeypatch.setattr("gpuhook.driver.mismatch.time", lambda: now + 3 * 86400 + 10)
    with pytest.raises(DriverMismatch) as caught:
        find(tmp_path)
    assert "(updated 3 days ago)" in caught.value.where


def test_other_libraries_of_another_version_are_only_absent(tmp_path: Path) -> None:
    """A stray old libnvidia-nscq stops nobody."""
    cache(tmp_path, [*core(tmp_path), ("libnvidia-nscq.so.2", put(tmp_path, f"{WIDE}/libnvidia-nscq.so.{OTHER}"))])
    assert paths(tmp_path) == [f"{WIDE}/{stem}.{VERSION}" for stem in CORE]
