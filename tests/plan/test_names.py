"""The names by which libraries are found, and the files that a plan writes itself. Nothing runs here."""

from __future__ import annotations

import pytest

from gpuhook.driver.model import Gpu
from gpuhook.plan.ops import Image, Link, MergeCache, Plan, Tmpfs
from tests.plan.make import GPUS, INVENTORY, NARROW, VERSION, WIDE, binds, library, plan

# --- links and the loader's cache ---


def test_links() -> None:
    """The SONAME's, and those that programs ask for besides; none where the file is named like its SONAME."""
    made = plan("compute", "graphics", "video")
    links = {op.target.removeprefix(f"{WIDE}/"): op.to for op in made.ops if isinstance(op, Link)}
    assert links["libcuda.so.1"] == f"libcuda.so.{VERSION}"
    assert links["libcuda.so"] == "libcuda.so.1"
    assert links["libGLX_indirect.so.0"] == f"libGLX_nvidia.so.{VERSION}"
    assert links["libnvidia-opticalflow.so"] == "libnvidia-opticalflow.so.1"
    own = library("libnvidia-glcore.so").with_(soname=f"libnvidia-glcore.so.{VERSION}")
    alone = plan("graphics", inventory=INVENTORY.with_(libraries=(own,)))
    assert not any(isinstance(op, Link) and "glcore" in op.target for op in alone.ops)


def test_every_name_leads_to_the_versioned_file() -> None:
    """What stands in the image under a link's name does not matter: the cache names the mounted file."""
    made = plan("compute", "utility")
    merge = made.ops[-1]
    assert isinstance(merge, MergeCache)
    entries = {entry.soname: entry.path for entry in merge.entries}
    assert entries["libcuda.so.1"] == entries["libcuda.so"] == f"{WIDE}/libcuda.so.{VERSION}"
    assert set(entries.values()) == {target for target in binds(made) if target.startswith(WIDE)}
    names = {op.target.removeprefix(f"{WIDE}/") for op in made.ops if isinstance(op, Link)}
    assert names <= set(entries)


def test_32_bits_are_for_compat32() -> None:
    """They need the capability, a group that is wanted, and a place in the image."""
    assert not any(NARROW in target for target in binds(plan("compute")))
    both = plan("compute", "compat32")
    assert f"{NARROW}/libcuda.so.{VERSION}" in binds(both)
    assert f"{NARROW}/libGLX_nvidia.so.{VERSION}" not in binds(both)
    merge = both.ops[-1]
    assert isinstance(merge, MergeCache)
    assert {entry.bits for entry in merge.entries if entry.path.startswith(NARROW)} == {32}
    nowhere = binds(plan("compute", "compat32", image=Image(lib32="")))
    assert [target for target, op in nowhere.items() if "/lib/" in op.source and "firmware" not in target] == []


# --- procfs and the profile ---


def folder(made: Plan) -> Tmpfs:
    (op,) = [op for op in made.ops if isinstance(op, Tmpfs) and op.target == "/proc/driver/nvidia"]
    return op


def test_the_drivers_folder_shows_these_gpus_only() -> None:
    """A cover over procfs, read-only, with folders for this container's GPUs; skipped where there is none."""
    cover = folder(plan("utility", gpus=(GPUS[1],)))
    assert (cover.filesystem, cover.optional, cover.folders) == ("proc", True, ("gpus", "gpus/0000:01:00.0"))
    assert set(cover.flags) == {"ro", "nosuid", "nodev", "noexec"}
    assert {mode for _, _, mode in cover.files} == {0o444}


def test_the_driver_makes_no_nodes_inside() -> None:
    """`params` says that its libraries make no device nodes; nothing else of it, and no other file, changes."""
    files = {name: content for name, content, _ in folder(plan("utility")).files}
    assert files["params"] == b"ResmanDebugLevel: 0\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n"
    assert files["version"] == b"ModifyDeviceFiles: 1"


@pytest.mark.parametrize(
    ("capabilities", "gpus", "mask"),
    [
        (("graphics",), GPUS[:1], "0x4"),
        (("display",), GPUS, "0x7"),
        (("graphics", "utility"), GPUS[1:], "0x3"),
        (("compute", "utility", "video"), GPUS, None),
        (("graphics",), (), None),
    ],
)
def test_the_profile_names_the_minors(capabilities: tuple[str, ...], gpus: tuple[Gpu, ...], mask: str | None) -> None:
    """With graphics or display and a GPU: a bit for each GPU's minor."""
    profiles = [op for op in plan(*capabilities, gpus=gpus).ops if isinstance(op, Tmpfs) and "profiles" in op.target]
    texts = [content.decode() for op in profiles for _, content, _ in op.files]
    assert len(texts) == (mask is not None)
    assert all(f'"EGLVisibleDGPUDevices", {mask}]' in text for text in texts)
