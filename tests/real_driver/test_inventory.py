"""What is found of real drivers, against what their packages ship."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuhook.driver import kept
from gpuhook.driver.inventory import find_installed, take_inventory
from gpuhook.driver.model import Installed, Inventory, Selection
from gpuhook.driver.query import cuda_version
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Bind, Image
from gpuhook.refusals import DriverMismatch
from gpuhook.request.model import DeviceChoice, Request
from tests.real_driver.conftest import NUMBERS, Roots
from tests.real_driver.roots import Real, Shipped
from tools.real_driver import Generation

pytestmark = pytest.mark.real_driver

PROJECT = Path(__file__).resolve().parents[2]
# First driver branch of each CUDA version.
CUDA = {470: "11.4", 510: "11.6", 515: "11.7", 525: "12.0", 535: "12.2", 550: "12.4", 570: "12.8", 575: "12.9"}
# What nvidia-container-cli gives for each capability, of what packages may ship (libraries by the name without `lib`).
NAMED = {
    "utility": "nvidia-ml nvidia-cfg nvidia-nscq",
    "compute": "cuda cudadebugger nvidia-opencl nvidia-gpucomp nvidia-ptxjitcompiler nvidia-fatbinaryloader "
    "nvidia-allocator nvidia-compiler nvidia-pkcs11 nvidia-pkcs11-openssl3 nvidia-nvvm",
    "ngx": "nvidia-ngx",
    "video": "vdpau_nvidia nvidia-encode nvidia-opticalflow nvcuvid",
    "graphics": "nvidia-eglcore nvidia-glcore nvidia-tls nvidia-glsi nvidia-fbc nvidia-ifr nvidia-rtcore nvoptix "
    "GLX_nvidia EGL_nvidia GLESv2_nvidia GLESv1_CM_nvidia nvidia-glvkspirv nvidia-cbl",
}
# What packages ship besides, and why no container gets it.
NOT_GIVEN = {
    "libOpenCL.so": "the loader that belongs to the image, as libGL does",
    "libnvidia-api.so": "NVAPI for Proton, without a version; nvidia-container-cli leaves it out",
    "libnvidia-vulkan-producer.so": "Vulkan on Wayland, until 535; nvidia-container-cli leaves it out",
}
EGL_HELPER = "libnvidia-egl-"  # with versions of their own, given with graphics


def stems(capability: str) -> set[str]:
    return {f"lib{name}.so" for name in NAMED[capability].split()}


ALL = frozenset[str]().union(*map(stems, NAMED))


@pytest.fixture
def inventory(real: Real) -> Inventory:
    return take_inventory(real.host)


def given(inventory: Inventory, *capabilities: str) -> set[str]:
    """The libraries that a container with these capabilities gets, by their paths in the driver root."""
    devices = DeviceChoice(names=("all",), sources=("NVIDIA_VISIBLE_DEVICES",))
    request = Request(container="c", pid=1, rootfs="/r", devices=devices, capabilities=capabilities)
    plan = build_plan(request, inventory, Selection(gpus=inventory.gpus), Image())
    root = inventory.host.driver_root
    return {op.source.removeprefix(root) for op in plan.ops if isinstance(op, Bind) and ".so" in op.source}


def test_every_library_of_a_capability_is_found(inventory: Inventory, libraries: list[Shipped]) -> None:
    """Path, size and SONAME of each are those of the packages, whatever the layout; 32-bit ones included."""
    found = {(each.path, each.stem, each.bits, each.soname) for each in inventory.libraries}
    assert found == {(each.path, each.stem, each.bits, each.soname) for each in libraries if each.stem in ALL}


def test_libraries_of_the_packages_are_given_or_known_not_to_be(
    inventory: Inventory, libraries: list[Shipped]
) -> None:
    """A name that nobody has thought of fails here when a new generation brings it."""
    found = {each.stem for each in (*inventory.libraries, *inventory.helpers)}
    assert {each.stem for each in libraries} - found <= NOT_GIVEN.keys()


def test_helpers_of_egl_are_found(inventory: Inventory, libraries: list[Shipped]) -> None:
    """They have versions of their own."""
    assert {(each.path, each.soname) for each in inventory.helpers} == {
        (each.path, each.soname) for each in libraries if each.stem.startswith(EGL_HELPER)
    }


@pytest.mark.parametrize("capability", NAMED)
def test_a_capability_gives_its_libraries(inventory: Inventory, libraries: list[Shipped], capability: str) -> None:
    """All of its row, in both sizes with compat32."""
    wanted = {each.path for each in libraries if each.stem in stems(capability)}
    assert wanted <= given(inventory, capability, "compat32")


@pytest.mark.parametrize("capability", [*NAMED, "display"])
def test_a_capability_is_complete(inventory: Inventory, libraries: list[Shipped], capability: str) -> None:
    """No library is linked with another one of the driver that the capability does not bring."""
    has = given(inventory, capability, "compat32")
    own = {(each.soname, each.bits) for each in libraries if each.stem in ALL}
    mine = {(each.soname, each.bits) for each in libraries if each.path in has}
    needed = {(name, each.bits): each.path for each in libraries if each.path in has for name in each.needed}
    assert {need: path for need, path in needed.items() if need in own and need not in mine} == {}


def test_programs_are_those_of_the_series(inventory: Inventory, real: Real) -> None:
    """Of Debian's folders the one that belongs to the running module counts, whatever the alternatives say."""
    folder = f"/usr/lib/nvidia/{real.generation.slot}"
    assert {f"{folder}/nvidia-smi", f"{folder}/nvidia-debugdump"} <= set(inventory.binaries)
    programs = ("/usr/bin/nvidia-persistenced", "/usr/bin/nvidia-cuda-mps-control", "/usr/sbin/nvidia-cuda-mps-server")
    assert set(inventory.binaries) - {f"{folder}/nvidia-smi", f"{folder}/nvidia-debugdump"} == {
        path for path in programs if os.path.exists(f"{real.root}{path}")
    }


