"""A real container gets real driver files from the hook; there is no GPU, so libraries must load and say so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.real_driver.conftest import Roots
from tests.real_driver.roots import TRIPLETS, Real, Shipped
from tests.rig.container import Container, Hook
from tests.rig.needs import need
from tests.rig.process import Result, run
from tools.real_driver import Generation

pytestmark = [pytest.mark.real_driver, pytest.mark.runtime]

PROJECT = Path(__file__).resolve().parents[2]
ALL = "NVIDIA_DRIVER_CAPABILITIES=all"
# What loads in an image that has glibc and nothing else.
LOADABLE = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-cfg.so.1",
    "libnvidia-opencl.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-allocator.so.1",
    "libnvidia-ngx.so.1",
    "libnvcuvid.so.1",
    "libnvidia-encode.so.1",
    "libnvidia-opticalflow.so.1",
    "libEGL_nvidia.so.0",
)


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("launcher"))
    start = "from gpuhook.hook import main; raise SystemExit(main())"
    done = run([sys.executable, "-c", start, "launchers", folder], cwd=str(PROJECT))
    assert done.status == 0, done.stderr
    return f"{folder}/gpuhook"


def start(real: Real, launcher: str, folder: Path, *args: str, env: tuple[str, ...] = (ALL,)) -> Result:
    """A container with all GPUs of this root, by the hook with the embedded engine."""
    need("runc")
    config = folder / "config.toml"
    config.write_text(f'[nvidia-container-cli]\nroot = "{real.root}"\n\n[gpuhook]\nbackend = "embedded"\n')
    hook = Hook(launcher, ("--config", str(config), "--debug", "prestart"))
    asked = ("NVIDIA_VISIBLE_DEVICES=all", *env)
    with Container(kind="debian", args=args, env=asked, hooks={"prestart": [hook]}) as container:
        return container.run()


def test_libraries_load_in_a_container(
    generation: Generation, roots: Roots, libraries: list[Shipped], launcher: str, tmp_path: Path
) -> None:
    """By their real SONAMEs, and each is the file of this driver version."""
    sonames = {each.soname for each in libraries if each.bits == 64}
    names = [name for name in LOADABLE if name in sonames]
    result = start(
        roots(generation, "unpacked"), launcher, tmp_path, "/bin/probe", *(f"dlopen:{name}" for name in names)
    )
    assert result.status == 0, result.stderr
    loaded = {name: result.seen.library(name) for name in names}
    assert {name: answer["error"] for name, answer in loaded.items() if "error" in answer} == {}
    files = {each.soname: Path(each.path).name for each in libraries}
    assert {name: Path(answer["file"]).name for name, answer in loaded.items()} == {
        name: files[name] for name in names
    }


def test_libcuda_answers_in_a_container(real: Real, launcher: str, tmp_path: Path) -> None:
    """The loader finds it and cuDriverGetVersion works, whatever the layout of the host."""
    result = start(real, launcher, tmp_path, "/bin/probe", "dlopen:libcuda.so.1", env=())
    assert result.status == 0, result.stderr
    answer = result.seen.library("libcuda.so.1")
    assert answer["file"].endswith(f"/libcuda.so.{real.version}")
    assert answer["status"] == 0
    assert answer["cuda"] > 11000


def test_nvidia_smi_runs_in_a_container(real: Real, launcher: str, tmp_path: Path) -> None:
    """It starts, loads NVML, and finds that nobody answers at /dev/nvidiactl."""
    result = start(real, launcher, tmp_path, "/bin/sh", "-c", "nvidia-smi; echo status $?")
    assert result.status == 0, result.stderr
    assert "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver" in result.stdout
    assert "status 9" in result.stdout


def test_32_bit_libraries_are_there_with_compat32(
    generation: Generation, roots: Roots, libraries: list[Shipped], launcher: str, tmp_path: Path
) -> None:
    """All that the packages ship for the capabilities, in the folder of the 32-bit loader."""
    if len(TRIPLETS) < 2 or not any(each.bits == 32 for each in libraries):
        pytest.skip("there are no 32-bit libraries of this generation")
    folder = f"/usr/lib/{TRIPLETS[1]}"
    result = start(roots(generation, "unpacked"), launcher, tmp_path, "/bin/probe", f"list:{folder}")
    assert result.status == 0, result.stderr
    shipped = {Path(each.path).name for each in libraries if each.bits == 32 and each.stem != "libOpenCL.so"}
    assert shipped <= set(result.seen.names(folder) or ())


def test_nothing_of_the_root_changes(real: Real, launcher: str, tmp_path: Path) -> None:
    """A start leaves the driver's own tree as it is."""
    before = sorted((path, path.lstat().st_mtime_ns) for path in Path(real.root).rglob("*"))
    result = start(real, launcher, tmp_path, "/bin/probe", "id")
    assert result.status == 0, result.stderr
    assert sorted((path, path.lstat().st_mtime_ns) for path in Path(real.root).rglob("*")) == before
