"""`list`: which options print what, in which order, to the byte."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from fixtures.driver import kernel_view
from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from gpuhook import note
from gpuhook.engine_cli import main
from tests.engine_cli.cli import Cli
from tests.rig.needs import need

COMMON = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
CHANNELS = "/dev/nvidia-caps-imex-channels/channel"
CAPABILITIES = "/proc/driver/nvidia/capabilities"


def expected(driver: FakeDriver, blocks: str) -> list[str]:
    """The lines of these blocks of a driver without MIG."""
    known = {
        "common": COMMON,
        **{f"gpu{gpu.index}": [f"/dev/nvidia{gpu.minor}"] for gpu in driver.gpus},
        "gpus": [f"/dev/nvidia{gpu.minor}" for gpu in driver.gpus],
        "bin": driver.binaries,
        "lib": driver.libraries,
        "lib32": driver.libraries32,
        "ipc": driver.sockets,
        "mps": driver.sockets[2:],
        "fabric": driver.sockets[1:],
        "persist": [driver.sockets[0], driver.sockets[2]],
        "fw": driver.firmware,
        **{f"channel{number}": [f"{CHANNELS}{number}"] for number in (0, 3, 1048575)},
    }
    return [line for block in blocks.split() for line in known[block]]


EVERYTHING = "common gpus bin lib lib32 ipc fw"
TABLE = [
    ("", EVERYTHING),
    ("-d all", "common gpus"),
    ("-dALL", "common gpus"),
    ("--device=", "common"),
    ("--device=,,", "common"),
    ("-d0", "common gpu0"),
    ("--device=2,0", "common gpu2 gpu0"),
    ("-d 1 -d 0,1", "common gpu1 gpu0"),
    ("-d 0:3f:0 -d 0000:3b:00.0", "common gpu1 gpu0"),
    ("-l", "lib"),
    ("--lib --compat32", "lib lib32"),
    ("--compat32", ""),
    ("-b", "bin"),
    ("-i", "ipc"),
    ("-f", "fw"),
    ("-lb", "bin lib"),
    ("-fibl --compat32 -d0", "common gpu0 bin lib lib32 ipc fw"),
    ("-i --no-persistenced", "fabric"),
    ("--no-fabricmanager -i", "persist"),
    ("-i --no-persistenced --no-fabricmanager", "mps"),
    ("-f --no-gsp-firmware", ""),
    ("--no-gsp-firmware -f", ""),
    ("--no-gsp-firmware", ""),
    ("--no-persistenced", ""),
    ("--", ""),
    ("--cuda-compat-mode=mount", ""),
    ("-l --cuda-compat-mode ldconfig", "lib"),
    ("--imex-channel=3", "common gpus channel3 bin lib lib32 ipc fw"),
    ("--imex-channel=3,0", "common gpus channel3 channel0 bin lib lib32 ipc fw"),
    ("--imex-channel=", EVERYTHING),
    ("--imex=0", "common gpus channel0 bin lib lib32 ipc fw"),
    ("--imex-channel 0", "channel0"),
    ("--imex-channel=0 --imex-channel=,3,1048575,", "channel0 channel3 channel1048575"),
    ("-b --imex-channel=0 -d1", "common gpu1 channel0 bin"),
    ("--mig-config=all", ""),
    ("-d0 --mig-config=all --mig-monitor=ALL", "common gpu0"),
]


@pytest.mark.parametrize(("words", "blocks"), TABLE)
def test_what_options_print(cli: Cli, driver: FakeDriver, words: str, blocks: str) -> None:
    """Every kind of file has its option; without options, or with a single --imex-channel=, everything is printed."""
    assert cli.lines("list", *words.split()) == expected(driver, blocks)


BLOCKS = {"-dall": "common gpus", "-b": "bin", "-l": "lib", "--compat32": "lib32", "-i": "ipc", "-f": "fw"}


def test_every_combination_in_every_layout(laid_out: FakeDriver, capfd: pytest.CaptureFixture[str]) -> None:
    """The order is fixed and the blocks are independent, but for compat32, which needs -l."""
    for chosen in product((False, True), repeat=len(BLOCKS)):
        on = [switch for switch, is_on in zip(BLOCKS, chosen, strict=True) if is_on]
        if not on:
            continue
        status = main([f"--root={laid_out.root}", "list", *on])
        blocks = [BLOCKS[switch] for switch in on if switch != "--compat32" or "-l" in on]
        assert (status, capfd.readouterr().out.splitlines()) == (0, expected(laid_out, " ".join(blocks))), on


def test_the_whole_list_to_the_byte(program: str, tmp_path: Path) -> None:
    """A small driver's output, line by line."""
    need("gcc")
    names = [
        "libnvidia-cfg.so", "libnvidia-nscq.so", "libcudadebugger.so", "libnvidia-opencl.so", "libnvidia-gpucomp.so",
        "libnvidia-allocator.so", "libnvidia-pkcs11.so", "libnvidia-pkcs11-openssl3.so", "libnvidia-nvvm.so",
        "libnvidia-ngx.so", "libvdpau_nvidia.so", "libnvidia-encode.so", "libnvidia-opticalflow.so", "libnvcuvid.so",
        "libnvidia-eglcore.so", "libnvidia-glcore.so", "libnvidia-tls.so", "libnvidia-glsi.so", "libnvidia-fbc.so",
        "libnvidia-rtcore.so", "libnvoptix.so", "libGLX_nvidia.so", "libEGL_nvidia.so", "libGLESv2_nvidia.so",
        "libGLESv1_CM_nvidia.so", "libnvidia-glvkspirv.so", "nvidia-debugdump", "nvidia-persistenced",
        "nv-fabricmanager", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "gsp_ga10x.bin", "gsp_tu10x.bin",
        "/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps",
    ]  # fmt: skip
    driver = build(f"{tmp_path}/root", gpus=2, version="535.261.03", without=names, bits32=False)
    folder = driver.libdir
    done = Cli(program, driver.root)("list")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout == (
        "/dev/nvidiactl\n/dev/nvidia-uvm\n/dev/nvidia-uvm-tools\n/dev/nvidia-modeset\n/dev/nvidia0\n/dev/nvidia1\n"
        "/usr/bin/nvidia-smi\n"
        f"{folder}/libnvidia-ml.so.535.261.03\n"
        f"{folder}/libcuda.so.535.261.03\n"
        f"{folder}/libnvidia-ptxjitcompiler.so.535.261.03\n"
    )


