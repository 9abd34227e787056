"""`info`: the two layouts to the byte, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from tests.engine_cli.cli import Cli, as_nobody
from tests.rig.needs import need

GPUS = (
    {"index": 0, "minor": 1, "name": "NVIDIA H100 80GB HBM3", "brand": "Tesla", "arch": "9.0", "pci": "0000:01:00.0",
     "uuid": "GPU-00000000-1111-2222-3333-444444444440"},
    {"index": 1, "minor": 0, "name": "NVIDIA A2", "brand": "Nvidia", "arch": "8.6", "pci": "10000:C1:00.0",
     "uuid": "GPU-00000000-1111-2222-3333-444444444441"},
)  # fmt: skip
TEXT = """\
NVRM version:   535.261.03
CUDA version:   12.2

Device Index:   0
Device Minor:   1
Model:          NVIDIA H100 80GB HBM3
Brand:          Tesla
GPU UUID:       GPU-00000000-1111-2222-3333-444444444440
Bus Location:   00000000:01:00.0
Architecture:   9.0

Device Index:   1
Device Minor:   0
Model:          NVIDIA A2
Brand:          Nvidia
GPU UUID:       GPU-00000000-1111-2222-3333-444444444441
Bus Location:   00010000:c1:00.0
Architecture:   8.6
"""
CSV = """\
NVRM version,CUDA version
535.261.03,12.2

Device Index,Device Minor,Model,Brand,GPU UUID,Bus Location,Architecture
0,1,NVIDIA H100 80GB HBM3,Tesla,GPU-00000000-1111-2222-3333-444444444440,00000000:01:00.0,9.0
1,0,NVIDIA A2,Nvidia,GPU-00000000-1111-2222-3333-444444444441,00010000:c1:00.0,8.6
"""


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    need("gcc")
    return build(f"{tmp_path_factory.mktemp('h100')}/root", gpus=GPUS, version="535.261.03", cuda=(12, 2))


def driver_at(folder: Path, **fields: object) -> FakeDriver:
    need("gcc")
    return build(f"{folder}/root", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("words", "expected"), [((), TEXT), (("--csv",), CSV), (("--cs",), CSV)])
def test_info_to_the_byte(program: str, hopper: FakeDriver, words: tuple[str, ...], expected: str) -> None:
    """Labels in fifteen columns; or values between commas under two headings."""
    done = Cli(program, hopper.root)("info", *words)
    assert (done.status, done.stdout, done.stderr) == (0, expected, "")


@pytest.mark.parametrize(("words", "expected"), [((), TEXT), (("--csv",), CSV)])
def test_info_works_for_any_user(hopper: FakeDriver, words: tuple[str, ...], expected: str) -> None:
    """Without root: the driver's files are everybody's."""
    assert as_nobody(hopper.root, "info", *words) == (0, expected, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "NVRM version:   550.54.14\nCUDA version:   12.4\n"),
        (("--csv",), "NVRM version,CUDA version\n550.54.14,12.4\n\n" + CSV.splitlines()[3] + "\n"),
    ],
)
def test_info_without_gpus(program: str, tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    """The versions alone, and with --csv the second heading."""
    done = Cli(program, driver_at(tmp_path, gpus=0).root)("info", *words)
    assert (done.status, done.stdout, done.stderr) == (0, expected, "")


def test_info_in_every_layout(program: str, laid_out: FakeDriver) -> None:
    """Three GPUs, in the order of their addresses, wherever the libraries are."""
    lines = Cli(program, laid_out.root).lines("info")
    assert lines[:2] == ["NVRM version:   550.54.14", "CUDA version:   12.4"]
    minors = [line for line in lines if line.startswith("Device Minor:")]
    assert minors == [f"Device Minor:   {gpu.minor}" for gpu in laid_out.gpus]


def test_a_uuid_that_only_nvml_knows(program: str, tmp_path: Path) -> None:
    """Before a GPU's first use the kernel has no UUID; info tells NVML's."""
    gpus = [{"uuid": "GPU-11111111-2222-3333-4444-555555555555", "state": "no-uuid"}]
    lines = Cli(program, driver_at(tmp_path, gpus=gpus).root).lines("info")
    assert "GPU UUID:       GPU-11111111-2222-3333-4444-555555555555" in lines


@pytest.mark.parametrize("state", ["lost", "no-node"])
def test_a_broken_gpu_is_left_out(program: str, tmp_path: Path, state: str) -> None:
    """One bad GPU does not hide the others; stderr says what is wrong with it."""
    done = Cli(program, driver_at(tmp_path, gpus=[{"state": state}, {}]).root)("info", "--csv")
    assert done.status == 0
    assert [line.split(",")[0] for line in done.stdout.splitlines()[4:]] == ["1"]
    assert done.stderr.startswith("gpuhook: warning: gpu-lost: GPU 0 ")


def test_json_has_everything(program: str, hopper: FakeDriver) -> None:
    """The same facts by name, and the node."""
    table = json.loads(Cli(program, hopper.root)("info", "--json").stdout)
    assert (table["driver_version"], table["cuda_version"]) == ("535.261.03", "12.2")
    assert table["gpus"][1] == {
        "index": 1,
        "minor": 0,
        "uuid": "GPU-00000000-1111-2222-3333-444444444441",
        "bus_id": "00010000:c1:00.0",
        "model": "NVIDIA A2",
        "brand": "Nvidia",
        "architecture": "8.6",
        "node": "/dev/nvidia0",
        "fault": "",
        "mig_devices": [],
    }


def test_json_shows_broken_gpus_with_their_fault(program: str, tmp_path: Path) -> None:
    """A program that asks can see which GPU is broken, and how."""
    driver = driver_at(tmp_path, gpus=[{"state": "no-node"}, {"state": "lost"}, {}])
    gpus = json.loads(Cli(program, driver.root)("info", "--json").stdout)["gpus"]
    assert [bool(gpu["fault"]) for gpu in gpus] == [True, True, False]
    assert gpus[0]["node"] is None
    assert "NVML" in gpus[1]["fault"]


def test_a_driver_without_libcuda(program: str, tmp_path: Path) -> None:
    """NVML alone: info says that the CUDA version is not known, and goes on."""
    done = Cli(program, driver_at(tmp_path, without=("libcuda.so",)).root)("info")
    assert done.status == 0
    assert done.stdout.splitlines()[1:4] == ["CUDA version:   unknown", "", "Device Index:   0"]
    assert "libcuda" in done.stderr
