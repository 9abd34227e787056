"""Interpreter and surroundings (threats.md 3.6, AC-67 to AC-74)."""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuhook import __version__
from gpuhook.archive import PACKAGE, archive_path
from gpuhook.launchers import launcher_text, package_folders
from gpuhook.runtime.create import hook_env
from gpuhook.runtime_launcher import runtime_text
from tests.attack import markers
from tests.attack.direct import MANY_FILES, Scene, python
from tests.attack.rig import Lab
from tests.rig.process import PATH, run
from tests.rig.rootfs import put
from tests.shim.stand import write_program

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

SHADOWS = (
    "json",
    "tomllib",
    "ctypes/__init__",
    "encodings/__init__",
    "gpuhook/__init__",
    "site",
    "posixpath",
    "marshal",
)
DUMPER = """\
#!/bin/sh
env > '{folder}/environ'
ls -l /proc/$$/fd > '{folder}/fds'
"""


def fake_cli(lab: Lab) -> str:
    """The path of a nvidia-container-cli that writes down environment and descriptors; others cannot change it."""
    path = Path(lab.folder, "cli")
    path.write_text(DUMPER.format(folder=lab.folder))
    path.chmod(0o755)
    return lab.node.config(backend="nvidia-container-cli", cli={"path": str(path)})


@pytest.mark.parametrize("stage", ["prestart", "createContainer"])
@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"])
def test_ac_67_preload(lab: Lab, stage: str, variable: str) -> None:
    """SAFE with the hook as the shim writes it; as a createContainer hook it is refused. No marker either way."""
    value = "/proc/self/cwd" if variable == "LD_LIBRARY_PATH" else "/proc/self/cwd/marker.so"

    def edit(spec: dict[str, Any]) -> None:
        hooks = spec.get("hooks") or {}
        for entry in hooks.get("prestart", ()):
            entry["env"] = hook_env({b"PATH": PATH.encode()})
            entry["args"][-1] = stage
        if stage in spec.get("hooks", {}) or "prestart" not in hooks:
            return
        hooks[stage] = hooks.pop("prestart")

    libraries = {f"{name}.so.6": markers.library(lab.marks, name) for name in ("libc", "libm")}
    run_ = lab.start(edit=edit, env=(f"{variable}={value}",), prepare=lambda rootfs: put(rootfs, libraries, 0o755))
    assert (run_.started, run_.slug) == ((True, "") if stage == "prestart" else (False, "usage"))


def shadow(rootfs: str, marks: str) -> None:
    """Modules in the tree's root that leave marks."""
    put(rootfs, {f"{name}.py": markers.module(marks, name.replace("/", "-")) for name in SHADOWS})


def test_ac_68_module_shadowing_from_the_working_directory(scene: Scene) -> None:
    """SAFE: the launcher imports nothing from where it is started, nor does an interpreter started in isolation.

    There is no `python -m gpuhook` and no zipapp. pip's own script is for people; it takes no module from here either.
    """
    shadow(scene.init.rootfs, scene.lab.marks)
    scene.write()
    assert scene.start(cwd=scene.init.rootfs).started
    script = Path(scene.lab.folder, "script")
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom gpuhook.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    assert run([str(script), "--version"], cwd=scene.init.rootfs).status == 0
    assert run([sys.executable, "-I", "-m", "gpuhook"], cwd=scene.init.rootfs).status == 1
    assert os.listdir(scene.lab.marks) == []


def python_variables(rootfs: str) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{rootfs}::", "PYTHONHOME": rootfs, "PYTHONSTARTUP": f"{rootfs}/json.py",
        "PYTHONUSERBASE": rootfs, "HOME": rootfs, "PYTHONINSPECT": "1", "PYTHONPYCACHEPREFIX": rootfs,
        "PYTHONPLATLIBDIR": "lib", "PYTHONEXECUTABLE": f"{rootfs}/usr/bin/python3", "PYTHONBREAKPOINT": "json.x",
        "PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1", "PYTHONMALLOC": "debug", "__PYVENV_LAUNCHER__": rootfs,
    }  # fmt: skip


def test_ac_69_python_variables(lab: Lab, scene: Scene) -> None:
    """SAFE: in the runtime's own environment, which reaches prestart, they mean nothing."""
    with lab.container() as container:
        shadow(container.rootfs, lab.marks)
        container.runtime_env = python_variables(container.rootfs)
        assert lab.run(container).started
    shadow(scene.init.rootfs, lab.marks)
    scene.write()
    assert scene.start(env={"PATH": PATH, **python_variables(scene.init.rootfs)}, cwd=scene.init.rootfs).started


