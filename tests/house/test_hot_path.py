"""What a container's start loads, started through the launcher as an engine would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.launchers import compile_package, write_launcher

COSTLY = frozenset(
    """argparse collections ctypes dataclasses enum functools inspect json logging os pathlib psutil pydantic re shutil
    site subprocess toml traceback typing __future__""".split()  # noqa: SIM905  # a list that people read
)
# All of ours that a container without a GPU may load, and what that needs of the standard library.
LEAVING = {
    "errors", "hook", "jsontext", "kernel", "kernel.files", "note", "oci", "oci.bundle", "oci.state", "preload",
    "request", "request.devices", "request.model", "settings", "settings.load", "settings.snapshot", "settings.values",
    "value",
}  # fmt: skip


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launcher as `gpuhook launchers` writes it, which prints the loaded modules at its end."""
    compile_package()
    path = write_launcher(tmp_path_factory.mktemp("bin"), "gpuhook")
    told = "from gpuhook.hook import main\nstatus = main()\nprint(*sys.modules)\nsys.exit(status)\n"
    path.write_text(path.read_text().replace("from gpuhook.hook import launch\n\nlaunch()\n", told))
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle whose environment a test fills in."""
    (tmp_path / "bundle/rootfs").mkdir(parents=True)
    return tmp_path / "bundle"


def loaded(launcher: Path, bundle: Path, env: list[str], config: Path) -> set[str]:
    """The modules that a run of the hook has loaded."""
    spec = {"ociVersion": "1.0.2", "process": {"env": env}, "root": {"path": "rootfs"}}
    (bundle / "config.json").write_text(json.dumps(spec))
    state = json.dumps({"id": "c", "pid": os.getpid(), "bundle": str(bundle)})
    command = [str(launcher), "--config", str(config), "prestart"]
    done = subprocess.run(command, input=state, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_a_container_without_a_gpu_loads_next_to_nothing(launcher: Path, bundle: Path, tmp_path: Path) -> None:
    """Once the configuration's snapshot exists, the hook leaves before anything but the list above is loaded."""
    config = tmp_path / "config.toml"
    config.write_text("disable-require = false\n")
    os.utime(config, (1, 1))  # a file just written could change again unnoticed, so no snapshot is kept of it
    # The one snapshot of files named on the command line may be another test's by the second run.
    runs = (loaded(launcher, bundle, ["PATH=/bin"], config) for _ in range(20))
    modules = next((modules for modules in runs if "gpuhook.settings.model" not in modules), set())
    assert {f"gpuhook.{name}" for name in LEAVING} | {"gpuhook"} == {m for m in modules if m.startswith("gpuhook")}
    assert set() == modules & COSTLY


def test_a_stale_archive_is_not_used(launcher: Path, bundle: Path, tmp_path: Path) -> None:
    """A module whose source changed after the archive was written is imported from its source."""
    text = launcher.read_text().replace("preload.place(*module)", "preload.place(*module[:3], 0, *module[4:])")
    other = launcher.with_name("stale")
    other.write_text(text)
    other.chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text("")
    assert "__future__" in loaded(other, bundle, ["PATH=/bin"], config)  # which the archive's code never imports


def test_a_launcher_works_without_an_archive(launcher: Path, bundle: Path, tmp_path: Path) -> None:
    """Where no archive could be written the modules are imported as usual."""
    other = launcher.with_name("none")
    other.write_text(launcher.read_text().replace('"start"', '"absent"'))
    other.chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text("")
    assert "gpuhook.oci.bundle" in loaded(other, bundle, ["PATH=/bin"], config)


def test_a_launcher_is_isolated(launcher: Path, bundle: Path, tmp_path: Path) -> None:
    """No PYTHON* variable, current directory or user site leads to other code (threats.md AC-68, AC-69)."""
    trap = tmp_path / "trap"
    for name in ("json", "select", "encodings/__init__", "gpuhook/__init__", "site", "sitecustomize"):
        file = trap / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    spec = {"ociVersion": "1.0.2", "process": {"env": []}, "root": {"path": "rootfs"}}
    (bundle / "config.json").write_text(json.dumps(spec))
    env = {
        "PYTHONPATH": f"{trap}:",
        "PYTHONHOME": str(trap),
        "PYTHONSTARTUP": str(trap / "json.py"),
        "PYTHONUSERBASE": str(trap),
        "PYTHONINSPECT": "1",
        "HOME": str(trap),
        "PYTHONPYCACHEPREFIX": str(trap),
    }
    state = json.dumps({"id": "c", "pid": os.getpid(), "bundle": str(bundle)})
    done = subprocess.run(
        [str(launcher), "prestart"], input=state, capture_output=True, text=True, env=env, cwd=trap, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "marker").exists()
    assert sys.version_info >= (3, 10)
