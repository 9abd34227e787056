"""A request and what the host offers become operations: which, with what flags, in what order. Nothing runs here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.driver.model import Gpu
from gpuhook.driver.tables import BINARIES, LIBRARIES
from gpuhook.plan.ops import Allow, Bind, Image, Link, MergeCache, Op, Tmpfs
from gpuhook.settings.values import CAPABILITIES
from tests.plan.make import COMMON, FABRIC, GPUS, MPS, NARROW, PERSISTENCED, ROOT, VERSION, WIDE, binds, plan, stems

GROUPS = {
    "compute": {"compute"},
    "utility": {"utility"},
    "video": {"video", "compute"},
    "graphics": {"graphics"},
    "display": {"graphics"},
    "ngx": {"ngx"},
    "compat32": set(),
}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_capability_brings_its_libraries(capability: str) -> None:
    """Exactly the groups of its row; video brings compute's too, display goes through graphics."""
    added = {"libnvidia-gpucomp.so", "libnvidia-allocator.so"} if GROUPS[capability] == {"graphics"} else set()
    assert stems(plan(capability)) == added | {stem for group in GROUPS[capability] for stem in LIBRARIES[group]}


PROGRAMS = {"utility": set(BINARIES["utility"]), "compute": set(BINARIES["compute"])}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_capability_brings_its_programs(capability: str) -> None:
    """They land in /usr/bin, wherever the host has them."""
    found = {target: op for target, op in binds(plan(capability)).items() if target.startswith("/usr/bin/")}
    assert {target.removeprefix("/usr/bin/") for target in found} == PROGRAMS.get(capability, set())
    assert all(op.source == f"{ROOT}/opt/bin/{target.removeprefix('/usr/bin/')}" for target, op in found.items())


