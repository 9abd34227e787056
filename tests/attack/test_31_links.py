"""Names inside the root filesystem that lead out of it (threats.md 3.1, AC-01 to AC-06, AC-11, AC-12)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.attack.rig import ALL, MODESET, Lab
from tests.attack.rounds import Plant
from tests.attack.targets import CACHE, CAPABILITIES, outcomes, targets_of, unexpected
from tests.rig.rootfs import put

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

LIBDIR = "/usr/lib/x86_64-linux-gnu"
LIBCUDA = "libcuda.so.550.54.14"
REFUSED = "image-has-driver-files"


def put_link(rootfs: str, path: str, to: str) -> None:
    """Puts a link at this path of the tree, in the place of what is there, which gets another name."""
    place = f"{rootfs}{path}"
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.lexists(place):
        os.rename(place, f"{place}.aside")
    os.symlink(to, place)


def test_ac_01_library_folder_is_a_link_to_the_root(lab: Lab) -> None:
    """SAFE: the libraries appear in the container's own root folder."""

    def prepare(rootfs: str) -> None:
        put(rootfs, {"etc/debian_version": "12.5\n", LIBDIR: "-> /"})

    run = lab.start(f"stat:/{LIBCUDA}", prepare=prepare)
    assert run.started
    assert run.result.seen.stat(f"/{LIBCUDA}")["kind"] == "file"


@pytest.mark.parametrize("place", [LIBDIR, "/usr/bin", "/usr/lib/firmware", "/run", "/etc"])
@pytest.mark.parametrize("depth", [20, 3])
def test_ac_02_climbing_links(lab: Lab, place: str, depth: int) -> None:
    """FAIL: the climb stops at the container's root, where there is no such folder."""
    to = "../" * depth + lab.canary[1:] + "/dir"

    def prepare(rootfs: str) -> None:
        put(rootfs, {"etc/debian_version": "12.5\n"})
        put_link(rootfs, place, to)

    run = lab.start(prepare=prepare, env=(CAPABILITIES,))
    assert (run.started, run.slug) == (False, REFUSED)


@pytest.mark.parametrize("place", [LIBDIR, "/usr/lib/firmware", "/etc"])
def test_ac_02_the_climb_leads_to_a_folder_of_the_image(lab: Lab, place: str) -> None:
    """SAFE: the image has a folder of the canary's name, and the files land there."""
    inside = f"{lab.canary}/dir"

    def prepare(rootfs: str) -> None:
        os.makedirs(f"{rootfs}{inside}")
        put(rootfs, {f"{inside}/debian_version": "12.5\n", "etc/debian_version": "12.5\n"})
        put_link(rootfs, place, "../" * 20 + inside[1:])

    run = lab.start(prepare=prepare)
    assert run.started
    assert any(path.startswith(f"{inside}/") for path in run.changes)


def test_ac_03_absolute_link_that_exists_only_on_the_host(lab: Lab) -> None:
    """FAIL: /usr/lib64 leads to a folder that the image does not have."""
    run = lab.start(prepare=lambda rootfs: put_link(rootfs, "/usr/lib64", f"{lab.canary}/dir"))
    assert (run.started, run.slug) == (False, REFUSED)
    assert "/usr/lib64" in run.error


def test_ac_04_every_target_is_a_link_to_a_host_file(lab: Lab) -> None:
    """FAIL for each file, socket, device and folder in turn, the target named; SKIP for what is dispensable."""
    targets = targets_of(lab)
    plants = [Plant(target, "link", f"{lab.canary}/file") for target in targets.files]
    plants += [Plant(target, "link", f"{lab.canary}/dir") for target in targets.folders]
    assert unexpected(targets, outcomes(lab, targets, plants), REFUSED) == []


def test_ac_04_under_the_runtime(lab: Lab) -> None:
    """FAIL for a library and for a tool; a device's place is on the runtime's own /dev."""
    for target in (f"{LIBDIR}/{LIBCUDA}", "/usr/bin/nvidia-smi"):
        files = {"etc/debian_version": "12.5\n", target: f"-> {lab.canary}/file"}
        run = lab.start(files=files)
        assert (run.started, run.slug) == (False, REFUSED)
        assert target in run.error


def test_ac_04_links_of_ours_and_the_cache_are_links_to_a_host_file(lab: Lab) -> None:
    """SAFE: SONAME links of the image stay, with a warning; its cache is replaced by a regular file."""
    targets = targets_of(lab)
    links = dict.fromkeys((*targets.links, CACHE), f"-> {lab.canary}/file")
    run = lab.start(
        f"stat:{CACHE}", f"stat:{targets.links[0]}", files={"etc/debian_version": "", **links}, env=(CAPABILITIES,),
        granted=ALL | MODESET,
    )  # fmt: skip
    assert run.started
    assert run.warnings.count(REFUSED) == len(targets.links)
    assert run.result.seen.stat(CACHE)["kind"] == "file"
    assert run.result.seen.stat(targets.links[0])["target"] == f"{lab.canary}/file"