@pytest.mark.parametrize("backend", ["auto", "embedded"])
def test_ac_70_program_lookup(scene: Scene, backend: str) -> None:
    """SAFE: no program of the container's tree is run, nor one from a relative folder."""
    scene.write()
    config = scene.lab.node.config(backend=backend, cli={"no-cgroups": True})
    rootfs = scene.init.rootfs
    names = ("nvidia-container-cli", "ldconfig", "runc", "python3", "env", "sh", "nvidia-modprobe", "modprobe")
    put(rootfs, {f"usr/bin/{name}": markers.program(scene.lab.marks, name) for name in names}, 0o755)
    path = f"{rootfs}/usr/bin:{rootfs}/bin:usr/bin:.::{PATH}"
    assert scene.start(env={"PATH": path}, cwd=rootfs, config=config).started


def test_ac_70_a_folder_that_others_can_write(scene: Scene) -> None:
    """FAIL: the nvidia-container-cli that the search finds lies in a folder that is everybody's."""
    scene.write()
    folder = f"{scene.lab.folder}/open"
    put(folder, {"nvidia-container-cli": markers.script(scene.lab.marks, "cli")}, 0o755)
    os.chmod(folder, 0o777)
    run_ = scene.start(env={"PATH": f"{folder}:{PATH}"}, config=scene.lab.node.config(backend="auto"))
    assert run_.slug == "unsafe-config"


def others_variables(scene: Scene) -> dict[str, str]:
    lab, rootfs = scene.lab, scene.init.rootfs
    put(
        lab.folder,
        {"openssl.cnf": f"openssl_conf = x\n[x]\nengines = y\n[y]\nz = w\n[w]\ndynamic_path = {rootfs}/marker.so\n"},
    )
    return {
        "PATH": PATH, "XDG_DATA_DIRS": rootfs, "NVC_DEBUG_FILE": f"{lab.canary}/file", "NVC_INSECURE_MODE": "1",
        "CUDA_MPS_PIPE_DIRECTORY": f"{lab.canary}/dir", "OPENSSL_CONF": f"{lab.folder}/openssl.cnf", "TMPDIR": rootfs,
        "GLIBC_TUNABLES": "glibc.malloc.check=3", "LD_LIBRARY_PATH": rootfs, "XDG_CONFIG_HOME": rootfs,
        "NVIDIA_CTK_CONFIG_FILE_PATH": f"{rootfs}/config.toml", "PYTHONPATH": rootfs,
    }  # fmt: skip


def test_ac_71_variables_read_by_others(scene: Scene) -> None:
    """SAFE: no effect on the engine, and nvidia-container-cli does not get them. --config goes before variables."""
    scene.write()
    variables = others_variables(scene)
    assert scene.start(env=variables).started
    assert scene.start(env=variables, config=fake_cli(scene.lab)).started
    got = Path(scene.lab.folder, "environ").read_text()
    steering = ("NVC_", "CUDA_MPS", "OPENSSL", "TMPDIR", "GLIBC", "LD_", "PYTHON")
    assert [line for line in got.splitlines() if line.startswith(steering)] == []


def test_ac_71_a_configuration_named_by_a_variable(scene: Scene) -> None:
    """FAIL where the runtime's own environment names a file in a tree that others can write."""
    scene.write()
    put(scene.init.rootfs, {"config.toml": "disable-require = true\n"}, 0o666)
    env = {"PATH": PATH, "NVIDIA_CTK_CONFIG_FILE_PATH": f"{scene.init.rootfs}/config.toml"}
    hook = [scene.lab.node.launcher, "prestart"]
    done = subprocess.run(hook, input=scene.state(), env=env, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"gpuhook: unsafe-config: ")


def test_ac_72_descriptors(scene: Scene) -> None:
    """SAFE: of two hundred open descriptors none reaches nvidia-container-cli; nor does any hinder the engine."""
    scene.write()
    assert scene.start(before=python(MANY_FILES)).started
    assert scene.start(before=python(MANY_FILES), config=fake_cli(scene.lab)).started
    listed = Path(scene.lab.folder, "fds").read_text().splitlines()
    leaked = [line for line in listed if line.endswith("-> /")]
    assert leaked == []


