"""The shell part of the shim's launcher, and what it goes by."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.archive import archive_path
from gpuhook.launchers import package_folders
from gpuhook.runtime.kept import keep, last_kept
from gpuhook.runtime_launcher import runtime_text
from tests.rig.needs import need
from tests.rig.process import PATH, run
from tests.shim.stand import RECORDER, write_program

SHELLS = [["sh"], ["busybox", "sh"], ["bash", "--posix"], ["bash"]]
FOUND = b"/found/runc"


class Node:
    """A config.toml, a folder for what is kept, a low-level runtime, and a launcher whose Python only says so."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept, self.config = folder, folder / "kept", folder / "config.toml"
        self.runc = write_program(folder / "runc", RECORDER.format(folder=folder, status=7))
        python = write_program(folder / "python it's", '#!/bin/sh\nprintf "python:"\nprintf " %s" "$@"\n')
        text = runtime_text(python, ["/x y"], "/a'b.", config=str(self.config), folder=str(self.kept))
        self.launcher = write_program(folder / "gpuhook-runtime", text)
        self.config.write_text("x = 1\n")
        self.age(self.config, 10)

    def age(self, path: Path, seconds: float) -> None:
        """Let a file have been changed so long ago, as far as its times tell."""
        os.utime(path, ns=(then := time.time_ns() - int(seconds * 1e9), then))

    def keep(self, path: str = PATH) -> None:
        """Keep the runtime, as Python does."""
        keep(self.runc, {b"PATH": path.encode()}, default=str(self.config), folder=str(self.kept))

    def call(self, *words: str, shell: list[str] | None = None, **env: str) -> str:
        """What was started, as "runc" or "python", and how it was called."""
        argv = [*(shell or []), self.launcher, *words]
        (self.folder / "argv").unlink(missing_ok=True)
        result = run(argv, env={"PATH": PATH, **env})
        if result.stdout.startswith("python:"):
            return f"python {result.stdout.rpartition(self.launcher)[2]}"
        assert (result.status, result.stdout, result.stderr) == (7, "", "")
        return f"runc {' '.join((self.folder / 'argv').read_text().split(chr(0))[1:-1])}"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node on which nothing is kept yet."""
    monkeypatch.setattr("gpuhook.runtime.kept.SETTLED", 0)
    return Node(tmp_path)


@pytest.fixture(params=SHELLS, ids=" ".join)
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Whatever may be /bin/sh."""
    words: list[str] = request.param
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]}")
    return words


def test_what_was_found_before_is_called_at_once(node: Node, shell: list[str]) -> None:
    """With the same words and its own exit status, and without Python."""
    node.keep()
    assert node.call("--root", "/r", "state", "c1", "", "a b", "*", shell=shell) == "runc --root /r state c1  a b *"


@pytest.mark.parametrize(
    "words", [("create", "c1"), ("run", "c1"), ("delete", "create"), ("--version",), ("-v",), ("exec", "c", "run")]
)
def test_python_looks_at_what_could_make_a_container(node: Node, words: tuple[str, ...], shell: list[str]) -> None:
    """A word anywhere will do: it costs time and changes nothing."""
    node.keep()
    assert node.call(*words, shell=shell) == f"python  {' '.join(words)}"


def test_without_anything_kept_python_looks(node: Node, shell: list[str]) -> None:
    """So it is after every start of the machine."""
    assert node.call("state", "c1", shell=shell) == "python  state c1"


def newer(node: Node) -> None:
    node.config.write_text("x = 2\n")


def older(node: Node) -> None:
    node.age(node.config, 60)


def gone(node: Node) -> None:
    node.config.unlink()


def no_runtime(node: Node) -> None:
    os.unlink(node.runc)


def linked(node: Node) -> None:
    os.rename(node.kept / "runtime", node.folder / "elsewhere")
    os.symlink(node.folder / "elsewhere", node.kept / "runtime")


def linked_folder(node: Node) -> None:
    os.rename(node.kept, node.folder / "elsewhere")
    os.symlink(node.folder / "elsewhere", node.kept)


def foreign(node: Node) -> None:
    os.chown(node.kept / "runtime", 1000, 1000)


def foreign_folder(node: Node) -> None:
    os.chown(node.kept, 1000, 1000)


