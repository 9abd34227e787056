"""Mounts, long paths, odd names, owners, failures half way (threats.md 3.1, AC-15 to AC-17, AC-19 to AC-25)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.attack.rig import Lab
from tests.attack.targets import CACHE
from tests.rig.container import Container
from tests.rig.init import Init, run_hook
from tests.rig.rootfs import give_to, make_rootfs, put
from tests.runtime.node import COMMON

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

LIBDIR = "/usr/lib/x86_64-linux-gnu"
LIBCUDA = f"{LIBDIR}/libcuda.so.550.54.14"
REFUSED, VOLUME = "image-has-driver-files", "socket-mount-conflict"
DEBIAN = {"etc/debian_version": "12.5\n", f"{LIBDIR}/.keep": ""}


def bind(source: str, destination: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": source, "options": [*(options or ("rbind", "rw"))]}


def make_volume(lab: Lab) -> str:
    volume = f"{lab.canary}/volume"
    put(volume, {"theirs": "theirs"})
    return volume


@pytest.mark.parametrize("place", [LIBDIR, "/usr/lib", "/usr/bin", "/run"])
def test_ac_15_user_volume_over_a_target_folder(lab: Lab, place: str) -> None:
    """FAIL with the volume named; the host's folder, which lies in the canary, stays what it is."""
    run = lab.start(files=DEBIAN, mounts=[bind(make_volume(lab), place)])
    assert (run.started, run.slug) == (False, VOLUME)
    assert f"the volume {place} of the host" in run.error


def test_ac_15_only_an_explicit_option_writes_into_a_volume(lab: Lab) -> None:
    """SAFE with write-into-volumes: the mount points are made in this volume, empty, and nowhere else."""
    volume = make_volume(lab)
    lab.ignore = lambda path: path.startswith(f"{volume}/lib")
    config = lab.node.write_config(Path(lab.config()).read_text() + "write-into-volumes = true\n")
    run = lab.start(files=DEBIAN, mounts=[bind(volume, LIBDIR)], config=config)
    assert run.started
    sizes = {os.path.getsize(f"{volume}/{name}") for name in os.listdir(volume) if name.endswith("550.54.14")}
    assert sizes == {0}


@pytest.mark.parametrize("readonly", [True, False])
def test_ac_16_host_cache_mounted_into_the_container(lab: Lab, readonly: bool) -> None:
    """SKIP of the cache update with a note, where the file alone is a volume."""
    put(lab.canary, {"ld.so.cache": b"the host's"})
    run = lab.start(
        kind="debian", mounts=[bind(f"{lab.canary}/ld.so.cache", CACHE, "bind", "ro" if readonly else "rw")]
    )
    assert run.started
    assert "the loader's cache is not updated" in run.said
    assert not [path for path in run.changes if "gpuhook" in path]


@pytest.mark.parametrize("kind", ["debian", "rhel"])
def test_ac_16_host_etc_mounted_into_the_container(lab: Lab, kind: str) -> None:
    """SKIP of the cache update with a note; the host's folder, which lies in the canary, stays what it is."""
    etc = f"{lab.canary}/etc"
    put(etc, {"ld.so.cache": b"the host's", "ld.so.conf": "/usr/lib\n", "debian_version": "12\n"})
    run = lab.start(kind=kind, mounts=[bind(etc, "/etc")])
    assert run.started
    assert "the loader's cache is not updated" in run.said


def test_ac_17_shared_propagation(lab: Lab) -> None:
    """FAIL: a mount below the shared volume would stay in the host's table."""
    shared = f"{lab.folder}/shared"
    os.mkdir(shared)
    setup = [["mount", "-t", "tmpfs", "gpuhook-attack", shared], ["mount", "--make-shared", shared]]
    run = lab.start(
        files=DEBIAN, mounts=[bind(shared, "/usr/lib", "rbind", "rshared")], propagation="rshared", setup=setup
    )
    assert (run.started, run.slug) == (False, VOLUME)
    assert "shared" in run.error