@pytest.mark.parametrize("form", ["absolute", "relative"])
def test_ac_05_dangling_link_at_every_target(lab: Lab, form: str) -> None:
    """FAIL for each target in turn, SKIP for what is dispensable; the destination is made neither here nor there."""
    targets = targets_of(lab)
    to = f"{lab.canary}/absent" if form == "absolute" else "absent"
    plants = [Plant(target, "link", to) for target in (*targets.files, *targets.folders)]
    assert unexpected(targets, outcomes(lab, targets, plants), REFUSED) == []
    assert not [base for base, _, files in os.walk(f"{lab.folder}/rootfs") if "absent" in files]


@pytest.mark.parametrize("form", ["absolute", "relative"])
def test_ac_05_dangling_links_in_the_place_of_links_and_the_cache(lab: Lab, form: str) -> None:
    """SAFE: nothing follows them; the cache becomes a regular file."""
    to = f"-> {lab.canary}/absent" if form == "absolute" else "-> absent"
    links = dict.fromkeys((*targets_of(lab).links, CACHE), to)
    run = lab.start(
        f"stat:{CACHE}", files={"etc/debian_version": "", **links}, env=(CAPABILITIES,), granted=ALL | MODESET
    )
    assert run.started
    assert run.result.seen.stat(CACHE)["kind"] == "file"
    assert not any(path.endswith("/absent") for path in run.changes)


def loop(rootfs: str, place: str, canary: str) -> None:
    put(rootfs, {place: "-> /b", "b": "-> /c", "c": "-> /b"})


def chain(rootfs: str, place: str, canary: str, length: int = 41, width: int = 0) -> None:
    """Links one to the other, the last to the canary; width: of each text, filled up with slashes."""
    names = [f"/l{n}" for n in range(length - 1)]
    ways = [*names, f"{canary}/dir"]
    put(rootfs, {place: f"-> {ways[0].rjust(width, '/')}"})
    put(rootfs, {name: f"-> {way.rjust(width, '/')}" for name, way in zip(names, ways[1:], strict=True)})


LOOPS: dict[str, Callable[[str, str, str], object]] = {
    "a loop": loop,
    "41 links": chain,
    "39 links of 4095 bytes": lambda rootfs, place, canary: chain(rootfs, place, canary, 39, 4095),
}


@pytest.mark.parametrize("form", LOOPS)
@pytest.mark.parametrize("place", [LIBDIR, "/etc", "/usr/bin"])
def test_ac_06_link_loops_and_long_chains(lab: Lab, form: str, place: str) -> None:
    """FAIL naming the in-container path, which the chain of 39 reaches the end of, and finds nothing there."""

    def prepare(rootfs: str) -> None:
        put(rootfs, {"etc/debian_version": "12.5\n"})
        if os.path.lexists(f"{rootfs}{place}"):
            os.rename(f"{rootfs}{place}", f"{rootfs}{place}.aside")
        LOOPS[form](rootfs, place, lab.canary)

    run = lab.start(prepare=prepare)
    assert (run.started, run.slug) == (False, REFUSED)
    assert place in run.error


@pytest.mark.parametrize("process", ["1", "self"])
def test_ac_11_etc_is_a_magic_link_to_the_host(lab: Lab, process: str) -> None:
    """FAIL: the cache would go through another process's root, which is the host's at this time."""
    to = f"/proc/{process}/root{lab.canary}"
    run = lab.start(prepare=lambda rootfs: put_link(rootfs, "/etc", to))
    assert (run.started, run.slug) == (False, REFUSED)
    assert "/etc" in run.error


@pytest.mark.parametrize(
    "to",
    [
        "/proc/self/cwd", "/proc/self/root/usr/lib", "/proc/self/fd/3", "/proc/thread-self/root", "/dev/fd/5",
        "/proc/1/root", "/proc/1/cwd", "/proc/1/root/usr/lib", f"/proc/{os.getppid()}/cwd", "/proc/1/fd/3",
        "/proc/1/task/1/root",
    ],
)  # fmt: skip
def test_ac_12_other_magic_links(lab: Lab, to: str) -> None:
    """FAIL: no path goes through what procfs knows of processes."""

    def prepare(rootfs: str) -> None:
        put(rootfs, {"etc/debian_version": "12.5\n", LIBDIR: f"-> {to}"})

    run = lab.start(prepare=prepare)
    assert (run.started, run.slug) == (False, REFUSED)
    assert LIBDIR in run.error
