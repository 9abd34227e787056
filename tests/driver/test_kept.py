"""What is installed is searched for once and then kept, until something changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from gpuhook.driver import kept
from gpuhook.driver.inventory import find_installed


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    """A driver whose folders are older than any clock's tick."""
    return build(str(tmp_path / "driver"))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each search."""
    done: list[str] = []

    def search(*arguments: object) -> object:
        done.append("search")
        return find_installed(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(kept, "find_installed", search)
    monkeypatch.setattr(kept, "_newest", lambda _mark: 0)  # as if the driver had been installed long ago
    return done


def test_the_second_look_finds_the_snapshot(driver: FakeDriver, searches: list[str], tmp_path: Path) -> None:
    """And it holds the same as the search."""
    folder = str(tmp_path / "run")
    first = kept.installed(driver.host(), folder=folder)
    assert first == kept.installed(driver.host(), folder=folder) == find_installed(driver.host())
    assert searches == ["search"]


def test_a_new_file_in_a_folder_of_the_driver_is_noticed(
    driver: FakeDriver, searches: list[str], tmp_path: Path
) -> None:
    """A changed folder means another search."""
    folder = str(tmp_path / "run")
    kept.installed(driver.host(), folder=folder)
    os.unlink(f"{driver.root}/usr/bin/nvidia-smi")
    found = kept.installed(driver.host(), folder=folder)
    assert found
    assert not [path for path in found.binaries if path.endswith("nvidia-smi")]
    assert searches == ["search", "search"]


def test_another_path_means_another_search(driver: FakeDriver, searches: list[str], tmp_path: Path) -> None:
    """The folders in which programs are looked for are part of the key."""
    folder = str(tmp_path / "run")
    kept.installed(driver.host(), folder=folder)
    kept.installed(driver.host(), "/opt/x", folder=folder)
    assert searches == ["search", "search"]


@pytest.mark.parametrize(
    "change", [{"driver_version": 5}, {"libraries": [["a"]]}, {"binaries": "x"}, {"missing": None}]
)
def test_a_damaged_snapshot_is_no_snapshot(driver: FakeDriver, change: dict[str, object]) -> None:
    """Whatever is not of the right form is searched for anew."""
    good = kept.to_keep(find_installed(driver.host()))
    assert kept.from_kept(good) == find_installed(driver.host())
    assert kept.from_kept({**good, **change}) is None


def test_a_driver_that_was_just_installed_is_not_kept(driver: FakeDriver, tmp_path: Path) -> None:
    """Its folders could still change within one tick of their clock."""
    kept.installed(driver.host(), folder=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