def cut(node: Node) -> None:
    status = os.stat(node.kept / "runtime")
    (node.kept / "runtime").write_text(f"{node.runc}\n")
    os.utime(node.kept / "runtime", ns=(status.st_mtime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change", [newer, older, gone, no_runtime, linked, linked_folder, foreign, foreign_folder, cut]
)
def test_what_is_kept_counts_only_as_long_as_it_holds(
    node: Node, change: Callable[[Node], None], shell: list[str]
) -> None:
    """Not after any change of config.toml, not if it could be somebody else's, and not in part (AC-77)."""
    node.keep()
    change(node)
    assert node.call("state", "c1", shell=shell) == "python  state c1"


@pytest.mark.parametrize(
    "env",
    [
        {"PATH": "/bin"},
        {"NVIDIA_CTK_CONFIG_FILE_PATH": "/x"},
        {"XDG_CONFIG_HOME": "/x"},
        {"GPUHOOK_RUNTIME_DEPTH": "xxxxxxxx"},
    ],
    ids=lambda env: next(iter(env)),
)
def test_another_environment_is_another_question(node: Node, env: dict[str, str], shell: list[str]) -> None:
    """PATH decides about bare names, the others about the file; and a loop is Python's to report."""
    node.keep()
    assert node.call("state", "c1", shell=shell, **env) == "python  state c1"


def test_no_config_is_a_state_of_its_own(node: Node, shell: list[str]) -> None:
    """What was found without a file is used while there is none."""
    node.config.unlink()
    node.keep()
    assert node.call("state", "c1", shell=shell) == "runc state c1"
    node.config.write_text("")
    assert node.call("state", "c1", shell=shell) == "python  state c1"


def test_rounds_are_counted(node: Node, shell: list[str]) -> None:
    """The variable that tells of a loop grows by one here too."""
    node.keep()
    node.call("state", "c1", shell=shell, GPUHOOK_RUNTIME_DEPTH="xx")
    assert "GPUHOOK_RUNTIME_DEPTH=xxx\0" in (node.folder / "environ").read_text()


def test_only_what_has_settled_is_used(node: Node, monkeypatch: pytest.MonkeyPatch, shell: list[str]) -> None:
    """A file that was just written could change again within the clock's tick; for a broken one it will do."""
    monkeypatch.setattr("gpuhook.runtime.kept.SETTLED", 2_000_000_000)
    node.keep()
    assert node.call("state", "c1", shell=shell) == "python  state c1"
    assert last_kept({}, default=str(node.config), folder=str(node.kept)) == node.runc


def test_keeping_twice_writes_once(node: Node) -> None:
    """The file is the same one as long as it says the same."""
    node.keep()
    before = os.stat(node.kept / "runtime")
    node.keep()
    assert os.stat(node.kept / "runtime").st_ino == before.st_ino
    assert (before.st_mode & 0o777, os.stat(node.kept).st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("path", ["/a\n/b", "x" * 70000])
def test_what_two_lines_cannot_hold_is_not_kept(node: Node, path: str) -> None:
    """A PATH with a line's end in it would be read as something else."""
    node.keep(path)
    assert not node.kept.exists()


def test_a_folder_that_others_can_write_is_not_used(node: Node) -> None:
    """Nothing is put there and nothing taken from there (AC-77)."""
    node.keep()
    os.chmod(node.kept, 0o777)
    assert last_kept({}, default=str(node.config), folder=str(node.kept)) == ""
    (node.kept / "runtime").unlink()
    node.keep()
    assert list(node.kept.iterdir()) == []


def test_the_last_one_is_remembered_when_config_breaks(node: Node) -> None:
    """Whatever has become of the file: running containers are that runtime's. Each file has its own."""
    places = {"default": str(node.config), "folder": str(node.kept)}
    other = {b"NVIDIA_CTK_CONFIG_FILE_PATH": os.fsencode(node.folder / "other.toml")}
    assert last_kept({}, **places) == ""
    node.keep()
    assert (last_kept({}, **places), last_kept(other, **places)) == (node.runc, "")
    keep("/opt/crun", other, **places)
    node.config.write_text("broken")
    assert (last_kept({}, **places), last_kept(other, **places)) == (node.runc, "/opt/crun")
    node.config.unlink()
    keep("/opt/runc", {}, **places)
    assert last_kept({}, **places) == "/opt/runc"


@pytest.mark.runtime
def test_the_whole_way_on_a_fresh_machine(tmp_path: Path) -> None:
    """With the usual places: Python finds runc and leaves it, and the next call goes straight to it."""
    need("runc", "unshare")
    starts = tmp_path / "starts"
    python = write_program(tmp_path / "python", f'#!/bin/sh\necho x >> {starts}\nexec {sys.executable} "$@"\n')
    launcher = write_program(tmp_path / "shim", runtime_text(python, package_folders(), archive_path()))
    call = f"{launcher} --root {tmp_path}/state list"
    result = run(["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none /run && {call} && {call} && {call}"])
    assert (result.status, result.stdout.count("STATUS"), result.stderr) == (0, 3, "")
    assert starts.read_text() == "x\n"
