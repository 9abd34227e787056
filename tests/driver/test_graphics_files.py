"""What Vulkan, EGL and OpenCL need beside the libraries: small files by fixed lists, and EGL's helpers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from gpuhook.driver import kept, tables
from gpuhook.driver.extras import find_files
from gpuhook.driver.inventory import find_installed, identity, take_inventory
from gpuhook.driver.libraries import find_helpers
from gpuhook.kernel.beneath import Root
from tests.driver.roots import NARROW, VERSION, WIDE, put

ICD = "/etc/vulkan/icd.d/nvidia_icd.json"
VENDOR = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"


def files(root: Path) -> tuple[tuple[str, str], ...]:
    with Root(str(root)) as opened:
        return find_files(opened)


def touch(root: Path, path: str) -> str:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("{}")
    return path


@pytest.mark.parametrize("target", sorted({path for paths in tables.HOST_FILES.values() for path in paths}))
def test_each_file_is_found_in_its_place(tmp_path: Path, target: str) -> None:
    """Containers get it there too."""
    touch(tmp_path, target)
    assert files(tmp_path) == ((target, target),)


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("/usr/share/vulkan/icd.d/nvidia_icd.json", ICD),
        ("/usr/local/share/vulkan/icd.d/nvidia_icd.json", ICD),
        (f"/usr/share/vulkan/icd.d/nvidia_icd.{os.uname().machine}.json", ICD),
        ("/usr/share/vulkan/implicit_layer.d/nvidia_layers.json", "/etc/vulkan/implicit_layer.d/nvidia_layers.json"),
        ("/etc/glvnd/egl_vendor.d/10_nvidia.json", VENDOR),
    ],
)
def test_another_place_on_the_host(tmp_path: Path, place: str, target: str) -> None:
    """Distributions differ, containers get one and the same place: an image's own file is covered, not joined."""
    touch(tmp_path, place)
    assert files(tmp_path) == ((target, place),)


def test_the_first_of_several(tmp_path: Path) -> None:
    """One file for each target, the plain name before the machine's."""
    for place in (
        f"/etc/vulkan/icd.d/nvidia_icd.{os.uname().machine}.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.json",
    ):
        touch(tmp_path, place)
    assert files(tmp_path) == ((ICD, "/usr/share/vulkan/icd.d/nvidia_icd.json"),)


def test_links_of_alternatives(tmp_path: Path) -> None:
    """Debian's names lead through /etc/alternatives; the file behind them is what is taken."""
    touch(tmp_path, "/usr/lib/nvidia/current/nvidia_icd.json")
    for link, to in (
        (ICD, "/etc/alternatives/icd"),
        ("/etc/alternatives/icd", "/usr/lib/nvidia/current/nvidia_icd.json"),
    ):
        place = tmp_path / link.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(to)
    assert files(tmp_path) == ((ICD, "/usr/lib/nvidia/current/nvidia_icd.json"),)


@pytest.mark.attack
def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    """AC-78: a FIFO, a folder, a link to nowhere or out of the root."""
    os.makedirs(tmp_path / "etc/vulkan/icd.d/nvidia_icd.json")
    os.makedirs(tmp_path / "usr/share/glvnd/egl_vendor.d")
    os.mkfifo(f"{tmp_path}{VENDOR}")
    os.makedirs(tmp_path / "etc/OpenCL/vendors")
    os.symlink("../../../../etc/passwd", tmp_path / "etc/OpenCL/vendors/nvidia.icd")
    assert files(tmp_path) == ()


def test_helpers_of_any_version(tmp_path: Path) -> None:
    """Each by its SONAME's link, resolved, of both sizes; not what is no library or leads to another name."""
    for folder, bits in ((WIDE, 64), (NARROW, 32)):
        put(tmp_path, f"{folder}/libnvidia-egl-gbm.so.1.1.1", bits=bits)
        os.symlink("libnvidia-egl-gbm.so.1.1.1", f"{tmp_path}{folder}/libnvidia-egl-gbm.so.1")
    Path(f"{tmp_path}{WIDE}/libnvidia-egl-wayland.so.1").write_text("no library")
    os.symlink("libnvidia-egl-gbm.so.1.1.1", f"{tmp_path}{WIDE}/libnvidia-egl-xcb.so.1")
    with Root(str(tmp_path)) as root:
        found = find_helpers(root, VERSION)
    assert [(each.path, each.soname, each.bits) for each in found] == [
        (f"{WIDE}/libnvidia-egl-gbm.so.1.1.1", "libnvidia-egl-gbm.so.1", 64),
        (f"{NARROW}/libnvidia-egl-gbm.so.1.1.1", "libnvidia-egl-gbm.so.1", 32),
    ]


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return build(str(tmp_path / "driver"))


def test_a_drivers_inventory_has_them(driver: FakeDriver) -> None:
    """Apart from the libraries that nvidia-container-cli lists."""
    inventory = take_inventory(driver.host())
    assert [target for target, _ in inventory.files] == [VENDOR, ICD]
    assert {each.stem for each in inventory.helpers} == {"libnvidia-egl-gbm.so", "libnvidia-egl-wayland.so"}
    assert not {each.stem for each in inventory.libraries} & set(tables.EGL_HELPERS)


def test_they_are_kept_and_noticed(driver: FakeDriver) -> None:
    """The snapshot holds them; a new file changes the identity."""
    found = find_installed(driver.host())
    assert kept.from_kept(kept.to_keep(found)) == found
    before = identity(driver.host())
    touch(Path(driver.root), "/etc/OpenCL/vendors/nvidia.icd")
    assert identity(driver.host()) != before


@pytest.mark.parametrize("change", [{"files": [["a"]]}, {"files": 1}, {"helpers": None}, {"helpers": [[]]}])
def test_a_damaged_snapshot_is_none(driver: FakeDriver, change: dict[str, object]) -> None:
    """As for the rest of it."""
    assert kept.from_kept({**kept.to_keep(find_installed(driver.host())), **change}) is None