def test_ac_17_a_shared_file_over_a_target(lab: Lab) -> None:
    """FAIL: the target itself is a shared mount; what is put on it would appear on the host's file."""
    lab.ignore = lambda path: path.endswith("/rootfs/usr/bin/nvidia-smi")  # the runtime's mount point
    shared = f"{lab.folder}/shared"
    os.mkdir(shared)
    setup = [
        ["mount", "-t", "tmpfs", "gpuhook-attack", shared],
        ["mount", "--make-shared", shared],
        ["touch", f"{shared}/tool"],
    ]
    run = lab.start(
        mounts=[bind(f"{shared}/tool", "/usr/bin/nvidia-smi", "bind", "rshared")], propagation="rshared", setup=setup
    )
    assert (run.started, run.slug) == (False, VOLUME)
    assert "shared" in run.error


def test_ac_19_library_folder_of_long_names(lab: Lab) -> None:
    """SAFE: the folder is reached through components of 255 bytes, the path together longer than PATH_MAX."""
    names = ["x" * 251 + f"{n:04}" for n in range(15)]

    def prepare(rootfs: str) -> None:
        put(rootfs, {"etc/debian_version": "12.5\n"})
        deep = os.open(rootfs, os.O_PATH)
        for name in (*names, *names):  # 7680 bytes
            os.mkdir(name, dir_fd=deep)
            deep = os.open(name, os.O_PATH, dir_fd=deep)
        half = "/".join(names)
        os.symlink(f"/{half}/second", f"{rootfs}{LIBDIR}")
        os.symlink(half, "second", dir_fd=_deep(rootfs, half))

    lab.looks_at_tree = False
    run = lab.start(f"stat:{LIBCUDA}", prepare=prepare)
    assert run.started
    assert run.result.seen.stat(LIBCUDA)["kind"] == "file"


def _deep(rootfs: str, path: str) -> int:
    return os.open(path, os.O_PATH, dir_fd=os.open(rootfs, os.O_PATH))


@pytest.mark.parametrize("form", ["root.path", "bundle"])
def test_ac_19_rootfs_at_a_path_that_is_too_long(lab: Lab, form: str) -> None:
    """FAIL in a line: no path that was cut is used. No runtime gets as far as this; the state is written by hand."""
    long = lab.canary + "/x" * 3000
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    with Init(rootfs) as init, lab.guard():
        hook, _ = lab.hook_of()
        bundle = lab.bundle(long if form == "root.path" else rootfs)
        result = run_hook([hook.path, *hook.args], init.state(bundle if form == "root.path" else long))
    assert result.status == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("gpuhook: bad-")]
    assert len(errors) == 1
    assert "too long" in errors[0]


ODD = (
    " ",
    "\t",
    "new\nline",
    "a\x1b[31m",
    "\\",
    "*",
    "[",
    "%s%n",
    "{0}",
    "$(id)",
    "\\040",
    "é",
    "-x",
    "'",
    '"',
    "a b\\tc",
)


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_ac_20_awkward_names_of_the_rootfs_and_of_a_volume(lab: Lab, name: str) -> None:
    """SAFE, and the name means itself; FAIL escaped where it holds a control character."""
    volume = f"{lab.folder}/v"
    os.mkdir(volume)
    lab.ignore = lambda path: path.endswith(f"/run/{name}")  # the runtime makes it
    with lab.container(files=DEBIAN, mounts=[bind(volume, f"/run/{name}")]) as container:
        os.rename(container.rootfs, f"{container.bundle}/r{name}")
        os.symlink(f"r{name}", container.rootfs)  # for the rig, which knows it by this name

        def edit(spec: dict[str, Any]) -> None:
            spec["root"]["path"] = f"r{name}"

        container.edit = edit
        run = lab.run(container)
    if not name.isprintable():
        assert (run.started, run.slug) == (False, "bad-bundle")
        assert repr(name)[1:-1] in run.said
    else:
        assert run.started
        assert sorted(run.result.seen.devices) == sorted((*COMMON, *(f"/dev/nvidia{n}" for n in range(3))))


