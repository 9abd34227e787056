"""GPUs as procfs tells them, whole and broken."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuhook.driver.gpus import find_gpus, is_uuid, parse_address
from gpuhook.driver.model import Gpu
from gpuhook.kernel.beneath import Root
from gpuhook.refusals import NotCovered
from tests.rig.needs import need

pytestmark = pytest.mark.engine

UUID = "GPU-00000000-0000-0000-0000-0000000000a0"


@pytest.fixture(autouse=True)
def _root() -> None:
    need()


def uuid(number: int) -> str:
    return f"{UUID[:-2]}{number:02x}"


def put(root: Path, address: str, *, minor: int = 0, node: bool = True, **labels: str) -> None:
    """A GPU's file and its node. labels: other values, or "-" to leave the line out."""
    lines = {
        "Model": "Tesla T4",
        "IRQ": "140",
        "GPU UUID": uuid(0xA0 + minor),
        "Bus Location": address,
        "Device Minor": str(minor),
        "GPU Excluded": "No",
        **{key.replace("_", " "): value for key, value in labels.items()},
    }
    write(root, address, "".join(f"{label}: \t {value}\n" for label, value in lines.items() if value != "-"))
    if node:
        make_node(root, f"nvidia{minor}", 195, minor)


def write(root: Path, address: str, text: str) -> None:
    folder = root / "proc/driver/nvidia/gpus" / address
    folder.mkdir(parents=True)
    (folder / "information").write_text(text)


def make_node(root: Path, name: str, major: int, minor: int, kind: int = stat.S_IFCHR) -> None:
    (root / "dev").mkdir(exist_ok=True)
    os.mknod(root / "dev" / name, kind | 0o666, os.makedev(major, minor))


def gpus(root: Path) -> tuple[Gpu, ...]:
    with Root(str(root)) as opened:
        return find_gpus(opened)[0]


def only(root: Path) -> Gpu:
    (gpu,) = gpus(root)
    return gpu


def test_a_gpu_is_what_its_file_says(tmp_path: Path) -> None:
    """Every field comes from procfs and from the node."""
    put(tmp_path, "0000:3b:00.0", minor=3)
    gpu = only(tmp_path)
    assert (gpu.index, gpu.minor, gpu.uuid, gpu.bus_id, gpu.model, gpu.proc_folder, gpu.fault) == (
        0,
        3,
        uuid(0xA3),
        "00000000:3b:00.0",
        "Tesla T4",
        "0000:3b:00.0",
        "",
    )
    assert gpu.node is not None
    assert (gpu.node.path, gpu.node.major, gpu.node.minor) == ("/dev/nvidia3", 195, 3)


def test_order_is_by_pci_address(tmp_path: Path) -> None:
    """NVML's index follows the address as a number, not the minor and not the text."""
    for minor, address in enumerate(("0001:01:00.0", "10000:01:00.0", "0000:af:00.0", "0000:3B:00.0")):
        put(tmp_path, address, minor=minor)
    assert [(gpu.index, gpu.bus_id) for gpu in gpus(tmp_path)] == [
        (0, "00000000:3b:00.0"),
        (1, "00000000:af:00.0"),
        (2, "00000001:01:00.0"),
        (3, "00010000:01:00.0"),
    ]


@pytest.mark.parametrize("label", ["GPU Excluded", "GPU Blacklisted", "Blacklisted"])
def test_excluded_gpus_do_not_count(tmp_path: Path, label: str) -> None:
    """A GPU that the driver excludes has no index; the next one takes it."""
    put(tmp_path, "0000:01:00.0", minor=0, node=True, **{label.replace(" ", "_"): "Yes"})
    put(tmp_path, "0000:02:00.0", minor=1)
    assert [(gpu.index, gpu.minor) for gpu in gpus(tmp_path)] == [(0, 1)]


@pytest.mark.parametrize("text", ["GPU-????????-????-????-????-????????????", "", "-"])
def test_a_uuid_that_the_kernel_does_not_know_yet(tmp_path: Path, text: str) -> None:
    """Until its first use a GPU may have no UUID; it works all the same."""
    put(tmp_path, "0000:01:00.0", GPU_UUID=text)
    assert (only(tmp_path).uuid, only(tmp_path).fault) == ("", "")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"Device_Minor": "-"}, "no valid `Device Minor`"),
        ({"Device_Minor": "255"}, "no valid `Device Minor`"),
        ({"Device_Minor": "-1"}, "no valid `Device Minor`"),
        ({"Device_Minor": "0x1"}, "no valid `Device Minor`"),
        ({"Device_Minor": "٣"}, "no valid `Device Minor`"),
        ({"GPU_UUID": "GPU-0000"}, "malformed UUID"),
        ({"GPU_UUID": f"{UUID}/../../x"}, "malformed UUID"),
        ({"Bus_Location": "0000:99:00.0"}, "speaks of a GPU at 0000:99:00.0"),
    ],
)
def test_a_broken_file_is_a_fault_of_its_gpu(tmp_path: Path, change: dict[str, str], says: str) -> None:
    """A half-written file stops only those who want this GPU; the others keep their places."""
    put(tmp_path, "0000:01:00.0", minor=7, node=True, **change)
    put(tmp_path, "0000:02:00.0", minor=1)
    broken, good = gpus(tmp_path)
    assert says in broken.fault
    assert (good.index, good.fault) == (1, "")


