"""Files of the host, the shim and the wrapper (threats.md 3.7, AC-75 to AC-81)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from tests.attack.direct import Scene, shell
from tests.attack.rig import Lab
from tests.docker_cli.stand import Stand as Wrapper
from tests.rig.process import run
from tests.rig.rootfs import TRIPLET
from tests.shim.stand import Stand as Shim
from tests.shim.stand import hooks_of, write_program

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

ALL_GPUS = "NVIDIA_VISIBLE_DEVICES=all"
UNSAFE, BROKEN = "unsafe-config", "config-toml-broken"


def owned(path: str, uid: int = 1000) -> None:
    """Gives a file to somebody else."""
    Path(path).write_text("theirs\n")
    os.chown(path, uid, uid)


LOGS: dict[str, Callable[[str, str], object]] = {
    "link": lambda path, canary: os.symlink(f"{canary}/file", path),
    "hard link": lambda path, canary: os.link(f"{canary}/../theirs", path),
    "FIFO": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: os.mkdir(path),
    "somebody's": lambda path, _: owned(path),
    "device": lambda path, _: os.mknod(path, 0o020666, os.makedev(1, 7)),
}


@pytest.mark.parametrize("form", LOGS)
def test_ac_75_log_path(lab: Lab, scene: Scene, form: str) -> None:
    """SAFE without a log, and a warning says why; a container without a GPU starts as well."""
    log, theirs = f"{lab.folder}/log", Path(lab.folder, "theirs")
    theirs.write_text("theirs\n")
    LOGS[form](log, lab.canary)
    config = lab.node.config(cli={"debug": log, "no-cgroups": True})
    scene.write()
    start = scene.start(config=config)
    assert (start.started, UNSAFE in start.warnings) == (True, True)
    scene.write(gpus=False)
    assert scene.start(config=config).started
    assert theirs.read_text() == "theirs\n"


def test_ac_75_log_on_a_full_file_system(lab: Lab, scene: Scene) -> None:
    """SAFE: the log ends, the work goes on."""
    place = f"{lab.folder}/small"
    os.mkdir(place)
    scene.write()
    fill = shell(
        'mount -t tmpfs -o size=4k none "$word1"; touch "$word1/log"; yes > "$word1/x" 2>/dev/null || :', place
    )
    config = lab.node.config(cli={"debug": f"{place}/log", "no-cgroups": True})
    start = scene.start(config=config, before=fill)
    assert (start.started, UNSAFE in start.warnings) == (True, True)


def unsafe_forms(folder: str, good: str) -> dict[str, str]:
    """Paths of configurations that others could have written."""
    forms = {}
    for name in ("mode", "owner", "link", "folder"):
        os.mkdir(f"{folder}/{name}")
        forms[name] = shutil.copy(good, f"{folder}/{name}/config.toml")
    os.chmod(forms["mode"], 0o666)
    os.chown(forms["owner"], 1000, 0)
    os.unlink(forms["link"])
    os.symlink(forms["mode"], forms["link"])
    os.chmod(f"{folder}/folder", 0o777)
    return forms


def test_ac_76_configuration_that_others_can_write(lab: Lab, scene: Scene) -> None:
    """FAIL: mode, owner, a link to such a file, a folder that is everybody's."""
    scene.write()
    for path in unsafe_forms(lab.folder, lab.config(**{"no-cgroups": True})).values():
        assert scene.start(config=path).slug == UNSAFE


BAD_CONFIGS = (
    "x", "[nvidia-container-cli]\nroot = 5\n", "[nvidia-container-cli\n", "\x00", "disable-require = 'yes'\n",
    '[nvidia-container-cli]\npath = "/x\\u001b[2J"\n', '[nvidia-container-cli]\nroot = "/x\\u0000"\n', "\ufffe",
)  # fmt: skip


def test_ac_76_configuration_that_is_broken(lab: Lab, scene: Scene) -> None:
    """FAIL for what is no TOML, for wrong types, control characters in a path, and 100 MiB."""
    scene.write()
    path = f"{lab.folder}/bad.toml"
    for text in BAD_CONFIGS:
        Path(path).write_text(text)
        assert (text, scene.start(config=path).slug) == (text, BROKEN)
    Path(path).write_bytes(b"# ")
    os.truncate(path, 100 << 20)
    assert scene.start(config=path).slug == BROKEN


