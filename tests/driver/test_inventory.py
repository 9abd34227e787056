"""The whole inventory of a fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from gpuhook.driver.inventory import find_installed, identity, take_inventory
from gpuhook.driver.model import Host
from gpuhook.refusals import DriverNotLoaded, DriverRootWrong
from tests.rig.needs import need

LAYOUTS = ("debian", "rhel", "driver-root")


@pytest.fixture(params=LAYOUTS)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> FakeDriver:
    return build(str(tmp_path), gpus=2, layout=request.param)


@pytest.mark.engine
def test_everything_that_was_built_is_found(driver: FakeDriver) -> None:
    """In every layout, each list is what the driver has, in order."""
    need()
    inventory = take_inventory(driver.host())
    assert inventory.driver_version == driver.version
    assert [gpu.uuid for gpu in inventory.gpus] == [gpu.uuid for gpu in driver.gpus]
    assert [gpu.fault for gpu in inventory.gpus] == ["", ""]
    assert [library.path for library in inventory.libraries] == [*driver.libraries, *driver.libraries32]
    assert inventory.binaries == driver.binaries
    assert inventory.firmware == driver.firmware
    assert inventory.sockets == driver.sockets
    assert {node.path: (node.major, node.minor) for node in inventory.nodes} == {
        path: number for path, number in driver.nodes.items() if not path[-1].isdigit()
    }
    assert [name for name, _content in inventory.proc_files] == ["params", "version", "registry"]


@pytest.mark.parametrize("open_module", [True, False])
def test_both_kinds_of_module(tmp_path: Path, open_module: bool) -> None:
    """The open and the proprietary module give the same inventory."""
    driver = build(str(tmp_path), open_module=open_module)
    assert take_inventory(driver.host()).driver_version == driver.version


def test_optional_things_may_lack(tmp_path: Path) -> None:
    """Without programs, firmware and sockets there is an inventory, and notes."""
    left_out = ("nvidia-smi", "gsp_ga10x.bin", "gsp_tu10x.bin", "/run/nvidia-persistenced/socket")
    inventory = take_inventory(build(str(tmp_path), without=left_out).host())
    assert inventory.firmware == ()
    assert "program nvidia-smi: not installed" in inventory.missing
    assert any("persistenced" in line for line in inventory.missing)


def test_no_module_no_inventory(tmp_path: Path) -> None:
    """A driver that is installed and not loaded offers nothing."""
    with pytest.raises(DriverNotLoaded):
        take_inventory(build(str(tmp_path), module_loaded=False).host())


def test_what_is_kept_gives_the_same_inventory(driver: FakeDriver) -> None:
    """With the kept part the result is equal, and the driver's files are not looked at again."""
    kept = find_installed(driver.host())
    fresh = take_inventory(driver.host())
    os.unlink(driver.path(driver.library("libcuda.so")))
    assert take_inventory(driver.host(), "", kept) == fresh


def test_what_was_kept_of_another_version_is_not_used(tmp_path: Path) -> None:
    """After an update of the module, the kept part is of no use."""
    driver = build(str(tmp_path))
    kept = find_installed(driver.host()).with_(driver_version="1.2", libraries=())
    assert len(take_inventory(driver.host(), "", kept).libraries) == len(driver.libraries) + len(driver.libraries32)


def changed(driver: FakeDriver, path: str = "") -> bool:
    host = driver.host()
    before = identity(host, path)
    yesterday = time.time_ns() - 86_400_000_000_000
    os.utime(driver.path(driver.libdir), ns=(yesterday, yesterday))
    return identity(host, path) != before


def test_the_identity_is_stable(driver: FakeDriver) -> None:
    """Nothing changed: the same key, equal to itself and printable."""
    assert identity(driver.host()) == identity(driver.host())
    assert changed(driver)


@pytest.mark.parametrize(
    "change",
    [
        ["cp", "{root}{lib}/libcuda.so.550.54.14", "{root}{lib}/new"],
        ["rm", "{root}{lib}/libcuda.so.550.54.14"],
        ["mv", "{root}{lib}/libcuda.so.550.54.14", "{root}{lib}/libcuda.so.1.2"],
        ["rm", "{root}/usr/bin/nvidia-smi"],
        ["rm", "{root}/lib/firmware/nvidia/550.54.14/gsp_ga10x.bin"],
        ["rm", "{root}/etc/ld.so.cache"],
        ["/sbin/ldconfig", "-r", "{root}"],
        ["sed", "-i", "s/550.54.14/550.54.15/", "{root}/proc/driver/nvidia/version"],
        ["mkdir", "-p", "{root}/run/opengl-driver/lib"],
        ["touch", "{root}/opt/odd/nvidia-smi"],
    ],
)
def test_a_change_of_the_driver_changes_the_identity(tmp_path: Path, change: list[str]) -> None:
    """Whatever touches what is installed touches the key."""
    driver = build(str(tmp_path))
    (tmp_path / "opt/odd").mkdir(parents=True)
    host = driver.host()
    before = identity(host, "/opt/odd")
    time.sleep(0.02)  # a coarse clock stamps files
    command = [word.format(root=driver.root, lib=driver.libdir) for word in change]
    subprocess.run(command, check=True, capture_output=True)
    assert identity(host, "/opt/odd") != before


def test_paths_and_roots_are_part_of_the_identity(tmp_path: Path) -> None:
    """Another PATH or another driver root is another question."""
    one, two = build(str(tmp_path / "a")), build(str(tmp_path / "b"))
    assert identity(one.host()) != identity(two.host())
    assert identity(one.host()) != identity(one.host(), "/opt/odd")


def test_a_driver_root_that_is_a_file(tmp_path: Path) -> None:
    """The error is the driver root's, in both functions."""
    (tmp_path / "file").touch()
    for ask in (take_inventory, identity):
        with pytest.raises(DriverRootWrong, match="Not a directory"):
            ask(Host(driver_root=str(tmp_path / "file")))


def test_no_descriptor_is_left_open(driver: FakeDriver) -> None:
    """What was opened is closed, also by a failure."""
    before = os.listdir("/proc/self/fd")
    take_inventory(driver.host())
    with pytest.raises(DriverRootWrong):
        take_inventory(Host(driver_root=f"{driver.root}/nothing"))
    assert os.listdir("/proc/self/fd") == before


def test_it_is_fast_enough(tmp_path: Path) -> None:
    """A container start waits: far below 40 ms, and a tenth of that with the kept part."""
    driver = build(str(tmp_path), gpus=8)
    host = driver.host()
    kept = find_installed(host)
    assert best(lambda: take_inventory(host)) < 0.040
    assert best(lambda: take_inventory(host, "", kept)) < 0.010


def best(work: object) -> float:
    assert callable(work)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def test_the_room_stays_light() -> None:
    """What a container start imports for the inventory holds nothing of the warm side; ctypes brings `os`."""
    code = "import sys; import gpuhook.driver.inventory, gpuhook.driver.select; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", _path(code)], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"re", "enum", "typing", "json", "collections", "functools", "contextlib", "dataclasses"}


def _path(code: str) -> str:
    return f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r}); {code}"
