"""The twin of engine.md 5.16: a Debian container with all capabilities and two GPUs, as nvidia-container-cli makes it.

What is expected is written here by the reference's rules, from what the fake driver consists of, not from our plan.
Each difference is named with a text of docs/differences.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixtures.driver import tables
from gpuhook.plan.ops import Bind, Op, Tmpfs
from tests.attack.rounds import plan_of
from tests.engine.perform import perform
from tests.rig.init import Init
from tests.rig.probe import Seen
from tests.rig.rootfs import TRIPLET, make_rootfs
from tests.runtime.node import GPUS, PAIRS, Node

pytestmark = pytest.mark.runtime

DIFFERENCES = Path(__file__).resolve().parents[2] / "docs/differences.md"
LIBDIR, LIBDIR32 = f"/usr/lib/{TRIPLET}", "/usr/lib/i386-linux-gnu"
GBM = f"{LIBDIR}/gbm"
WANTED = "NVIDIA_DRIVER_CAPABILITIES=all"
CHOSEN = GPUS[:2]
FILE, NODE = "ro,nosuid,nodev", "ro,nosuid,noexec"
SOCKET = "rw,nosuid,nodev,noexec"
EXTRA_LINKS = {
    "libcuda.so": "libcuda.so.1",
    "libGLX_indirect.so.0": "libGLX_nvidia.so.{}",
    "libnvidia-opticalflow.so": "libnvidia-opticalflow.so.1",
}
# What we give beyond the twin, and where that is written down.
JSON = {"/etc/vulkan/icd.d/nvidia_icd.json": FILE, "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": FILE}
HELPERS = {"libnvidia-egl-gbm.so.1": "1.1.1", "libnvidia-egl-wayland.so.1": "1.1.13"}
WRITTEN = (
    "no file of Vulkan, EGL and OpenCL loaders, no helper of EGL (edge 35)",
    "no `/proc/driver/nvidia` in the container: fails (edge 1) | skipped with a note",
    "the tmpfs over it stays writable (edge 34) | read-only",
    "ldconfig: scripts do nothing (15), none in the image does nothing (16, 17)",
)


@dataclass(frozen=True)
class Pair:
    """What a container without GPUs and one with them see."""

    node: Node
    plain: Seen
    seen: Seen

    def new_names(self, folder: str) -> set[str]:
        """The names in a folder that the container without GPUs does not have."""
        return set(self.seen.names(folder) or ()) - set(self.plain.names(folder) or ())


def sonames(bits: int, version: str) -> dict[str, str]:
    """The links that ldconfig makes for the driver's libraries of this kind: name → what it says."""
    there = [each for each in tables.LIBRARIES if not each.decoy and (bits == 64 or each.both)]
    names = {each.soname(version): each.file_name(version) for each in there}
    return {name: file for name, file in names.items() if name != file}


def links(bits: int, version: str) -> dict[str, str]:
    """All links beside the libraries of this kind, without our helpers'."""
    stems = {each.stem for each in tables.LIBRARIES if not each.decoy and (bits == 64 or each.both)}
    of = {"libGLX_indirect.so.0": "libGLX_nvidia.so"}
    extra = {name: to.format(version) for name, to in EXTRA_LINKS.items() if of.get(name, name) in stems}
    return {**sonames(bits, version), **extra}


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest, node: Node) -> Pair:
    runtime, cgroup = request.param
    folders = (LIBDIR, LIBDIR32, "/usr/bin", GBM)
    stats = [f"stat:{LIBDIR}/{name}" for name in (*links(64, node.driver.version), *HELPERS, "gbm/nvidia-drm_gbm.so")]
    stats += [f"stat:{LIBDIR32}/{name}" for name in links(32, node.driver.version)]
    numbers = [(195, minor) for minor in (0, 1, 2, 254, 255)] + [(511, 0), (511, 1), (237, 1), (1, 1)]
    questions = (
        "mounts", "devices", *(f"list:{folder}" for folder in folders), *stats,
        *(f"rule:{major}:{minor}" for major, minor in numbers),
        "read:/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf",
    )  # fmt: skip
    plain = node.run(*questions, gpus=None, runtime=runtime, cgroup=cgroup)
    asked = node.run(*questions, gpus="0,1", env=(WANTED,), runtime=runtime, cgroup=cgroup)
    assert (plain.status, asked.status) == (0, 0), asked.stderr
    return Pair(node, plain.seen, asked.seen)


def twin_mounts(node: Node) -> dict[str, str]:
    """Mount point → flags, as the table of the reference has them."""
    driver = node.driver
    named = {
        "/usr/bin/": driver.binaries, f"{LIBDIR}/": driver.libraries, f"{LIBDIR32}/": driver.libraries32,
        f"/usr/lib/firmware/nvidia/{driver.version}/": driver.firmware,
    }  # fmt: skip
    files = [folder + os.path.basename(path) for folder, paths in named.items() for path in paths]
    nodes = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
    nodes += [f"/dev/nvidia{gpu['minor']}" for gpu in CHOSEN]
    return {
        "/etc/nvidia/nvidia-application-profiles-rc.d": SOCKET,
        **dict.fromkeys(files, FILE),
        **dict.fromkeys((*tables.SOCKETS, tables.MPS), SOCKET),
        **dict.fromkeys(nodes, NODE),
    }