def test_absent_uvm_nodes_are_not_printed(program: str, tmp_path: Path) -> None:
    """UVM's nodes are there only with their module; the other two are printed without a look."""
    need("gcc")
    driver = build(f"{tmp_path}/root", uvm_major=None)
    Path(driver.path("/dev/nvidia-modeset")).unlink()
    Path(driver.path("/dev/nvidiactl")).unlink()
    assert Cli(program, driver.root).lines("list", "-d0") == ["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia0"]


@pytest.mark.parametrize("words", [(), ("-d", "all"), ("-d", "nonsense")])
def test_without_gpus_the_selection_is_not_looked_at(program: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The common nodes are still printed."""
    need("gcc")
    driver = build(f"{tmp_path}/root", gpus=0)
    lines = Cli(program, driver.root).lines("list", *words)
    assert lines[:5] == [*COMMON, *driver.binaries[:1]] if not words else lines == COMMON


def test_a_broken_gpu_is_left_out_of_all(program: str, tmp_path: Path) -> None:
    """With a warning on stderr; asking for it by name fails."""
    need("gcc")
    cli = Cli(program, build(f"{tmp_path}/root", gpus=[{"state": "no-node"}, {}]).root)
    done = cli("list", "-d", "all")
    assert (done.status, done.stdout.splitlines()) == (0, [*COMMON, "/dev/nvidia1"])
    assert "warning: device-node-perms: GPU 0 " in done.stderr
    assert cli.refusal("list", "-d0") == "mount error: stat failed: /dev/nvidia0: no such file or directory"


def test_a_uuid_and_its_beginning(cli: Cli, driver: FakeDriver) -> None:
    """A whole UUID in any case; a unique beginning is an addition of ours."""
    uuid = driver.gpus[1].uuid
    for name in (uuid, uuid.upper(), uuid[:12]):
        assert cli.lines("list", "-d", name) == expected(driver, "common gpu1")


def test_mps_of_another_folder(cli: Cli, driver: FakeDriver, tmp_path: Path) -> None:
    """CUDA_MPS_PIPE_DIRECTORY names the folder, in the driver root."""
    (Path(driver.root) / "run/mps").mkdir(exist_ok=True)
    lines = cli.lines("list", "-i", env={"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"})
    assert lines == [*driver.sockets[:2], "/run/mps"]
    assert cli.lines("list", "-i", env={"CUDA_MPS_PIPE_DIRECTORY": "relative"}) == list(driver.sockets)


# --- MIG ---


def mig_lines(gpu: int, gi: int, *, nodes: bool = True) -> list[str]:
    """What a MIG device brings. gpu: minor."""
    folder = f"{CAPABILITIES}/gpu{gpu}/mig/gi{gi}"
    numbers = (kernel_view.cap_minor(gpu, gi), kernel_view.cap_minor(gpu, gi, 0))
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers]
    return [f"{folder}/access", f"{folder}/ci0/access", *(caps if nodes else [])]


def mig_cli(program: str, driver: FakeDriver, *words: str) -> list[str]:
    """Runs with the fake's /proc in place of the host's, where MIG's numbers stand."""
    done = Cli(program, driver.root)("list", *words)
    assert done.status == 0, done.stderr
    return done.stdout.splitlines()


ALL_MIG = [line for gpu in (1, 0) for gi in (1, 2) for line in mig_lines(gpu, gi, nodes=False)]


def test_all_brings_mig_devices(program: str, cut: FakeDriver) -> None:
    """Each with its two files; nodes only where /proc/devices of the machine knows nvidia-caps."""
    assert mig_cli(program, cut, "-d", "all") == [*COMMON, "/dev/nvidia1", "/dev/nvidia0", *ALL_MIG]


def in_process(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *words: str
) -> list[str]:
    """The list with the fake's /proc in place of the machine's."""
    from gpuhook.driver.model import Host

    monkeypatch.setattr(Host, "proc", driver.proc)
    monkeypatch.setattr(note, "log", None)
    assert main([f"--root={driver.root}", "list", *words]) == 0
    return capfd.readouterr().out.splitlines()


NEWER = [line for gpu in (1, 0) for gi in (1, 2) for line in mig_lines(gpu, gi)]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("-d", "all"), [*COMMON, "/dev/nvidia1", "/dev/nvidia0", *NEWER]),
        (("-d", "0"), [*COMMON, "/dev/nvidia1"]),
        (("-d", "0:1"), [*COMMON, "/dev/nvidia1", *mig_lines(1, 2)]),
        (("-d", "MIG-00000001-0000-0000-0000-000000000001"), [*COMMON, "/dev/nvidia0", *mig_lines(0, 1)]),
        (("-d", "0:0,0:1"), [*COMMON, "/dev/nvidia1", *mig_lines(1, 1), *mig_lines(1, 2)]),
    ],
)
def test_mig_devices_with_nodes(
    cut: FakeDriver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...], lines: list[str],
) -> None:  # fmt: skip
    """Two files, then two nodes, of each device; a GPU by its own name brings none."""
    assert in_process(cut, monkeypatch, capfd, *words) == lines