NODES = {
    "compute": {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"},
    "video": {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"},
    "display": {"nvidiactl", "nvidia-modeset"},
}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_capability_brings_its_nodes(capability: str) -> None:
    """The control node always; unified memory with compute and video; modeset with display; the GPUs always."""
    names = {target.removeprefix("/dev/") for target in binds(plan(capability), "device")}
    assert names == NODES.get(capability, {"nvidiactl"}) | {"nvidia2"}


SOCKETS = {
    "utility": ({PERSISTENCED, FABRIC}, set()),
    "compute": (set(), {MPS}),
    "video": (set(), {MPS}),
}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_capability_brings_its_sockets(capability: str) -> None:
    """The daemons' with utility, the pipes of MPS with compute or video."""
    made = plan(capability)
    folders = {target for target in binds(made, "folder") if not target.startswith("/proc/")}
    assert (set(binds(made, "socket")), folders) == SOCKETS.get(capability, (set(), set()))


def test_no_capability_still_gives_the_gpu() -> None:
    """Nodes, firmware and the driver's folder need none; there is nothing for the loader's cache then."""
    made = plan()
    assert set(binds(made, "device")) == {"/dev/nvidiactl", "/dev/nvidia2"}
    assert list(binds(made)) == [f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"]
    assert not any(isinstance(op, (MergeCache, Link)) for op in made.ops)


def test_no_gpu_still_gives_the_driver() -> None:
    """`none`: the files and the common nodes, no GPU's node or folder."""
    made = plan("compute", "utility", gpus=())
    assert set(binds(made, "device")) == {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
    assert f"{WIDE}/libcuda.so.{VERSION}" in binds(made)
    assert [target for target in binds(made, "folder") if target.startswith("/proc/")] == []


def test_each_node_may_be_used_and_no_other() -> None:
    """A rule for every node that is bound, with the number that its source must have."""
    made = plan("compute", "utility", "display", gpus=GPUS[1:])
    devices = binds(made, "device").values()
    rules = [(op.major, op.minor) for op in made.ops if isinstance(op, Allow)]
    assert rules == [op.device for op in devices]
    assert set(rules) == {*COMMON.values(), (195, 0), (195, 1)}
    assert all(op.source == f"{ROOT}{op.target}" for op in devices)


def test_gpus_are_in_the_order_of_the_request() -> None:
    """Each GPU's node, then its folder in procfs, one GPU after the other."""
    ops = plan("utility", gpus=(GPUS[2], GPUS[0])).ops
    targets = [
        op.target for op in ops if isinstance(op, Bind) and ("gpus/" in op.target or "/dev/nvidia" in op.target)
    ]
    assert targets == [
        "/dev/nvidiactl",
        "/dev/nvidia1", "/proc/driver/nvidia/gpus/0000:02:00.0",
        "/dev/nvidia2", "/proc/driver/nvidia/gpus/0000:00:00.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ("/usr/bin/nvidia-smi", {"ro", "nosuid", "nodev"}),
        (f"{WIDE}/libcuda.so.{VERSION}", {"ro", "nosuid", "nodev"}),
        (f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin", {"ro", "nosuid", "nodev"}),
        ("/dev/nvidia2", {"ro", "nosuid", "noexec"}),
        ("/dev/nvidia-uvm", {"ro", "nosuid", "noexec"}),
        (PERSISTENCED, {"nosuid", "nodev", "noexec"}),
        (MPS, {"nosuid", "nodev", "noexec"}),
        ("/proc/driver/nvidia/gpus/0000:00:00.0", {"ro", "nosuid", "nodev", "noexec"}),
    ],
)
def test_flags(target: str, flags: set[str]) -> None:
    """The flags of each kind of mount (engine.md 5.5); procfs read-only as well."""
    found = [op for op in plan("compute", "utility").ops if isinstance(op, Bind) and op.target == target]
    assert [set(op.flags) for op in found] == [flags]


def place(op: Op) -> int:
    """The step of engine.md 5.1 that an operation belongs to."""
    if isinstance(op, Tmpfs):
        return 0 if op.target.startswith("/proc") else 1
    if isinstance(op, MergeCache):
        return 9
    if isinstance(op, Allow):
        return 8 if op.minor < 3 and op.major == 195 else 7
    assert isinstance(op, (Bind, Link))
    target = op.target
    steps = {"/usr/bin": 2, WIDE: 4 if isinstance(op, Link) else 3, NARROW: 4 if isinstance(op, Link) else 3,
             "/lib/firmware": 5, "/run": 6, "/tmp": 6, "/proc": 8}  # fmt: skip
    for begin, step in steps.items():
        if target.startswith(begin):
            return step
    return 7 if target.removeprefix("/dev/") in COMMON else 8


def test_the_order() -> None:
    """Procfs, profile, programs, libraries, links, firmware, sockets, common nodes, GPUs, the cache."""
    steps = [place(op) for op in plan(*CAPABILITIES, gpus=GPUS).ops]
    assert steps == sorted(steps)
    assert set(steps) == set(range(10))


# --- what holds for every plan ---

capabilities = st.sets(st.sampled_from(CAPABILITIES))
gpus = st.lists(st.sampled_from(GPUS), unique=True).map(tuple)
folders = st.sampled_from(["/usr/lib64", "/usr/lib", WIDE, "/odd/place", ""])
images = st.builds(lambda wide, narrow: Image(lib64=wide or "/usr/lib64", lib32=narrow), folders, folders)


@given(capabilities, gpus, images, images)
def test_sources_do_not_depend_on_the_image(
    wanted: set[str], chosen: tuple[Gpu, ...], one: Image, other: Image
) -> None:
    """What is taken from the host, and which devices are allowed, is decided before the image is looked at."""
    if bool(one.lib32) != bool(other.lib32):  # an image without a place for them gets no 32-bit libraries
        other = other.with_(lib32=one.lib32)
    taken = []
    for image in (one, other):
        made = plan(*wanted, gpus=chosen, image=image)
        sources = [(op.source, op.kind, op.flags, op.device) for op in made.ops if isinstance(op, Bind)]
        taken.append((sources, [op for op in made.ops if isinstance(op, (Allow, Tmpfs))]))
    assert taken[0] == taken[1]


@given(capabilities, gpus, images)
def test_every_plan(wanted: set[str], chosen: tuple[Gpu, ...], image: Image) -> None:
    """No target twice, absolute paths without `..`, sources below the driver root, a line for each step."""
    made = plan(*wanted, gpus=chosen, image=image.with_(lib32=image.lib32 if image.lib32 != image.lib64 else ""))
    targets = [op.target for op in made.ops if isinstance(op, (Bind, Link, Tmpfs))]
    assert len(targets) == len(set(targets))
    assert all(target.startswith("/") and ".." not in target and "//" not in target for target in targets)
    assert all(op.source.startswith(f"{ROOT}/") for op in made.ops if isinstance(op, Bind))
    lines = [op.describe() for op in made.ops]
    assert all(line and "\n" not in line for line in lines)


@pytest.mark.parametrize("root", ["/", "/run/nvidia/driver", "/run/nvidia/driver/"])
def test_the_driver_root_is_in_front_of_sources_only(root: str) -> None:
    """With one slash between, whether the root ends with one or not."""
    bind = binds(plan("utility", root=root), "device")["/dev/nvidiactl"]
    assert bind.source == f"{root.rstrip('/')}/dev/nvidiactl"


def test_what_a_person_should_know_is_kept() -> None:
    """Warnings are those that were given, notes what the inventory lacks."""
    made = plan("utility")
    assert (made.warnings, made.notes) == ((("slug", "text"),), ("a: not there",))


def test_a_gpu_without_a_node_has_its_folder() -> None:
    """Where the node is missing nothing is bound or allowed for it."""
    made = plan("utility", gpus=(GPUS[0].with_(node=None),))
    assert set(binds(made, "device")) == {"/dev/nvidiactl"}
    assert [op.minor for op in made.ops if isinstance(op, Allow)] == [255]
