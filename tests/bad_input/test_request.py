"""Requests that this node cannot or will not meet, and nodes that have nothing to give."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.driver.build import build
from tests.bad_input.conftest import Scene, refused
from tests.rig.init import run_hook
from tests.runtime.node import GPUS, RULES

pytestmark = pytest.mark.engine

UNKNOWN = {
    "an index too large": ("3", "this host has 3"),
    "one of a list": ("0,7", "GPU 7"),
    "a UUID of nobody": ("GPU-ffffffff-0000-0000-0000-000000000000", "this host has 3"),
    "a beginning that is too short": ("GPU-1", "GPU-1"),
    "a beginning of several": ("GPU-", "GPU-"),
    "a negative index": ("-1", "'-1'"),
    "an option": ("--ldconfig=@/evil", "'-'"),
    "two in one": ("0 1", "commas"),
    "quotes": ('"0"', "quotes"),
    "a word": ("gpu0", "gpu0"),
    "a PCI address of nobody": ("0000:ff:00.0", "0000:ff:00.0"),
    "a CDI name": ("nvidia.com/gpu=0", "--device nvidia.com/gpu=0"),
    "a control character": ("0,\x1b[31m", "control character"),
    "a newline": ("0\ngpuhook: all is well", "control character"),
    "many": (",".join(["x"] * 60_000), "'x'"),
    "a million": (",".join(["x"] * 1_000_000), "is longer than 131072 characters"),
    "very long": ("x" * 100_000, "GPU xxx"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_device_that_does_not_exist(scene: Scene, name: str) -> None:
    """What was asked for and what there is are named, in one printable line."""
    asked, says = UNKNOWN[name]
    result = scene.env_hook(f"NVIDIA_VISIBLE_DEVICES={asked}")
    refused(result, "unknown-device")
    assert says.strip("'") in result.stderr


@pytest.mark.parametrize("asked", ["MIG-11111111-2222-3333-4444-555555555555", "0:0"])
def test_a_mig_device_that_does_not_exist(scene: Scene, asked: str) -> None:
    """The GPUs of this node are not cut into MIG devices."""
    refused(scene.env_hook(f"NVIDIA_VISIBLE_DEVICES={asked}"), "unknown-device", asked)


CAPABILITIES = {
    "a word": ("compute,magic", "magic"),
    "a misspelling": ("compue", "did you mean compute?"),
    "upper case": ("COMPUTE", "COMPUTE"),
    "blanks for commas": ("compute utility", "compute utility"),
    "an option": ("--ldconfig", "--ldconfig"),
    "a control character": ("compute\n", "control character"),
}


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_capability_that_is_none(scene: Scene, name: str) -> None:
    """The word and the variable are named."""
    asked, says = CAPABILITIES[name]
    result = scene.env_hook("NVIDIA_VISIBLE_DEVICES=all", f"NVIDIA_DRIVER_CAPABILITIES={asked}")
    refused(result, "unsupported-capability", says, "NVIDIA_DRIVER_CAPABILITIES")


def test_a_capability_that_is_not_allowed_here(scene: Scene) -> None:
    """The node's own list is named with its file."""
    config = scene.node.config(cli=RULES, text='supported-driver-capabilities = "compute,utility"')
    result = scene.env_hook("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=video", config=config)
    refused(result, "unsupported-capability", config, "supported-driver-capabilities")


UNSATISFIED = {
    "cuda>=13.0": "cuda>=13.0",
    "driver>=600": "driver>=600",
    "brand=GeForce": "brand=GeForce",
    "arch>=9.0": "arch>=9.0",
    "cuda>=12.0,driver<500": "driver<500",
}
MALFORMED = (
    "cuda", "cuda>>12", "cuda>=", ">=12", "cuda>=x", "memory>=16", "cuda=12;rm", "cuda>=12.4\nx", "$(id) cuda>=12",
)  # fmt: skip


@pytest.mark.parametrize("expression", UNSATISFIED)
def test_a_requirement_that_is_not_met(scene: Scene, expression: str) -> None:
    """The condition, its variable and the value found are named."""
    result = scene.env_hook("NVIDIA_VISIBLE_DEVICES=0", f"NVIDIA_REQUIRE_X={expression}")
    refused(result, "requirement-cuda", UNSATISFIED[expression], "NVIDIA_REQUIRE_X")


@pytest.mark.parametrize("expression", MALFORMED)
def test_a_requirement_that_is_none(scene: Scene, expression: str) -> None:
    """The variable is named."""
    result = scene.env_hook("NVIDIA_VISIBLE_DEVICES=0", f"NVIDIA_REQUIRE_X={expression}")
    refused(result, "bad-requirement", "NVIDIA_REQUIRE_X")