@pytest.mark.parametrize("text", ["", "Model: Tesla", "\0\xff\n\n:::\n", "Device Minor\n0\n"])
def test_files_that_are_no_information(tmp_path: Path, text: str) -> None:
    """Nothing that stands in a file brings us down."""
    write(tmp_path, "0000:01:00.0", text)
    assert only(tmp_path).fault


def test_a_missing_information_file(tmp_path: Path) -> None:
    """A folder alone is a broken GPU."""
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    assert "cannot be read: No such file" in only(tmp_path).fault


def test_an_information_file_that_is_a_fifo(tmp_path: Path) -> None:
    """It is not waited for."""
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "information")
    assert "a FIFO" in only(tmp_path).fault


@pytest.mark.parametrize(
    ("kind", "number", "says"),
    [
        (stat.S_IFBLK, (195, 0), "a block device"),
        (stat.S_IFCHR, (195, 1), "195:1, not 195:0"),
        (stat.S_IFCHR, (1, 1), "1:1, not 195:0"),
        (stat.S_IFREG, (0, 0), "a regular file"),
        (stat.S_IFIFO, (0, 0), "a FIFO"),
    ],
)
@pytest.mark.attack
def test_a_wrong_node_is_a_fault(tmp_path: Path, kind: int, number: tuple[int, int], says: str) -> None:
    """AC-78: what stands at /dev/nvidia0 must be the character device 195:0."""
    put(tmp_path, "0000:01:00.0", node=False)
    make_node(tmp_path, "nvidia0", *number, kind)
    gpu = only(tmp_path)
    assert gpu.node is None
    assert says in gpu.fault


@pytest.mark.attack
def test_a_node_that_links_elsewhere_is_a_fault(tmp_path: Path) -> None:
    """AC-78: a link to another device, inside or outside, does not help."""
    put(tmp_path, "0000:01:00.0", node=False)
    make_node(tmp_path, "sda", 8, 0, stat.S_IFBLK)
    (tmp_path / "dev/nvidia0").symlink_to("/dev/sda")
    assert "a block device" in only(tmp_path).fault


def test_a_missing_node_is_a_fault(tmp_path: Path) -> None:
    """The text names the node."""
    put(tmp_path, "0000:01:00.0", node=False)
    assert only(tmp_path).fault == "/dev/nvidia0 does not exist"


def test_two_gpus_of_one_minor_are_both_refused(tmp_path: Path) -> None:
    """One of them would be given in place of the other."""
    put(tmp_path, "0000:01:00.0", minor=0)
    put(tmp_path, "0000:02:00.0", minor=0, node=False, GPU_UUID=uuid(1))
    put(tmp_path, "0000:03:00.0", minor=2)
    assert ["claims the device minor 0" in gpu.fault for gpu in gpus(tmp_path)] == [True, True, False]


def test_two_gpus_of_one_uuid_are_both_refused(tmp_path: Path) -> None:
    """A UUID means one GPU."""
    put(tmp_path, "0000:01:00.0", minor=0, GPU_UUID=UUID)
    put(tmp_path, "0000:02:00.0", minor=1, GPU_UUID=UUID)
    assert ["claims the UUID" in gpu.fault for gpu in gpus(tmp_path)] == [True, True]


def test_gpus_without_a_uuid_are_not_doubles(tmp_path: Path) -> None:
    """Not to know is not to be the same."""
    for minor in (0, 1):
        put(tmp_path, f"0000:0{minor}:00.0", minor=minor, GPU_UUID="-")
    assert [gpu.fault for gpu in gpus(tmp_path)] == ["", ""]


@pytest.mark.parametrize("count", [64, 65])
def test_no_more_than_64_gpus(tmp_path: Path, count: int) -> None:
    """The 65th is refused, with the number."""
    for minor in range(count):
        put(tmp_path, f"0000:{minor:02x}:00.0", minor=minor, node=False)
    if count == 64:
        assert len(gpus(tmp_path)) == 64
    else:
        with pytest.raises(NotCovered, match="65 GPUs"):
            gpus(tmp_path)


def test_names_that_are_no_address_are_passed_over(tmp_path: Path) -> None:
    """Only PCI addresses are GPUs; the rest is noted."""
    write(tmp_path, "foo", "")
    with Root(str(tmp_path)) as root:
        found, missing = find_gpus(root)
    assert found == ()
    assert missing == ("/proc/driver/nvidia/gpus/foo: its name is no PCI address",)


def test_no_folder_no_gpus(tmp_path: Path) -> None:
    """A driver without GPUs is no error of ours."""
    assert gpus(tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:01:00.0", (0, 1, 0, 0)),
        ("0000fFfF:AF:1f.7", (0xFFFF, 0xAF, 0x1F, 7)),
        ("000:01:00.0", None),
        ("000000000:01:00.0", None),
        ("0000:1:00.0", None),
        ("0000:01:00", None),
        ("0000:01:00.00", None),
        ("0000:0x:00.0", None),
        ("0000:+1:00.0", None),
        ("", None),
    ],
)
def test_addresses(text: str, address: tuple[int, ...] | None) -> None:
    """The kernel's spelling, and nothing that looks like it."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "GPU", UUID[:-1], f"{UUID}0", UUID.replace("0", "g", 1), UUID.lower(), f"{UUID}-"]
)
def test_what_is_no_uuid(text: str) -> None:
    """Only the whole form counts."""
    assert is_uuid(UUID)
    assert not is_uuid(text)
