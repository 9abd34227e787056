"""`--debug FILE`: the form of the log, what is in it, and which files are not written to."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from gpuhook import note
from gpuhook.backend import log
from tests.engine_cli.cli import Cli
from tests.rig.init import Init
from tests.rig.needs import need
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import Node

LINE = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} (\d+) (\w+\.py):\d+\] (.+)")
WARNING = "-- WARNING, the following logs are for debugging purposes only --"


def lines(path: str | Path) -> list[str]:
    """The messages in a log with their levels, after a check of its form."""
    first, second, third, *rest = Path(path).read_text().split("\n")
    assert (first, second, third, rest[-1]) == ("", WARNING, "", "")
    assert all(LINE.fullmatch(line) for line in rest[:-1]), rest
    return [f"{line[0]} {line.split('] ', 1)[1]}" for line in rest[:-1]]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "debug.log")


def test_list_logs_what_it_finds(cli: Cli, driver: FakeDriver, place: str) -> None:
    """Root, cache, user, every file, every absence; nothing else changes."""
    assert cli.lines("list", "-d0", top=("--debug", place)) == cli.lines("list", "-d0")
    found = lines(place)
    assert found[:3] == [
        f"I using root {driver.root}", "I using ldcache /etc/ld.so.cache", "I using unprivileged user 65534:65534",
    ]  # fmt: skip
    assert f"I selecting {driver.library('libcuda.so')}" in found
    assert "W missing library libnvidia-compiler.so" in found
    assert "W missing compat32 library libnvidia-cfg.so" in found
    gpu = driver.gpus[0]
    assert f"I listing device /dev/nvidia{gpu.minor} ({gpu.uuid} at 0000{gpu.bus_id})" in found


def test_what_is_missing_is_named(program: str, tmp_path: Path, place: str) -> None:
    """Nodes, programs, sockets: one warning each."""
    need("gcc")
    without = ("nvidia-smi", "/run/nvidia-persistenced/socket")
    driver = build(f"{tmp_path}/root", uvm_major=None, without=without)
    Cli(program, driver.root).lines("list", top=("-d", place))
    found = lines(place)
    for text in ("device /dev/nvidia-uvm", "binary nvidia-smi", "path /var/run/nvidia-persistenced/socket"):
        assert f"W missing {text}" in found


def test_configure_logs_what_it_does(cli: Cli, driver: FakeDriver, tmp_path: Path, place: str) -> None:
    """Each mount with its flags, each link, the owner; the words that people search for."""
    with Init(make_rootfs(f"{tmp_path}/rootfs", "debian")) as init:
        words = ("configure", f"--pid={init.pid}", "-d0", "--compute", "--utility", "--no-cgroups", init.rootfs)
        done = cli(*words, top=(f"--debug={place}",))
        assert (done.status, done.stdout, done.stderr) == (0, "", "")
    found = lines(place)
    cuda = driver.library("libcuda.so")
    assert "I configuring container with 'compute utility no-cgroups supervised'" in found
    assert "I setting owner to 0:0" in found
    assert f"I mounting {driver.root}{cuda} at {init.rootfs}{cuda} with flags 0x7" in found
    assert f"I mounting {driver.root}/dev/nvidiactl at {init.rootfs}/dev/nvidiactl with flags 0xb" in found
    assert f"I creating symlink {init.rootfs}{driver.libdir}/libcuda.so -> libcuda.so.1" in found
    assert f"I mounting tmpfs at {init.rootfs}/proc/driver/nvidia with flags 0xf" in found or any(
        "not covered" in line for line in found
    )


def test_device_rules_are_logged(cli: Cli, tmp_path: Path, place: str) -> None:
    """Which version of cgroups it is, and each device."""
    if not os.path.exists("/sys/fs/cgroup/devices/tasks"):
        pytest.skip("needs the devices hierarchy of cgroup v1")
    with Init(make_rootfs(f"{tmp_path}/rootfs"), group=True) as init:
        assert cli("configure", f"--pid={init.pid}", "-d1", init.rootfs, top=("-d", place)).status == 0
        assert "c 195:0 rw" in init.rules
    found = lines(place)
    assert f"I detected cgroupv1: {init.group_path}" in found
    assert "I allowing device 195:0" in found


def test_errors_are_logged_with_their_reference(cli: Cli, place: str) -> None:
    """The slug by which the catalogue of diagnoses knows it."""
    cli.refusal("list", "-d7", top=("-d", place))
    assert lines(place)[-1].startswith("E unknown-device: GPU 7 was requested")


def test_a_log_grows(cli: Cli, place: str) -> None:
    """Each run appends its own heading."""
    for _ in range(2):
        cli.lines("list", "-b", top=("-d", place))
    assert Path(place).read_text().count(WARNING) == 2
    assert os.stat(place).st_mode & 0o777 == 0o644


def test_the_variable_names_a_log_too(cli: Cli, place: str, tmp_path: Path) -> None:
    """NVC_DEBUG_FILE counts where there is no option."""
    cli.lines("list", "-b", env={"NVC_DEBUG_FILE": place})
    assert lines(place)
    cli.lines("list", "-b", top=("-d", f"{tmp_path}/other"), env={"NVC_DEBUG_FILE": f"{tmp_path}/ignored"})
    assert lines(tmp_path / "other")
    assert not (tmp_path / "ignored").exists()


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_the_log_may_be_a_stream(cli: Cli, stream: str) -> None:
    """As hooks ask for it when they are debugged themselves."""
    done = cli("list", "-b", top=(f"--debug=/dev/{stream}",))
    assert done.status == 0
    assert WARNING in getattr(done, stream)


def test_no_log_at_all(cli: Cli) -> None:
    """/dev/null is no file to write to, and nothing to complain of."""
    assert cli.lines("list", "-b", top=("--debug=/dev/null",)) == cli.lines("list", "-b", top=("--debug=",))


def test_a_relative_name_is_below_the_current_folder(program: str, driver: FakeDriver, tmp_path: Path) -> None:
    """The one that the program was started in."""
    from tests.rig.process import run

    done = run([program, f"--root={driver.root}", "-d", "log", "list", "-b"], cwd=str(tmp_path))
    assert (done.status, done.stderr) == (0, "")
    assert lines(tmp_path / "log")


# --- files that are not written to ---


def hazard(kind: str, folder: Path) -> str:
    """A path that must not be written to."""
    canary, path = folder / "canary", folder / "place" / "log"
    canary.write_text("canary")
    path.parent.mkdir()
    KINDS[kind](path, canary)
    return str(path)


def somebodys(path: Path, _canary: Path) -> None:
    path.touch()
    os.chown(path, 1000, 1000)


def writable(path: Path, _canary: Path) -> None:
    path.touch()
    path.chmod(0o666)


def large(path: Path, _canary: Path) -> None:
    path.touch()
    os.truncate(path, log.LARGEST + 1)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, canary: path.symlink_to(canary),
    "dangling link": lambda path, canary: path.symlink_to(canary.with_name("new")),
    "hard link": lambda path, canary: path.hardlink_to(canary),
    "fifo": lambda path, canary: os.mkfifo(path),
    "folder": lambda path, canary: path.mkdir(),
    "somebody's": somebodys,
    "writable": writable,
    "in somebody's folder": lambda path, canary: path.parent.chmod(0o777),
    "large": large,
    "nowhere": lambda path, canary: path.parent.rmdir(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_log_is_better_than_a_wrong_one(cli: Cli, tmp_path: Path, kind: str) -> None:
    """The work is done, stderr tells why there is no log, and nobody's file was changed (AC-75)."""
    need()
    path = hazard(kind, tmp_path)
    size = os.lstat(path).st_size if os.path.lexists(path) else -1
    done = cli("list", "-b", top=("-d", path))
    assert (done.status, len(done.stdout.splitlines())) == (0, 6)
    assert done.stderr.startswith(f"gpuhook: warning: unsafe-config: no debug log is written to {path}: ")
    assert (tmp_path / "canary").read_text() == "canary"
    assert not (tmp_path / "new").exists()
    assert (os.lstat(path).st_size if os.path.lexists(path) else -1) == size