@pytest.mark.parametrize("version", ["twelve", "12.4.1.9", "-12"])
def test_an_old_image_with_a_bad_version(scene: Scene, version: str) -> None:
    """CUDA_VERSION of an image without requirements is one."""
    refused(scene.env_hook(f"CUDA_VERSION={version}"), "bad-requirement", "CUDA_VERSION")


# --- nodes ---


def test_a_node_without_the_module(scene: Scene, tmp_path: Path) -> None:
    """The libraries are there, the kernel module is not loaded."""
    driver = build(str(tmp_path / "driver"), gpus=GPUS, module_loaded=False)
    config = scene.node.config(cli={**RULES, "root": driver.root})
    refused(scene.hook(config=config), "driver-not-loaded")
    assert scene.env_hook(config=config).status == 0


def test_a_node_without_the_libraries(scene: Scene, tmp_path: Path) -> None:
    """The module runs, the libraries are gone."""
    driver = build(str(tmp_path / "driver"), gpus=GPUS, libraries_version=())
    for library in Path(driver.root).rglob("*.so.550*"):
        library.unlink()
    config = scene.node.config(cli={**RULES, "root": driver.root})
    refused(scene.hook(config=config), "driver-libs-missing")


def test_a_node_whose_driver_was_just_updated(scene: Scene, tmp_path: Path) -> None:
    """Module and libraries of two versions: both are named."""
    driver = build(str(tmp_path / "driver"), gpus=GPUS, version="550.54.14", libraries_version="560.35.03")
    config = scene.node.config(cli={**RULES, "root": driver.root})
    refused(scene.hook(config=config), "driver-lib-mismatch", "550.54.14", "560.35.03")


@pytest.mark.parametrize("kind", ["absent", "empty", "a file"])
def test_a_driver_root_that_is_none(scene: Scene, tmp_path: Path, kind: str) -> None:
    """[nvidia-container-cli] root leads nowhere."""
    root = tmp_path / "root"
    if kind == "empty":
        root.mkdir()
    elif kind == "a file":
        root.write_text("")
    refused(scene.hook(config=scene.node.config(cli={**RULES, "root": str(root)})), "driver-root-wrong", str(root))


def test_no_backend_at_all(scene: Scene, tmp_path: Path) -> None:
    """Neither nvidia-container-cli nor a driver for the embedded engine."""
    driver = build(str(tmp_path / "driver"), gpus=GPUS, module_loaded=False)
    config = scene.node.config(backend="auto", cli={**RULES, "root": driver.root})
    argv = [scene.node.launcher, "--config", config, "prestart"]
    refused(run_hook(argv, scene.state(), env={"PATH": str(tmp_path)}), "driver-not-loaded")


def test_the_program_that_is_asked_for_is_missing(scene: Scene, tmp_path: Path) -> None:
    """The backend is to be nvidia-container-cli, and none is to be found: where it was looked for, and what to do."""
    config = scene.node.config(backend="nvidia-container-cli", cli=RULES)
    argv = [scene.node.launcher, "--config", config, "prestart"]
    refused(run_hook(argv, scene.state(), env={"PATH": str(tmp_path)}), "hook-binary-missing", str(tmp_path))


@pytest.mark.parametrize("kind", ["absent", "folder", "not executable", "another machine", "no interpreter"])
def test_a_program_that_cannot_be_run(scene: Scene, tmp_path: Path, kind: str) -> None:
    """What exec would say badly is said well, with the key that names the program."""
    path = tmp_path / "nvidia-container-cli"
    if kind == "folder":
        path.mkdir()
    elif kind != "absent":
        path.write_bytes(
            b"\x7fELF\2\1\1" + bytes(9) + (2).to_bytes(2, "little") + (243).to_bytes(2, "little")
            if kind == "another machine"
            else b"#!/absent/interpreter\n"
        )
        path.chmod(0o644 if kind == "not executable" else 0o755)
    config = scene.node.config(backend="auto", cli={**RULES, "path": str(path)})
    refused(scene.hook(config=config), "hook-binary-missing", str(path))


def test_a_program_of_somebody_else(scene: Scene, tmp_path: Path) -> None:
    """A program that others can replace is not run."""
    path = tmp_path / "nvidia-container-cli"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o777)
    config = scene.node.config(backend="auto", cli={**RULES, "path": str(path)})
    refused(scene.hook(config=config), "unsafe-config", str(path))