LIMITS = {
    "open files": ("prlimit", "--nofile=16"),
    "stack": ("prlimit", "--stack=262144"),
    "address space": ("prlimit", "--as=209715200"),
    "little address space": ("prlimit", "--as=31457280"),
    "processes": ("prlimit", "--nproc=1"),
    "file size": ("prlimit", "--fsize=100"),
    "memory locked": ("prlimit", "--memlock=0"),
    "SIGCHLD ignored": python(
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv('/usr/bin/env', sys.argv)"
    ),
    "signals blocked": python(
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
        "os.execv('/usr/bin/env', sys.argv)"
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_ac_73_resource_limits(scene: Scene, limit: str) -> None:
    """SAFE with everything in place, or FAIL with a message and nothing done."""
    scene.write()
    run_ = scene.start(before=LIMITS[limit])
    points = scene.init.mount_points
    assert run_.started == ("/dev/nvidia0" in points) == ("/usr/bin/nvidia-smi" in points)


def copy_of_the_package(lab: Lab, entry: str = "gpuhook.hook") -> tuple[str, str]:
    """A launcher of a package of its own, and the package's folder."""
    folder = f"{lab.folder}/install"
    shutil.copytree(PACKAGE, f"{folder}/gpuhook")
    assert run([sys.executable, "-I", "-S", f"{folder}/gpuhook/archive.py"]).status == 0
    archives = f"{folder}/gpuhook/__pycache__/{os.path.basename(archive_path())}"
    text = launcher_text(os.path.realpath(sys.executable), [folder, *package_folders()[1:]], archives, entry)
    return write_program(Path(lab.folder, "launcher"), text), f"{folder}/gpuhook"


SPOILED: dict[str, Callable[[str, str], object]] = {
    "the package is everybody's": lambda package, _: os.chmod(package, 0o777),
    "the package is somebody's": lambda package, _: os.chown(package, 1000, 1000),
    "byte-code folder writable by all": lambda package, _: os.chmod(f"{package}/__pycache__", 0o777),
    "byte-code folder writable by a group": lambda package, _: os.chmod(f"{package}/__pycache__", 0o775),
    "byte-code folder of somebody": lambda package, _: os.chown(f"{package}/__pycache__", 1000, 0),
    "archive writable by all": lambda _, archive: os.chmod(archive, 0o666),
    "archive of somebody": lambda _, archive: os.chown(archive, 1000, 1000),
}


@pytest.mark.parametrize("form", SPOILED)
def test_ac_74_byte_code_and_install_folder(lab: Lab, form: str) -> None:
    """FAIL: the launcher refuses in one line to run what others could have written, before it reads any of it."""
    launcher, package = copy_of_the_package(lab)
    archive = f"{package}/__pycache__/{os.path.basename(archive_path())}start"
    assert run([launcher, "--version"]).status == 0
    Path(archive).write_bytes(marshal.dumps((compile(f"open({lab.marks + '/archive'!r}, 'w')", "x", "exec"), [])))
    SPOILED[form](package, archive)
    done = run([launcher, "--version"])
    assert (done.status, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"gpuhook: unsafe-config: {package}")
    assert os.listdir(lab.marks) == []


def test_ac_74_the_shim_refuses_as_well(lab: Lab) -> None:
    """FAIL, where Python is needed at all."""
    _, package = copy_of_the_package(lab)
    archives = f"{package}/__pycache__/{os.path.basename(archive_path())}"
    text = runtime_text(os.path.realpath(sys.executable), [os.path.dirname(package)], archives)
    shim = write_program(Path(lab.folder, "shim"), text)
    os.chmod(f"{package}/__pycache__", 0o777)
    done = run([shim, "create", "c1"])
    assert (done.status, done.stderr.startswith(f"gpuhook: unsafe-config: {package}")) == (1, True)


def test_ac_74_stale_byte_code(lab: Lab) -> None:
    """SAFE: byte-code that is older than its source is not run, from a .pyc or from an archive."""
    launcher, package = copy_of_the_package(lab)
    source = Path(package, "__init__.py")
    source.write_text(source.read_text().replace(f'"{__version__}"', '"9.9.9"'))
    assert run([launcher, "--version"]).stdout == "gpuhook 9.9.9\n"
