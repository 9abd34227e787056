"""The shim's log: where it goes, what it holds, and when it is left alone (AC-75)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuhook.runtime.call import parse_call
from gpuhook.runtime.log import Log
from gpuhook.settings.values import Settings
from tests.rig.needs import need
from tests.rig.process import run
from tests.shim.stand import Stand, hooks_of


def log_of(debug: str = "", line: str = "", level: str = "info") -> Log:
    """The log under this configuration and this command line."""
    log = Log()
    log.use(Settings(runtime_debug=debug, runtime_log_level=level), parse_call(line.split(), "runc"))
    return log


def test_both_files_get_every_line(tmp_path: Path) -> None:
    """The configured one and the low-level runtime's; folders are made."""
    own, runtimes = tmp_path / "a/b/own.log", tmp_path / "runc.log"
    log = log_of(str(own), f"--log {runtimes} create c1")
    log("info", 'said "so"\nand more')
    line = own.read_text()
    assert line == runtimes.read_text()
    assert line.startswith('time="20')
    assert line.endswith('" level=info msg="gpuhook: said \\"so\\"\\\\nand more"\n')
    assert os.stat(own).st_mode & 0o777 == 0o644


def test_lines_can_be_json(tmp_path: Path) -> None:
    """Docker and containerd read the last error of the runtime's log in this form."""
    file = tmp_path / "log.json"
    log_of("", f"--log-format json --log {file} create c1").warn("a-slug", "日本")
    entry = json.loads(file.read_text())
    assert (entry["level"], entry["msg"]) == ("warning", "gpuhook: a-slug: 日本")
    assert entry["time"].endswith("Z")


@pytest.mark.parametrize(
    ("level", "line", "written"),
    [
        ("info", "", ["error", "warning", "info"]),
        ("warn", "", ["error", "warning"]),
        ("panic", "", []),
        ("trace", "", ["error", "warning", "info", "debug"]),
        ("error", "--debug", ["error", "warning", "info", "debug"]),
    ],
)
def test_the_level_decides(tmp_path: Path, level: str, line: str, written: list[str]) -> None:
    """What matters less is left out; --debug of the runtime wins."""
    file = tmp_path / "log"
    log = log_of(str(file), f"{line} create c1", level)
    for each in ("error", "warning", "info", "debug"):
        log(each, "x")
    lines = file.read_text().splitlines() if file.exists() else []
    assert [text.split("level=")[1].split(" ")[0] for text in lines] == written


@pytest.mark.parametrize("path", ["", "/dev/null"])
@pytest.mark.parametrize(("line", "told"), [("create c1", "gpuhook: warning: a: b\n"), ("state c1", "")])
def test_without_a_file_warnings_are_said(path: str, line: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Where a container is made; what another command prints is read by engines, and a line more would break it."""
    log_of(path, line).warn("a", "b")
    log_of(path, line)("info", "x")
    assert capfd.readouterr() == ("", told)


def test_a_full_disk_is_no_file(tmp_path: Path) -> None:
    """What cannot be written is said, and the container starts."""
    need("unshare")
    stand = Stand(tmp_path)
    config = stand.config(runtimes=[stand.runc, "/nowhere"], debug=f"{tmp_path}/full/log")
    config = stand.write("bad.toml", Path(config).read_text() + "\nunknown-key = 1\n")
    (tmp_path / "full").mkdir()
    bundle = stand.bundle("NVIDIA_VISIBLE_DEVICES=all")
    fill = f"mount -t tmpfs -o size=4k none {tmp_path}/full && yes > {tmp_path}/full/log"
    call = f"NVIDIA_CTK_CONFIG_FILE_PATH={config} {stand.shim} create -b {bundle} c1"
    result = run(["unshare", "--mount", "sh", "-c", f"{fill} 2>/dev/null; {call}"])
    assert (result.status, len(hooks_of(bundle))) == (0, 1)
    assert result.stderr.startswith("gpuhook: warning: config-toml-broken: ")


def link(place: Path) -> None:
    place.with_name("target").write_text("")
    place.symlink_to(place.with_name("target"))


def fifo(place: Path) -> None:
    os.mkfifo(place)


def folder(place: Path) -> None:
    place.mkdir()


def foreign(place: Path) -> None:
    place.write_text("")
    os.chown(place, 1000, 1000)


def writable(place: Path) -> None:
    place.write_text("")
    place.chmod(0o666)


def full(place: Path) -> None:
    place.symlink_to("/dev/full")


def in_foreign_folder(place: Path) -> None:
    os.chown(place.parent, 1000, 1000)


@pytest.mark.attack
@pytest.mark.parametrize("make", [link, fifo, folder, foreign, writable, full, in_foreign_folder])
def test_a_file_that_could_be_somebody_elses_is_left_alone(make: object, tmp_path: Path) -> None:
    """No link is followed, nothing is waited for; the container starts, and stderr tells why there is no log."""
    need()
    (tmp_path / "logs").mkdir()
    place = tmp_path / "logs" / "shim.log"
    stand = Stand(tmp_path)
    make(place)  # type: ignore[operator]
    bundle = stand.bundle("NVIDIA_VISIBLE_DEVICES=all")
    result = stand.create(bundle, config=stand.config(debug=str(place)))
    assert (result.status, stand.argv is not None, len(hooks_of(bundle))) == (0, True, 1)
    assert f"gpuhook: warning: the log {place} is not written: " in result.stderr
    assert not (tmp_path / "logs" / "target").exists() or (tmp_path / "logs" / "target").read_text() == ""
    assert place.is_fifo() or place.is_dir() or not place.exists() or place.stat().st_size == 0


def test_the_other_log_tells_of_a_bad_one(tmp_path: Path) -> None:
    """The stream of errors is for what nobody else can be told."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.mkdir()
    log_of(str(bad), f"--log {good} create c1")("info", "x")
    assert f'level=warning msg="gpuhook: the log {bad} is not written: Is a directory' in good.read_text()
    assert good.read_text().count("\n") == 2
