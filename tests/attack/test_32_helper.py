"""ldconfig, the only program that is ever run over an image's tree (threats.md 3.2, AC-32 to AC-35)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.driver.native_build import compiled
from gpuhook.loader.cache import parse
from tests.attack import markers
from tests.attack.rig import Lab, Run
from tests.attack.test_32_cache import CACHE, DAMAGED, STALE, cache_of, start
from tests.attack.test_33_strings import ENGINE, PROGRAM, Backend
from tests.rig.init import Init
from tests.rig.rootfs import give_to, make_rootfs, put

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

HERE = os.path.dirname(os.path.abspath(__file__))
LDCONFIG = "/sbin/ldconfig.real" if os.path.exists("/sbin/ldconfig.real") else "/sbin/ldconfig"


def spoil(rootfs: str) -> None:
    put(rootfs, {CACHE: DAMAGED})


@pytest.mark.parametrize("damaged", [False, True])
def test_ac_32_tools_of_the_image(lab: Lab, damaged: bool) -> None:
    """SAFE: none of the image's programs, its loader or preloaded objects is run or loaded from the hook's side."""
    tools = ("usr/sbin/ldconfig", "usr/sbin/ldconfig.real", "usr/bin/sh", "usr/lib64/ld-linux-x86-64.so.2")

    def prepare(rootfs: str) -> None:
        for path in tools:
            place = f"{rootfs}/{path}"
            if os.path.lexists(place):
                os.unlink(place)
            put(rootfs, {path: markers.program(lab.marks, path.replace("/", "-"))}, 0o755)
        put(rootfs, {"etc/ld.so.preload": "/marker.so\n"})
        if damaged:
            spoil(rootfs)

    run = start(lab, prepare)
    assert "libc.so.6" in cache_of(run)


@pytest.mark.parametrize("switch", ["false", "true"])
def test_ac_33_container_relative_ldconfig_configured(lab: Lab, switch: str) -> None:
    """SAFE: the embedded engine runs the host's, whatever the switch says (decisions.md 6 over FAIL)."""
    text = f"[features]\nallow-ldconfig-from-container = {switch}\n"
    config = lab.config(text, ldconfig="/sbin/ldconfig")
    run = start(lab, spoil, config=config)
    assert "libc.so.6" in cache_of(run)
    assert STALE not in run.warnings


