"""Where a failed stage is kept: the record, the journal, the configured file. None of them gets in the way."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuhook import __version__, failures
from gpuhook.errors import UnknownDevice
from gpuhook.explain import last
from gpuhook.hook import Attempt, main
from gpuhook.settings import snapshot

HOSTILE = "GPU-\n\x1b[31m\u202egpuhook: ok\udc80"
ESCAPED = "GPU-\\n\\x1b[31m\\u202egpuhook: ok\\udc80"


def attempt(log: str | Path = "") -> Attempt:
    made = Attempt()
    made.stage, made.id, made.bundle, made.failure_log = "prestart", "c0ffee", "/run/b", str(log)
    return made


@pytest.fixture
def safe(tmp_path: Path) -> Path:
    """A folder that only root writes, as far up as it goes."""
    folder = tmp_path / "log"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(tmp_path / "run")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        listening.setblocking(False)
        yield path, listening


def fail(run: str, log: str | Path = "", journal: str = "/nowhere", text: str = HOSTILE) -> None:
    failures.keep(
        UnknownDevice(text, where="NVIDIA_VISIBLE_DEVICES", hint="look"), attempt(log), folder=run, journal=journal
    )


def test_the_record_holds_everything_and_is_ours_alone(run: str) -> None:
    """Each field as it was, in a file of mode 0600; the next failure takes its place."""
    fail(run, text="another")
    fail(run)
    found = failures.last(run)
    assert found is not None
    assert found.pop("time").endswith("Z")
    assert found == {
        "stage": "prestart", "container": "c0ffee", "bundle": "/run/b", "reference": "unknown-device", "text": HOSTILE,
        "where": "NVIDIA_VISIBLE_DEVICES", "hint": "look", "version": __version__,
    }  # fmt: skip
    assert stat.S_IMODE(os.stat(f"{run}/last-failure.json").st_mode) == 0o600
    assert os.listdir(run) == ["last-failure.json"]


def test_a_long_text_is_kept_in_part(run: str) -> None:
    """A text from an image cannot make the record too large to be kept."""
    fail(run, text="x" * (2 << 20))
    found = failures.last(run)
    assert found is not None
    assert 1000 < len(found["text"]) < 10_000


def test_the_log_gets_one_line_each(run: str, safe: Path) -> None:
    """Lines are appended, and nothing that an image says can begin another one."""
    log = safe / "gpuhook.log"
    log.write_text("older\n")
    fail(run, log)
    fail(run, log)
    older, one, two = log.read_text().splitlines()
    assert older == "older"
    assert one.split(" ", 1)[1] == two.split(" ", 1)[1]
    assert one.endswith(
        f" prestart: container c0ffee: unknown-device: {ESCAPED} (in NVIDIA_VISIBLE_DEVICES); hint: look"
    )


def plant(kind: str, log: Path, victim: Path) -> None:
    if kind == "a link":
        log.symlink_to(victim)
    elif kind == "a second name":
        os.link(victim, log)
    elif kind == "a FIFO":
        os.mkfifo(log)
    elif kind == "a folder":
        log.mkdir()
    elif kind == "a folder of others":
        log.parent.chmod(0o777)
    elif kind == "a file of others":
        log.touch()
        log.chmod(0o666)


@pytest.mark.parametrize(
    "kind", ["a link", "a second name", "a FIFO", "a folder", "a folder of others", "a file of others", "no folder"]
)
def test_a_hostile_log_is_not_written(
    run: str, safe: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    """AC-75: a warning on stderr, nobody's file changes, nothing is waited for, and the record is kept."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    log = safe / ("absent/log" if kind == "no folder" else "log")
    plant(kind, log, victim)
    fail(run, log)
    assert "gpuhook: warning: unsafe-config: the failure is not written to " in capfd.readouterr().err
    assert victim.read_text() == "mine"
    assert not log.is_file() or log.stat().st_size in (0, 4)
    assert failures.last(run) is not None


def test_the_journal_gets_it(run: str, journal: tuple[str, socket.socket]) -> None:
    """One datagram of the native protocol, in which no value can begin a field."""
    path, listening = journal
    fail(run, journal=path)
    lines = listening.recv(1 << 16).decode().split("\n")
    fields = dict(line.split("=", 1) for line in lines[:-1])
    assert lines[-1] == ""
    assert fields["MESSAGE"].startswith(f"gpuhook: prestart: container c0ffee: unknown-device: {ESCAPED}")
    assert (fields["PRIORITY"], fields["SYSLOG_IDENTIFIER"]) == ("3", "gpuhook")
    assert (fields["GPUHOOK_CONTAINER"], fields["GPUHOOK_REFERENCE"]) == ("c0ffee", "unknown-device")