def test_firmware_of_the_version_is_found(inventory: Inventory, real: Real) -> None:
    """Where the series has it."""
    folder = Path(real.root, "lib/firmware/nvidia", real.version)
    assert inventory.firmware == tuple(
        f"/lib/firmware/nvidia/{real.version}/{path.name}" for path in sorted(folder.glob("gsp*.bin"))
    )


def test_gpus_and_nodes_are_those_of_the_kernel(inventory: Inventory) -> None:
    """The rest of the root is usable as any driver root is."""
    assert [(gpu.minor, gpu.fault) for gpu in inventory.gpus] == [(0, ""), (1, "")]
    assert len(inventory.nodes) == 4


def test_libcuda_tells_its_version_without_a_gpu(inventory: Inventory) -> None:
    """The real cuDriverGetVersion answers in the confined child."""
    version = cuda_version(inventory)
    assert version == CUDA.get(int(inventory.driver_version.partition(".")[0]), version)


COLD = """
import time
begin = time.perf_counter()
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.model import Host
loaded = time.perf_counter()
take_inventory(Host(driver_root={root!r}, proc={root!r} + "/proc", sys={root!r} + "/sys"))
print(loaded - begin, time.perf_counter() - loaded)
"""


def seconds(root: str) -> tuple[float, float]:
    """How long a new process takes to load our modules, and for its first inventory."""
    code = f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n{COLD.format(root=root)}"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={})
    loading, taking = map(float, done.stdout.split())
    return loading, taking


def test_an_inventory_takes_less_than_40_ms(real: Real) -> None:
    """Cold, in a process that has done nothing else; the best of ten, as the machine may be busy."""
    spent = [seconds(real.root)[1] for _ in range(10)]
    NUMBERS.append(f"{real.version}, {real.layout}: inventory {min(spent) * 1000:.1f} ms")
    assert min(spent) < 0.040


def test_the_snapshot_saves_the_search(real: Real, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is searched for once, and then it is the same."""
    first = find_installed(real.host)
    searches = []

    def search(*_arguments: object) -> Installed:
        searches.append("search")
        return first

    monkeypatch.setattr(kept, "find_installed", search)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:  # it is not kept while its folders could still change unnoticed
        kept.installed(real.host, folder=str(tmp_path))
        count = len(searches)
        if kept.installed(real.host, folder=str(tmp_path)) == first and len(searches) == count:
            break
        time.sleep(0.1)
    begin = time.perf_counter()
    assert kept.installed(real.host, folder=str(tmp_path)) == first
    spent = time.perf_counter() - begin
    assert len(searches) == count
    NUMBERS.append(f"{real.version}, {real.layout}: from the snapshot {spent * 1000:.1f} ms")


def test_another_generation_is_a_mismatch(generation: Generation, roots: Roots) -> None:
    """Where the running module's own libraries are not there, the error names both versions."""
    real = roots(generation, "cache")
    version = Path(real.root, "proc/driver/nvidia/version")
    text = version.read_text()
    try:
        version.chmod(0o644)
        version.write_text(text.replace(real.version, "999.10.01"))
        with pytest.raises(DriverMismatch) as raised:
            take_inventory(real.host)
    finally:
        version.write_text(text)
    assert real.version in str(raised.value)
    assert "999.10.01" in str(raised.value)
