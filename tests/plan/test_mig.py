"""MIG and IMEX in a plan: capability files inside of the cover, nodes with their rules, the whole of MIG, channels."""

from __future__ import annotations

import pytest

from gpuhook.driver.model import Capability, Host, MigDevice, Node, Selection
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Allow, Bind, Image, MergeCache, Omit, Op, Tmpfs
from gpuhook.request.model import DeviceChoice, Request
from tests.plan.make import GPUS, INVENTORY, ROOT

FOLDER = "/proc/driver/nvidia/capabilities"
PROC_FLAGS = ("ro", "nosuid", "nodev", "noexec")


def capability(path: str, minor: int) -> Capability:
    node = Node(path=f"/dev/nvidia-caps/nvidia-cap{minor}", major=237, minor=minor) if minor else None
    return Capability(path=f"{FOLDER}/{path}", node=node)


def device(gi: int, ci: int, *, nodes: bool = True) -> MigDevice:
    folder = f"gpu2/mig/gi{gi}"
    minors = (10 * gi, 10 * gi + 1 + ci) if nodes else (0, 0)
    files = (f"{folder}/access", f"{folder}/ci{ci}/access")
    capabilities = tuple(capability(path, minor) for path, minor in zip(files, minors, strict=True))
    return MigDevice(index=gi, uuid="", gpu_instance=gi, compute_instance=ci, capabilities=capabilities)


def ops(chosen: Selection, *capabilities: str, omit: Omit | None = None) -> tuple[Op, ...]:
    request = Request(
        container="c", pid=1, rootfs="/r", devices=DeviceChoice(names=(), sources=()), capabilities=capabilities
    )
    inventory = INVENTORY.with_(host=Host(driver_root=ROOT))
    return build_plan(request, inventory, chosen, Image(), omit=omit or Omit()).ops


def of_mig(all_ops: tuple[Op, ...]) -> list[Op]:
    """The operations about MIG, without the cover."""
    binds = [op for op in all_ops if isinstance(op, Bind) and op.target.startswith((FOLDER, "/dev/nvidia-caps/"))]
    return [op for op in all_ops if op in binds or (isinstance(op, Allow) and op.major == 237)]


def test_a_device_takes_two_files_and_two_nodes() -> None:
    """The GPU instance's, then the compute instance's, each node with its rule."""
    found = of_mig(ops(Selection(gpus=GPUS[:1], mig=(device(1, 0),))))
    files = [f"{FOLDER}/gpu2/mig/gi1/access", f"{FOLDER}/gpu2/mig/gi1/ci0/access"]
    assert [op.target for op in found if isinstance(op, Bind) and op.kind == "file"] == files
    assert found[0] == Bind(source=f"{ROOT}{files[0]}", target=files[0], flags=PROC_FLAGS)
    assert found[1] == Bind(
        source=f"{ROOT}/dev/nvidia-caps/nvidia-cap10", target="/dev/nvidia-caps/nvidia-cap10", kind="device",
        flags=("ro", "nosuid", "noexec"), device=(237, 10),
    )  # fmt: skip
    assert [op for op in found if isinstance(op, Allow)] == [Allow(major=237, minor=10), Allow(major=237, minor=11)]


def test_the_cover_has_their_places() -> None:
    """Folders before what is in them, empty files to bind over; nothing of other instances."""
    cover = next(op for op in ops(Selection(gpus=GPUS[:1], mig=(device(1, 0),))) if isinstance(op, Tmpfs))
    assert cover.folders == (
        "gpus", f"gpus/{GPUS[0].proc_folder}", "capabilities", "capabilities/gpu2", "capabilities/gpu2/mig",
        "capabilities/gpu2/mig/gi1", "capabilities/gpu2/mig/gi1/ci0",
    )  # fmt: skip
    assert [file for file in cover.files if file[0].startswith("capabilities")] == [
        ("capabilities/gpu2/mig/gi1/access", b"", 0o444),
        ("capabilities/gpu2/mig/gi1/ci0/access", b"", 0o444),
    ]


def test_a_shared_instance_is_given_once() -> None:
    """Two compute instances of one GPU instance."""
    found = of_mig(ops(Selection(gpus=GPUS[:1], mig=(device(1, 0), device(1, 1)))))
    assert [op.minor for op in found if isinstance(op, Allow)] == [10, 11, 12]
    assert len(found) == 9


def test_a_driver_without_nodes() -> None:
    """Files only."""
    found = of_mig(ops(Selection(gpus=GPUS[:1], mig=(device(1, 0, nodes=False),))))
    assert [(op.kind, op.flags) for op in found if isinstance(op, Bind)] == [("file", PROC_FLAGS)] * 2
    assert len(found) == 2


def test_access_to_the_whole_of_mig() -> None:
    """Both folders as they are, in place of the single devices' files, and a rule for every node."""
    chosen = Selection(gpus=GPUS[:1], mig=(device(1, 0),), everything=True, access=((237, 1), (237, 9)))
    all_ops = ops(chosen)
    folders = [op for op in all_ops if isinstance(op, Bind) and op.kind == "folder" and "cap" in op.target]
    assert folders == [
        Bind(source=f"{ROOT}{FOLDER}", target=FOLDER, kind="folder", flags=PROC_FLAGS),
        Bind(source=f"{ROOT}/dev/nvidia-caps", target="/dev/nvidia-caps", kind="folder", flags=("nosuid", "noexec")),
    ]
    assert [op.minor for op in all_ops if isinstance(op, Allow) and op.major == 237] == [1, 9]
    cover = next(op for op in all_ops if isinstance(op, Tmpfs))
    assert cover.folders[-1] == "capabilities"
    assert not [name for name, _, _ in cover.files if "capabilities" in name]


def test_access_without_nodes() -> None:
    """An older driver has no folder of nodes to bind."""
    all_ops = ops(Selection(gpus=GPUS[:1], access=()))
    assert [op.target for op in all_ops if isinstance(op, Bind) and "cap" in op.target] == [FOLDER]


def test_the_order_of_devices() -> None:
    """Common nodes, GPUs, MIG devices, channels; the cache comes last (engine.md 5.1)."""
    channel = Node(path="/dev/nvidia-caps-imex-channels/channel3", major=234, minor=3)
    all_ops = ops(Selection(gpus=GPUS[:1], mig=(device(1, 0),), channels=(channel,)), "compute")
    minors = [(op.major, op.minor) for op in all_ops if isinstance(op, Allow)]
    assert minors == [(195, 255), (511, 0), (511, 1), (195, 2), (237, 10), (237, 11), (234, 3)]
    assert isinstance(all_ops[-1], MergeCache)


@pytest.mark.parametrize("nodes", [True, False])
def test_without_nodes_the_rules_stay(nodes: bool) -> None:
    """--no-devbind leaves out single nodes, not their rules, and not MIG's folder (engine.md 5.11)."""
    omit = Omit(nodes=nodes)
    single = ops(Selection(gpus=GPUS[:1], mig=(device(1, 0),)), omit=omit)
    assert bool([op for op in single if isinstance(op, Bind) and op.kind == "device"]) is not nodes
    assert [op.minor for op in single if isinstance(op, Allow) and op.major == 237] == [10, 11]
    whole = ops(Selection(gpus=GPUS[:1], access=((237, 1),)), omit=omit)
    assert [op for op in whole if isinstance(op, Bind) and op.target == "/dev/nvidia-caps"]