@pytest.mark.parametrize(("switch", "word"), [("false", "--ldconfig=@"), ("true", "--ldconfig=/")])
def test_ac_33_what_the_program_is_told(lab: Lab, switch: str, word: str) -> None:
    """SAFE: nvidia-container-cli gets the host's program too, and the image's only with the switch."""
    record = f"{lab.folder}/argv"
    put(lab.folder, {"argv.sh": f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {record}\n"}, 0o755)
    text = f"[features]\nallow-ldconfig-from-container = {switch}\n"
    config = lab.node.config(backend=PROGRAM, cli={"path": f"{record}.sh", "ldconfig": "/sbin/ldconfig"}, text=text)
    with Init(make_rootfs(f"{lab.folder}/rootfs")) as init:
        run = lab.hook(init, config=config)
    assert run.report.status == 0
    argv = Backend(lab, init, ENGINE, record).argv() or []
    assert [value[: len(word)] for value in argv if value.startswith("--ldconfig")] == [word]


def configured(lab: Lab, name: str, content: bytes) -> str:
    """The configuration of a node whose ldconfig is this file."""
    put(lab.folder, {name: content}, 0o755)
    os.chmod(lab.folder, 0o711)
    return lab.config(ldconfig=f"@{lab.folder}/{name.removesuffix('.real')}")


def script(lab: Lab) -> bytes:
    return markers.script(lab.marks, "script").encode()


def test_ac_34_host_ldconfig_is_a_script_with_a_real_one_beside(lab: Lab) -> None:
    """SAFE through the real ELF file; the script is not run, by no shell."""
    put(lab.folder, {"tool.real": Path(LDCONFIG).read_bytes()}, 0o755)
    run = start(lab, spoil, config=configured(lab, "tool", script(lab)))
    assert "libc.so.6" in cache_of(run)
    assert run.warnings == []


@pytest.mark.parametrize(
    "form", ["a script", "a dynamic program", "nothing", "for another machine", "of somebody else"]
)
def test_ac_34_host_ldconfig_is_no_static_program(lab: Lab, form: str) -> None:
    """SAFE with a small cache and a warning that names the program; nothing of it, nor an interpreter, is run."""
    real = Path(LDCONFIG).read_bytes()
    content = {
        "a script": script(lab),
        "a dynamic program": Path(shutil.which("true") or "/bin/true").read_bytes(),
        "nothing": b"",
        "for another machine": real[:18] + b"\x08\x00" + real[20:],
        "of somebody else": real,
    }[form]
    config = configured(lab, "tool", content)
    if form == "of somebody else":
        os.chown(f"{lab.folder}/tool", 1000, 1000)
    run = start(lab, spoil, config=config)
    assert run.warnings == [STALE]
    assert f"{lab.folder}/tool" in run.said
    assert "libc.so.6" not in cache_of(run)


def prisoner(lab: Lab, user_from: int = 0) -> dict[str, str]:
    """What a program finds that runs in ldconfig's place."""
    image = compiled(f"{HERE}/prisoner.c", ["-O1", "-static"])
    text = f"{lab.canary}/file".encode() + b"\0"
    at = image.index(b"@MARK@\0")
    volume = f"{lab.folder}/volume"
    put(volume, {"file": "of the user"})

    def prepare(rootfs: str) -> None:
        spoil(rootfs)
        os.mknod(f"{rootfs}/image-node", 0o020666, os.makedev(1, 5))
        if user_from:
            give_to(rootfs, user_from)

    mount = {"destination": "/run/volume", "type": "bind", "source": volume, "options": ["rbind"]}
    run = start(
        lab, prepare, config=configured(lab, "tool", image[:at] + text + image[at + len(text) :]),
        mounts=[mount], user_from=user_from,
    )  # fmt: skip
    assert run.warnings == []
    facts = [path.removeprefix("/fact/") for path in cache_of(run).values() if path.startswith("/fact/")]
    return dict(fact.split("=", 1) for fact in facts)


CONFINED = {
    "capabilities": "0:0:0", "bounding": "0", "no_new_privs": "1", "seccomp": "2", "pid": "1", "variables": "0",
    "descriptors": "0", "files": "64", "canary": "ENOENT", "canary-by-proc": "ENOENT", "proc": "ENOENT",
    "sys": "ENOENT", "null": "ENOENT", "volume": "ENOENT", "node": "EACCES", "write": "EROFS", "mount": "EPERM",
    "umount": "EPERM", "remount": "EPERM", "unshare": "EPERM", "socket": "EPERM", "fork": "EPERM", "exec": "EPERM",
    "mknod": "EPERM", "chroot": "EPERM", "setuid": "EPERM", "io_uring": "EPERM",
}  # fmt: skip


@pytest.mark.parametrize("user_from", [0, 100000])
def test_ac_35_the_helper_is_confined(lab: Lab, user_from: int) -> None:
    """SAFE: it has no right, no descriptor, no variable; it sees no host, no volume, no procfs, and writes nothing."""
    facts = prisoner(lab, user_from)
    assert facts == {"uid": f"{user_from}:{user_from}", **CONFINED}


# A neighbour with root's rights that opens every new program of that name for writing, then what it has found again.
NEIGHBOUR = """
import os, sys
stop = sys.argv[1]
found = {}
print("ready", flush=True)
outcome = []
while not os.path.exists(stop):
    for name in os.listdir("/proc"):
        if not name.isdigit() or name in found:
            continue
        try:
            target = os.readlink(f"/proc/{name}/exe")
            if "ldconfig" not in target and "memfd:" not in target:
                continue
            found[name] = os.open(f"/proc/{name}/exe", os.O_RDONLY)
            outcome.append("seen")
            os.open(f"/proc/{name}/exe", os.O_WRONLY)
            outcome.append("opened")
        except OSError as error:
            outcome.append(error.strerror)
for fd in found.values():
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        os.pwrite(again, b"x", 0)
        outcome.append("written")
    except OSError as error:
        outcome.append(error.strerror)
print(*sorted(set(outcome)), sep=",")
"""


@contextmanager
def neighbour(lab: Lab, *before: str) -> Iterator[list[str]]:
    """That neighbour, started behind these words; at the end what became of its tries."""
    stop, outcome = f"{lab.folder}/stop", [""]
    argv = [*before, sys.executable, "-IS", "-c", NEIGHBOUR, stop]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield outcome
        finally:
            put(lab.folder, {"stop": ""})
            outcome[0] = process.stdout.read().strip()


def slow(rootfs: str) -> None:
    """Lets ldconfig wait for a FIFO until its time is up, so that there is time to find it."""
    spoil(rootfs)
    os.unlink(f"{rootfs}/etc/ld.so.conf")
    os.mkfifo(f"{rootfs}/etc/ld.so.conf")


def hook_on_slow_image(lab: Lab, init: Init) -> Run:
    run = lab.hook(init)
    assert run.report.status == 0
    assert run.warnings[-1] == STALE
    return run


def test_ac_35_rewrite_of_the_running_helper_from_its_container(lab: Lab) -> None:
    """SAFE: in the container's process namespace the helper cannot be seen."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs", "debian")
    slow(rootfs)
    with Init(rootfs) as init:
        # Its own /proc shows the processes of that namespace.
        inside = ["nsenter", "--target", str(init.pid), "--pid", "unshare", "--mount", "--mount-proc"]
        with neighbour(lab, *inside) as outcome:
            hook_on_slow_image(lab, init)
    assert outcome == [""]


def test_ac_35_rewrite_of_the_running_helper_from_the_host(lab: Lab) -> None:
    """SAFE even with the host's process namespace shared: what is found is a sealed copy, which nobody can write."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs", "debian")
    slow(rootfs)
    content = Path(LDCONFIG).read_bytes()
    with Init(rootfs) as init, neighbour(lab) as outcome:
        hook_on_slow_image(lab, init)
    found = set(outcome[0].split(","))
    assert "seen" in found
    assert not {"opened", "written"} & found
    assert Path(LDCONFIG).read_bytes() == content


def test_a_cache_that_ldconfig_made_is_the_one_it_would_make(lab: Lab) -> None:
    """The new cache holds what an ldconfig of the image's own would, and the driver's libraries before it."""
    made: list[set[str]] = []

    def prepare(rootfs: str) -> None:
        made.append({entry[0] for entry in parse(Path(f"{rootfs}{CACHE}").read_bytes()).entries})
        spoil(rootfs)

    run = start(lab, prepare)
    assert made[0] <= cache_of(run).keys()