def whole_mig(what: str, number: int, *gpus: int) -> list[str]:
    """What configuring or monitoring MIG takes. gpus: minors."""
    lines = [f"{CAPABILITIES}/mig/{what}", f"/dev/nvidia-caps/nvidia-cap{number}"]
    for gpu in gpus:
        minors = [kernel_view.cap_minor(gpu, gi, ci) for gi in range(15) for ci in (None, *range(8))]
        lines += [f"{CAPABILITIES}/gpu{gpu}", "/dev/nvidia-caps", *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in minors)]
    return lines


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("-d", "0", "--mig-config=all"), [*COMMON, "/dev/nvidia1", *whole_mig("config", 1, 1)]),
        (
            ("-d", "0", "--mig-monitor=all", "-d1"),
            [*COMMON, "/dev/nvidia1", "/dev/nvidia0", *whole_mig("monitor", 2, 1, 0)],
        ),
        (
            ("-d", "all", "--mig-config", "All", "--mig-monitor=all"),
            [*COMMON, "/dev/nvidia1", "/dev/nvidia0", *whole_mig("config", 1, 1, 0), *whole_mig("monitor", 2, 1, 0)],
        ),
        (("--mig-config=all",), []),
    ],
)
def test_the_whole_of_mig(
    cut: FakeDriver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...], lines: list[str],
) -> None:  # fmt: skip
    """Configuration, then monitoring, for the selected GPUs; no single MIG devices then."""
    assert in_process(cut, monkeypatch, capfd, *words) == lines


# --- JSON ---


def test_json_has_the_blocks_that_were_asked_for(cli: Cli, driver: FakeDriver) -> None:
    """Keys of the kinds, GPUs and libraries with what is known of them."""
    table = json.loads(cli("list", "-d1", "-lb", "--json").stdout)
    assert sorted(table) == ["binaries", "devices", "driver_version", "gpus", "libraries", "root"]
    assert table["devices"] == expected(driver, "common gpu1")
    assert [gpu["uuid"] for gpu in table["gpus"]] == [driver.gpus[1].uuid]
    assert [library["path"] for library in table["libraries"]] == list(driver.libraries)
    cuda = next(library for library in table["libraries"] if "libcuda.so" in library["path"])
    assert (cuda["soname"], cuda["bits"], cuda["capability"]) == ("libcuda.so.1", 64, "compute")


def test_json_alone_means_everything(cli: Cli, driver: FakeDriver) -> None:
    """--json does not count as a word."""
    table = json.loads(cli("list", "--json").stdout)
    assert table["firmwares"] == list(driver.firmware)
    assert table["ipcs"] == list(driver.sockets)
    assert {library["bits"] for library in table["libraries"]} == {32, 64}
    table = json.loads(cli("list", "--json", "--imex-channel=4").stdout)
    assert (table["imex_channels"], "devices" in table) == ([f"{CHANNELS}4"], True)