def test_a_full_disk_ends_the_log(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The rest of the run goes on without it."""
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(note, "log", log.Log(full))
    note.note("one")
    note.note("two")
    os.close(full)
    assert note.log is None
    assert (
        capfd.readouterr().err == "gpuhook: warning: unsafe-config: the debug log ends here: No space left on device\n"
    )


def test_messages_cannot_forge_lines(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control characters come out as escapes, long texts are cut."""
    monkeypatch.setattr(note, "log", None)
    log.start_log(place)
    note.note("a\nE1231 forged\x1b[31m\u202e")
    note.note("x" * 100_000)
    note.warn("slug", "text")
    found = lines(place)
    assert found[0] == "I a\\nE1231 forged\\x1b[31m\\u202e"
    assert len(found[1]) == 2 + log.LONGEST
    assert found[2] == "W slug: text"


def test_no_child_inherits_the_log(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes on exec."""
    monkeypatch.setattr(note, "log", None)
    log.start_log(place)
    assert isinstance(note.log, log.Log)
    assert fcntl.fcntl(note.log.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_the_time_is_utc(place: str, cli: Cli) -> None:
    """Whatever the time zone of the machine is."""
    cli.lines("list", "-b", top=("-d", place), env={"TZ": "XYZ-11"})
    from datetime import datetime, timezone

    stamp = Path(place).read_text().split("\n")[3].split(" ")[:2]
    now = datetime.now(timezone.utc)
    assert stamp[0][1:] in (now.strftime("%m%d"), "9999")
    assert abs(int(stamp[1][:2]) - now.hour) in (0, 1, 23)


def test_config_toml_asks_the_embedded_engine_for_a_log(node: Node, tmp_path: Path, place: str) -> None:
    """`[nvidia-container-cli] debug`, without that program."""
    config = node.config(cli={"debug": place, "no-cgroups": True})
    with Init(make_rootfs(f"{tmp_path}/rootfs", "debian")) as init:
        done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=0", config=config)
        assert done.status == 0, done.stderr
    assert any(line.startswith(f"I mounting {node.driver.root}/dev/nvidiactl at ") for line in lines(place))