@pytest.mark.parametrize("name", ["new\nline", "\udcff\udcfe", "a\x1b[31m", "\\012 - x y z"], ids=ascii)
def test_ac_20_awkward_names_in_the_mount_table(lab: Lab, name: str) -> None:
    """SAFE: a mount of such a name is read as what it is; a volume over a target beside it still is found (FAIL)."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    volume = make_volume(lab)
    put(rootfs, DEBIAN)
    odd = f"/run/{name}"
    os.makedirs(os.fsencode(f"{rootfs}{odd}"))
    with Init(rootfs, binds=[(volume, odd)]) as init:
        assert lab.hook(init).report.status == 0
    with Init(rootfs, binds=[(volume, odd), (volume, LIBDIR)]) as init:
        assert lab.hook(init).slug == VOLUME


def readonly(rootfs: str) -> list[list[str]]:
    """Makes it a read-only bind mount, for the runtime too."""
    return [["mount", "--bind", rootfs, rootfs], ["mount", "-o", "remount,bind,ro", rootfs]]


def test_ac_21_read_only_root_without_the_targets(lab: Lab) -> None:
    """FAIL: something must be created; nothing is remounted."""
    with lab.container(files=DEBIAN) as container:
        container.setup = readonly(container.rootfs)
        run = lab.run(container)
    assert (run.started, run.slug) == (False, "rootfs-readonly")


def test_ac_21_read_only_root_with_the_targets(lab: Lab) -> None:
    """SAFE: all targets exist, which a first run has made; the root stays read-only."""
    with lab.container(files=DEBIAN) as container:
        assert lab.run(container).started
        container.setup = readonly(container.rootfs)
        run = lab.run(container)
    assert run.started
    assert run.changes == ()
    assert "ro" in run.result.seen.mount_points["/"].split(",")


def test_ac_22_user_namespace_and_owners(lab: Lab) -> None:
    """SAFE: what is new in the tree belongs to the container's root; a folder of host root's stays host root's."""
    with lab.container(files=DEBIAN, user_from=100000) as container:
        give_to(container.rootfs, 100000)
        os.chown(f"{container.rootfs}{LIBDIR}", 0, 0)
        os.symlink(f"{lab.canary}/file", f"{container.rootfs}{LIBDIR}/libcuda.so.1")
        before = {path: os.lstat(path).st_uid for path in everything(container)}
        run = lab.run(container)
        assert run.started
        new = [path for path in everything(container) if path not in before]
        assert new
        assert {os.lstat(path).st_uid for path in new} == {100000}
        assert {path: os.lstat(path).st_uid for path in before} == before
    assert os.stat(f"{lab.canary}/file").st_uid == 0


def everything(container: Container) -> list[str]:
    return [f"{base}/{name}" for base, folders, files in os.walk(container.rootfs) for name in (*folders, *files)]


@pytest.mark.parametrize("last", [CACHE, f"{LIBDIR}/libnvidia-nvvm.so.550.54.14", "/tmp/nvidia-mps"])
def test_ac_24_failure_half_way(lab: Lab, last: str) -> None:
    """FAIL: the last targets are of the wrong kind; the tree and the mounts are as before, rules are taken back."""

    def prepare(rootfs: str) -> None:
        put(rootfs, DEBIAN)
        if last.startswith("/tmp"):
            put(rootfs, {last: "a file"})
        else:
            os.makedirs(f"{rootfs}{last}/x")

    run = lab.start(prepare=prepare)
    assert not run.started
    assert last in run.error


ENTRIES = 300_000


def test_ac_25_hostile_listing(lab: Lab) -> None:
    """SAFE within the limits: what could be listed holds 300 000 entries, some of 255 random bytes."""
    big = "/big"

    def prepare(rootfs: str) -> None:
        put(rootfs, {"etc/debian_version": "12.5\n", "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n"})
        os.mkdir(f"{rootfs}{big}")
        folder = os.open(f"{rootfs}{big}", os.O_PATH)
        for number in range(ENTRIES):
            os.mknod(f"libcuda.so.{number}", 0o100644, dir_fd=folder)
        for _ in range(1000):
            name = bytes(1 + byte % 255 for byte in os.urandom(255)).replace(b"/", b"x")
            os.mknod(name, 0o100644, dir_fd=folder)
        os.close(folder)
        put(rootfs, dict.fromkeys((LIBDIR, "usr/local/cuda/compat", "etc/ld.so.conf.d"), f"-> {big}"))

    lab.looks_at_tree = False
    run = lab.start(f"stat:{LIBCUDA}", prepare=prepare)
    assert run.started
    assert run.result.seen.stat(LIBCUDA)["kind"] == "file"