def plant_runtime_files(folder: str, canary: str, form: str) -> None:
    """/run as somebody has prepared it before our first run."""
    home = f"{folder}/gpuhook"
    names = ("driver.json", "settings.json", "settings-of-another-file.json", "program.json", "runtime")
    if form == "folder is a link":
        os.symlink(f"{canary}/dir", home)
        return
    os.makedirs(home, exist_ok=True)
    os.chmod(home, 0o700)
    for name in names if form == "files are links" else ():
        if os.path.lexists(f"{home}/{name}"):
            os.unlink(f"{home}/{name}")
        os.symlink(f"{canary}/file", f"{home}/{name}")
    if form == "somebody's folder":
        os.chown(home, 1000, 1000)
    for name in os.listdir(home) if form == "somebody's files" else ():
        os.chown(f"{home}/{name}", 1000, 1000)


@pytest.mark.parametrize("form", ["folder is a link", "files are links", "somebody's folder", "somebody's files"])
def test_ac_77_poisoned_runtime_files(lab: Lab, scene: Scene, form: str) -> None:
    """SAFE: nothing of it is believed. A valid snapshot is poisoned with C/file as a driver library."""
    scene.write()
    place = f"{lab.folder}/run"
    os.mkdir(place)
    over = shell('mount --bind "$word1" /run', place)
    snapshot = Path(place, "gpuhook/driver.json")
    give_up = monotonic() + 10
    while not snapshot.exists() and monotonic() < give_up:  # a driver that has just come is not kept yet
        assert scene.start(before=over).started
    kept = json.loads(snapshot.read_bytes())
    kept["value"]["binaries"].append(f"{lab.canary}/file")
    kept["value"]["libraries"][0][1] = f"{lab.canary}/file"
    snapshot.write_text(json.dumps(kept))
    if form == "folder is a link":
        shutil.rmtree(f"{place}/gpuhook", ignore_errors=True)
    plant_runtime_files(place, lab.canary, form)
    assert scene.start(before=over).started
    assert lab.canary not in Path(f"/proc/{scene.init.pid}/mountinfo").read_text()


def copy_driver(lab: Lab) -> str:
    """A driver root of our own to spoil; returns its path."""
    root = f"{lab.folder}/D"
    subprocess.run(["cp", "-a", lab.node.driver.root, root], check=True)
    return root


def put_over(path: str, make: Callable[[str], object]) -> None:
    os.unlink(path)
    make(path)


LIBRARY_FORMS: dict[str, Callable[[str, str], object]] = {
    "link to /etc/shadow": lambda path, _: os.symlink("/etc/shadow", path),
    "link to the canary": lambda path, canary: os.symlink(f"{'../' * 12}{canary[1:]}/file", path),
    "FIFO": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: os.mkdir(path),
    "device": lambda path, _: os.mknod(path, 0o020666, os.makedev(1, 5)),
}


@pytest.mark.parametrize("form", LIBRARY_FORMS)
def test_ac_78_libraries_of_the_driver_root(lab: Lab, scene: Scene, form: str) -> None:
    """SAFE without this library and with the others; nothing from outside of the driver root comes in."""
    scene.write()
    root = copy_driver(lab)
    library = f"{root}/usr/lib/{TRIPLET}/libnvidia-ml.so.550.54.14"
    put_over(library, lambda path: LIBRARY_FORMS[form](path, lab.canary))
    start = scene.start(config=lab.config(**{"no-cgroups": True, "root": root}))
    assert start.started
    names = {os.path.basename(point) for point in scene.init.mount_points}
    assert "libcuda.so.550.54.14" in names
    assert "libnvidia-ml.so.550.54.14" not in names
    assert lab.canary not in Path(f"/proc/{scene.init.pid}/mountinfo").read_text()


NODE_FORMS: dict[str, Callable[[str], object]] = {
    "block node": lambda path: os.mknod(path, 0o060666, os.makedev(195, 0)),
    "link to a disk": lambda path: os.symlink("/dev/sda", path),
    "link to memory": lambda path: os.symlink("/dev/mem", path),
    "regular file": lambda path: Path(path).touch(),
    "another device": lambda path: os.mknod(path, 0o020666, os.makedev(1, 1)),
}