def test_a_journal_that_reads_nothing_is_not_waited_for(run: str, journal: tuple[str, socket.socket]) -> None:
    """Its queue fills up; we go on."""
    for _ in range(2000):
        fail(run, journal=journal[0])


@pytest.mark.parametrize("kind", ["link", "file", "dead"])
def test_what_is_no_journal_is_left_alone(
    run: str, tmp_path: Path, journal: tuple[str, socket.socket], kind: str
) -> None:
    """A link, a file, a socket without a reader."""
    place = tmp_path / "place"
    if kind == "link":
        place.symlink_to(journal[0])
    elif kind == "file":
        place.write_text("")
    else:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
            gone.bind(str(place))
    fail(run, journal=str(place))
    with pytest.raises(BlockingIOError):
        journal[1].recv(10)
    assert kind != "file" or place.read_text() == ""


# The hook itself


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str) -> Iterator[Path]:
    """A container that asks for a GPU that is none, given on stdin. Yields a config.toml to be written."""
    monkeypatch.setattr(snapshot, "place", lambda: run)
    monkeypatch.setattr(failures, "JOURNAL", "/nowhere")
    bundle = tmp_path / "bundle"
    (bundle / "rootfs").mkdir(parents=True)
    env = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=flying"]
    (bundle / "config.json").write_text(
        json.dumps({"ociVersion": "1.0.2", "process": {"env": env}, "root": {"path": "rootfs"}})
    )
    reading, writing = os.pipe()
    os.write(writing, json.dumps({"id": "c0ffee", "pid": os.getpid(), "bundle": str(bundle)}).encode())
    os.close(writing)
    kept = os.dup(0)
    os.dup2(reading, 0)
    yield tmp_path / "config.toml"
    os.dup2(kept, 0)
    os.close(kept)
    os.close(reading)


def test_a_failing_hook_keeps_its_failure(
    state: Path, run: str, safe: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stage's failure with its container is there for explain, and in the configured file."""
    state.write_text(f'[gpuhook]\nfailure-log = "{safe}/log"\n')
    assert main(["--config", str(state), "prestart"]) == 1
    assert capfd.readouterr().err.startswith("gpuhook: unsupported-capability: ")
    found = failures.last(run)
    assert found is not None
    assert (found["container"], found["reference"]) == ("c0ffee", "unsupported-capability")
    assert "container c0ffee: unsupported-capability: " in (safe / "log").read_text()


@pytest.mark.parametrize("kind", ["a file", "a link", "a folder of others", "a folder of others in its place"])
def test_an_unwritable_folder_changes_nothing(
    state: Path, run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    """The hook's own message comes first and its status stays; nothing is written elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if kind == "a file":
        Path(run).write_text("")
    elif kind == "a link":
        Path(run).symlink_to(elsewhere)
    else:
        Path(run).mkdir()
        Path(run).chmod(0o777)
        if kind.endswith("place"):
            Path(run, "last-failure.json").mkdir()
    state.write_text("")
    assert main(["--config", str(state), "prestart"]) == 1
    assert capfd.readouterr().err.startswith("gpuhook: unsupported-capability: ")
    assert os.listdir(elsewhere) == []


def test_a_fault_in_keeping_is_not_told(
    state: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever goes wrong there, the failure's own message is the only one."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(failures, "keep", broken)
    state.write_text("")
    assert main(["--config", str(state), "prestart"]) == 1
    assert "RuntimeError" not in capfd.readouterr().err


@pytest.mark.parametrize("words", [["explain", "--nonsense"], ["createContainer"], ["nonsense"]])
def test_what_is_no_failed_stage_is_not_kept(words: list[str], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands for people, and stages that are not ours: those run inside the container's tree."""
    monkeypatch.setattr(snapshot, "place", lambda: run)
    with suppress(SystemExit):
        main(words)
    assert not os.path.exists(run)


# explain --last-failure


def test_explain_shows_it(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The reference first, then text, place and advice, escaped; and where more is to be read."""
    fail(run)
    assert last.show(as_json=False, folder=run) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"✗ unknown-device: {ESCAPED}"
    assert "gpuhook why unknown-device" in out
    assert "c0ffee" in out


def test_explain_prints_json(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The record itself; null for none."""
    last.show(as_json=True, folder=run)
    assert json.loads(capsys.readouterr().out) is None
    fail(run)
    last.show(as_json=True, folder=run)
    assert json.loads(capsys.readouterr().out) == failures.last(run)


def test_explain_says_that_there_is_none(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And where it looked."""
    last.show(as_json=False, folder=run)
    assert run in capsys.readouterr().out


def test_the_option(run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuhook explain --last-failure`."""
    monkeypatch.setattr(snapshot, "place", lambda: run)
    fail(run)
    assert main(["explain", "--last-failure", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["container"] == "c0ffee"