def test_mounts_and_their_flags(pair: Pair) -> None:
    """The same mount points with the same flags, and the files for graphics that the twin lacks."""
    ours = {
        point: ",".join(flag for flag in options.split(",") if flag in ("ro", "rw", "nosuid", "nodev", "noexec"))
        for point, options in pair.seen.mount_points.items()
        if point not in pair.plain.mount_points
    }
    helpers = {f"{LIBDIR}/{name.removesuffix('.1')}.{number}": FILE for name, number in HELPERS.items()}
    assert ours == {**twin_mounts(pair.node), **JSON, **helpers}


def test_device_nodes(pair: Pair) -> None:
    """The control node, unified memory, modeset and the two GPUs by their minors."""
    expected = {path for path in twin_mounts(pair.node) if path.startswith("/dev/nvidia")}
    assert set(pair.seen.devices) == expected
    assert pair.plain.devices == {}


def test_device_rules(pair: Pair) -> None:
    """Those of the control node, unified memory, modeset and the two GPUs; none without a request."""
    allowed = {number for number, can in pair.seen.rules.items() if can}
    assert allowed == {(195, 255), (195, 254), (511, 0), (511, 1), *((195, gpu["minor"]) for gpu in CHOSEN)}
    assert not any(pair.plain.rules.values())


@pytest.mark.parametrize(("folder", "bits"), [(LIBDIR, 64), (LIBDIR32, 32)])
def test_links(pair: Pair, folder: str, bits: int) -> None:
    """Those that nvidia-container-cli makes and those that its ldconfig makes, each saying the same; no other name."""
    version = pair.node.driver.version
    expected = links(bits, version)
    assert {name: pair.seen.stat(f"{folder}/{name}").get("target") for name in expected} == expected
    libraries = pair.node.driver.libraries if bits == 64 else pair.node.driver.libraries32
    names = {*expected, *map(os.path.basename, libraries)}
    if bits == 64:
        names |= {"gbm", *HELPERS, *(f"{name.removesuffix('.1')}.{number}" for name, number in HELPERS.items())}
    assert pair.new_names(folder) == names


def test_programs(pair: Pair) -> None:
    """The six of the tables, and no other name in /usr/bin."""
    assert pair.new_names("/usr/bin") == set(tables.BINARIES)


def test_the_application_profile(pair: Pair) -> None:
    """One line without an end, with a bit for each minor."""
    mask = sum(1 << int(str(gpu["minor"])) for gpu in CHOSEN)
    text = pair.seen.content("/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf") or ""
    assert f'"settings": ["EGLVisibleDGPUDevices", {mask:#x}]' in text
    assert "\n" not in text


def procfs_part(node: Node) -> tuple[Op, ...]:
    """The part of the plan below /proc/driver/nvidia, put to /proc/driver, which the procfs of any machine has."""
    ops = [op for op in plan_of(node.driver.root) if isinstance(op, (Bind, Tmpfs))]
    below = [op for op in ops if op.target.startswith("/proc/driver/nvidia")]
    return tuple(op.with_(target=op.target.replace("/proc/driver/nvidia", "/proc/driver")) for op in below)


def test_the_drivers_folder_in_procfs(node: Node, tmp_path: Path) -> None:
    """params, which makes no nodes, version, registry, and a folder for each GPU; read-only, other than the twin's."""
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    names = ("params", "version", "registry")
    gpus = [gpu["pci"] for gpu in GPUS]
    with Init(rootfs) as init:
        outcome = perform(init, node.driver.root, *procfs_part(node))
        assert outcome.error == ""
        points = init.mount_points
        asked = [f"read:/proc/driver/{name}" for name in names]
        seen = init.run("/bin/probe", "list:/proc/driver", "list:/proc/driver/gpus", *asked).seen
    there = {name: Path(node.driver.path(f"/proc/driver/nvidia/{name}")) for name in names}
    expected = {name: path.read_text() for name, path in there.items() if path.exists()}
    expected["params"] = expected["params"].replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0", 1)
    assert {name: seen.content(f"/proc/driver/{name}") for name in expected} == expected
    assert "ModifyDeviceFiles: 0" in expected["params"]
    assert seen.names("/proc/driver") == sorted([*expected, "gpus"])
    assert seen.names("/proc/driver/gpus") == gpus
    covered = {path: options for path, options in points.items() if path.startswith("/proc/driver")}
    assert set(covered) == {"/proc/driver", *(f"/proc/driver/gpus/{gpu}" for gpu in gpus)}
    assert all({"ro", "nosuid", "nodev", "noexec"} <= set(options.split(",")) for options in covered.values())


@pytest.mark.parametrize("text", WRITTEN)
def test_differences_are_written_down(text: str) -> None:
    """What is not as with the twin stands on the page of differences."""
    assert text in DIFFERENCES.read_text()