@pytest.mark.parametrize("form", NODE_FORMS)
def test_ac_78_nodes_of_the_driver_root(lab: Lab, scene: Scene, form: str) -> None:
    """FAIL for the GPU that is asked for: its node is not the expected character device."""
    scene.write(None, "NVIDIA_VISIBLE_DEVICES=1")
    root = copy_driver(lab)
    put_over(f"{root}/dev/nvidia0", NODE_FORMS[form])
    start = scene.start(config=lab.config(**{"no-cgroups": True, "root": root}))
    assert (start.started, start.slug) == (False, "device-node-perms")


def test_ac_78_loader_cache_of_the_driver_root(lab: Lab, scene: Scene) -> None:
    """SAFE: what its cache names outside of the root is not followed; every library of the driver is found."""
    scene.write()
    root = copy_driver(lab)
    cache = Path(root, "etc/ld.so.cache")
    data = cache.read_bytes()
    for name in (b"/etc/shadow\0", b"../../x\0"):
        at = data.index(b"/usr/lib")
        cache.write_bytes(data[:at] + name + data[at + len(name) :])
        start = scene.start(config=lab.config(**{"no-cgroups": True, "root": root}))
        assert start.started
        names = {os.path.basename(point) for point in scene.init.mount_points}
        assert {"libcuda.so.550.54.14", "libnvidia-ml.so.550.54.14"} <= names
        assert "shadow" not in Path(f"/proc/{scene.init.pid}/mountinfo").read_text()


@pytest.fixture
def shim(lab: Lab) -> Shim:
    folder = Path(lab.folder, "shim")
    folder.mkdir()
    return Shim(folder)


def test_ac_79_shim_and_links(lab: Lab, shim: Shim) -> None:
    """FAIL for a link, which is not followed; SAFE for a hard link, whose other name keeps its content."""
    content = Path(lab.canary, "file").read_bytes()
    bundle = shim.bundle(ALL_GPUS)
    data = (bundle / "config.json").read_bytes()
    (bundle / "config.json").unlink()
    (bundle / "config.json").symlink_to(f"{lab.canary}/file")
    assert (shim.create(bundle).status, shim.argv) == (1, None)
    (bundle / "config.json").unlink()
    other = Path(lab.folder, "theirs")
    other.write_bytes(data)
    os.link(other, bundle / "config.json")
    assert shim.create(bundle).status == 0
    assert (other.read_bytes(), len(hooks_of(bundle))) == (data, 1)
    assert Path(lab.canary, "file").read_bytes() == content


def test_ac_79_shim_and_somebodys_file(shim: Shim) -> None:
    """SAFE: mode and owner stay; the other keys keep every byte."""
    bundle = shim.bundle(ALL_GPUS)
    file = bundle / "config.json"
    text = file.read_text()[:-1] + ', "zeta": 18446744073709551615, "x": 1.0E+2, "\\u0041": "\u65e5", "Alpha": -0.10}'
    file.write_text(text)
    file.chmod(0o640)
    os.chown(file, 1000, 1000)
    assert shim.create(bundle).status == 0
    assert (file.stat().st_uid, file.stat().st_mode & 0o7777, len(hooks_of(bundle))) == (1000, 0o640, 1)
    assert file.read_text().startswith(text[:-1])


@pytest.mark.parametrize("size", ["4k", "8k"])
def test_ac_79_shim_on_a_full_disk(shim: Shim, size: str) -> None:
    """FAIL before the runtime starts; the file is whole, and no scrap stays."""
    bundle, config = shim.bundle(ALL_GPUS), shim.config()
    shim.forget()
    place = shim.folder / "small"
    place.mkdir()
    script = (
        f'mount -t tmpfs -o size={size} none "$word1"; cp {bundle}/config.json "$word1"; yes > "$word1/x" 2>/dev/null '
        f'|| :; NVIDIA_CTK_CONFIG_FILE_PATH={config} {shim.shim} create -b "$word1" c1 || echo refused; '
        f'cmp "$word1/config.json" {bundle}/config.json; ls -A "$word1"'
    )
    result = run([*shell(script, str(place)), "true"])
    assert (result.stdout.split(), shim.argv) == (["refused", "config.json", "x"], None)


LINES = (
    ("create --bundle=A c1", "A"), ("create -b A c1", "A"), ("create -b=A c1", "A"),
    ("create --bundle B --bundle A c1", "A"), ("create --bundle A create", "A"), ("--root create create -b A c1", "A"),
    ("--log run create -b A c1", "A"), ("create -- -b A", ""), ("--root -- create -b A c1", "A"),
    ("create c1 -b A", "A"), ("kill create -b A", None), ("exec c1 create -b A", None), ("create -b A -h c1", None),
    ("state -- create", None), ("delete run", None),
)  # fmt: skip


@pytest.mark.parametrize(("line", "edited"), LINES)
def test_ac_80_shim_argument_parsing(shim: Shim, line: str, edited: str | None) -> None:
    """SAFE: the bundle that the runtime will use is edited and no other; the words arrive as they were.

    tests/shim/test_call.py asks the real runc and crun about the same kind of lines.
    """
    bundles = {"A": shim.bundle(ALL_GPUS), "B": shim.bundle(ALL_GPUS), "": shim.bundle(ALL_GPUS)}
    words = [word.replace("A", str(bundles["A"])).replace("B", str(bundles["B"])) for word in line.split()]
    result = shim.run(*words, cwd=str(bundles[""]))
    assert shim.argv == [shim.runc, *words], result
    assert [name for name, bundle in bundles.items() if hooks_of(bundle)] == ([] if edited is None else [edited])


@pytest.mark.parametrize("name", ["create", "--help", "-b", "run"])
def test_ac_80_bundles_and_containers_of_odd_names(shim: Shim, name: str) -> None:
    """SAFE: a bundle of such a name is the bundle, a container of such a name is not."""
    bundle = shim.bundle(ALL_GPUS)
    os.rename(bundle, shim.folder / name)
    shim.run("create", f"--bundle={name}", "c1", cwd=str(shim.folder))
    assert (len(hooks_of(shim.folder / name)), shim.argv) == (1, [shim.runc, "create", f"--bundle={name}", "c1"])


@pytest.fixture
def wrapper(lab: Lab) -> Wrapper:
    folder = Path(lab.folder, "wrapper")
    folder.mkdir()
    folder.chmod(0o777)
    return Wrapper(folder)


def as_user(wrapper: Wrapper, *args: str, cwd: str = "/", **env: str) -> tuple[int, list[str] | None]:
    """Runs the wrapper as an ordinary user; its status and the words that docker got."""
    user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    (wrapper.folder / "argv").unlink(missing_ok=True)
    given = {"PATH": f"{wrapper.folder}/bin:/usr/bin:/bin", **env}
    return run([*user, wrapper.wrapper, *args], env=given, cwd=cwd).status, wrapper.argv


@pytest.mark.parametrize("gpus", ["0 --privileged", "0\n-v/:/h", "--privileged", "-v/:/h", "0;id", "$(id)", "0\x1b"])
def test_ac_81_wrapper_and_its_list(wrapper: Wrapper, gpus: str) -> None:
    """FAIL: docker is not called."""
    assert as_user(wrapper, "run", "img", NV_GPU=gpus) == (1, None)


def test_ac_81_wrapper_and_its_surroundings(lab: Lab, wrapper: Wrapper) -> None:
    """SAFE: an image that looks like an option stays in its place; no docker of the current folder is run."""
    inserted = ["run", "--runtime=nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=0"]
    assert as_user(wrapper, "run", "--", "--privileged", NV_GPU="0") == (0, [*inserted, "--", "--privileged"])
    assert as_user(wrapper, "run", "img", NV_GPU="0", DOCKER_HOST="tcp://x") == (0, [*inserted, "img"])
    here = Path(lab.folder, "here")
    here.mkdir()
    write_program(here / "docker", f"#!/bin/sh\ntouch {lab.marks}/docker\n")
    path = f":.:here:{wrapper.folder}/bin:/usr/bin"
    assert as_user(wrapper, "run", "img", cwd=str(here), NV_GPU="0", PATH=path) == (0, [*inserted, "img"])
    assert os.listdir(lab.marks) == []
