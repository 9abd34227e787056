from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook import note
from gpuhook.settings import snapshot

KEY = ("/etc/c.toml", 1, 2, 1 << 62)
VALUE: dict[str, object] = {"a": [1, True, None, "é\udcff"], "b": {"c": "d"}}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which only root can")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "gpuhook")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    monkeypatch.setattr(note, "debug", True)
    return lambda: capfd.readouterr().err


def saved(folder: str) -> Path:
    snapshot.save("name", KEY, VALUE, folder=folder)
    return Path(folder) / "name.json"


def test_what_was_saved_is_loaded(folder: str) -> None:
    """The value comes back as it was, with any text that a path can be."""
    saved(folder)

    assert VALUE == snapshot.load("name", KEY, folder=folder)


def test_tuples_come_back_as_lists(folder: str) -> None:
    """JSON knows no tuples; callers convert."""
    snapshot.save("name", KEY, {"a": ("b",)}, folder=folder)

    assert {"a": ["b"]} == snapshot.load("name", KEY, folder=folder)


def test_nothing_saved_is_nothing_loaded(folder: str, notes: Callable[[], str]) -> None:
    """The first start finds neither folder nor file, and that is no matter for a note."""
    assert snapshot.load("name", KEY, folder=folder) is None
    Path(folder).mkdir(0o700)
    assert snapshot.load("name", KEY, folder=folder) is None
    assert "" == notes()


@pytest.mark.parametrize("key", [(), KEY[:-1], (*KEY, 0), ("/etc/d.toml", *KEY[1:])])
def test_another_key_finds_nothing(folder: str, key: tuple[str | int, ...]) -> None:
    """Only the very key that the value was kept for counts."""
    saved(folder)

    assert snapshot.load("name", key, folder=folder) is None


def test_another_version_finds_nothing(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another release of gpuhook decided is decided anew."""
    saved(folder)
    monkeypatch.setattr(snapshot, "__version__", "0.0.0")

    assert snapshot.load("name", KEY, folder=folder) is None


def test_folder_and_file_are_private(folder: str) -> None:
    """Nobody else can read or write them, whatever the umask is."""
    before = os.umask(0)
    try:
        file = saved(folder)
    finally:
        os.umask(before)

    assert (0o700, 0o600) == (os.stat(folder).st_mode & 0o7777, file.stat().st_mode & 0o7777)


def test_a_later_value_replaces_the_earlier(folder: str) -> None:
    """There is one file a name, and no temporary file is left."""
    saved(folder)
    snapshot.save("name", ("other",), {}, folder=folder)

    assert {} == snapshot.load("name", ("other",), folder=folder)
    assert ["name.json"] == os.listdir(folder)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700, 0o4600])
def test_a_file_of_a_wider_mode_is_ignored(folder: str, mode: int) -> None:
    """Mode 0600 or less, or it is not ours."""
    saved(folder).chmod(mode)

    assert snapshot.load("name", KEY, folder=folder) is None


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777, 0o1777])
def test_a_folder_of_a_wider_mode_is_not_used(folder: str, mode: int, notes: Callable[[], str]) -> None:
    """Mode 0700 or less: nothing is read from it and nothing written into it."""
    file = saved(folder)
    content = file.read_bytes()
    Path(folder).chmod(mode)
    snapshot.save("name", ("other",), {}, folder=folder)

    assert snapshot.load("name", KEY, folder=folder) is None
    assert content == file.read_bytes()
    assert 2 == notes().count("not ours alone")


@as_root
@pytest.mark.attack
@pytest.mark.parametrize("what", ["", "name.json"])
def test_what_belongs_to_somebody_else_is_ignored(folder: str, what: str) -> None:
    """A file or folder of another user was planted (AC-77)."""
    saved(folder)
    os.chown(Path(folder) / what, 1000, 1000)

    assert snapshot.load("name", KEY, folder=folder) is None


@as_root
@pytest.mark.attack
def test_nothing_is_written_into_a_planted_folder(folder: str) -> None:
    """A folder that another user made before the first run gets no file of ours (AC-77)."""
    Path(folder).mkdir(0o700)
    os.chown(folder, 1000, 1000)
    saved(folder)

    assert [] == os.listdir(folder)


@pytest.mark.attack
def test_a_link_in_place_of_the_file_is_not_followed(folder: str, tmp_path: Path) -> None:
    """Neither reading nor writing touches what a planted link points at (AC-77)."""
    file, target = saved(folder), tmp_path / "target"
    file.rename(target)
    content = target.read_bytes()
    file.symlink_to(target)

    assert snapshot.load("name", KEY, folder=folder) is None
    snapshot.save("name", ("other",), {}, folder=folder)
    assert content == target.read_bytes()
    assert not file.is_symlink()


@pytest.mark.attack
def test_a_link_in_place_of_the_folder_is_not_followed(folder: str, tmp_path: Path) -> None:
    """A planted link to another folder is neither read nor written through (AC-77)."""
    saved(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    snapshot.save("other", KEY, VALUE, folder=str(link))

    assert snapshot.load("name", KEY, folder=str(link)) is None
    assert ["name.json"] == os.listdir(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"key":1}', b"\xff", b"[" * 100_000, b'{"key":1,"key":1}', b" " * ((1 << 20) + 1)],
)
def test_a_damaged_file_is_ignored(folder: str, content: bytes) -> None:
    """Whatever stands in the file, it is a snapshot or nothing."""
    saved(folder).write_bytes(content)

    assert snapshot.load("name", KEY, folder=folder) is None


def test_a_value_that_is_no_table_is_ignored(folder: str) -> None:
    """Values are tables; anything else was not written by us."""
    file = saved(folder)
    file.write_text(json.dumps({**json.loads(file.read_text()), "value": [1]}))

    assert snapshot.load("name", KEY, folder=folder) is None


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_ignored(folder: str, make: Callable[[str], None]) -> None:
    """A FIFO is not waited for, a folder not opened as a file."""
    os.mkdir(folder, 0o700)
    make(f"{folder}/name.json")

    assert snapshot.load("name", KEY, folder=folder) is None


def test_failing_to_write_is_a_note(tmp_path: Path, notes: Callable[[], str]) -> None:
    """A container start goes on where /run is read-only, full or absent."""
    snapshot.save("name", KEY, VALUE, folder=str(tmp_path / "absent" / "gpuhook"))

    assert "note: snapshot name is not kept" in notes()


def test_a_failed_replacement_leaves_nothing(folder: str, notes: Callable[[], str]) -> None:
    """Where the last step fails, the temporary file goes too."""
    os.mkdir(folder, 0o700)
    os.mkdir(f"{folder}/name.json")
    saved(folder)

    assert ["name.json"] == os.listdir(folder)
    assert "not kept" in notes()


def test_a_value_that_is_too_large_is_not_kept(folder: str) -> None:
    """What could not be read back is not written."""
    snapshot.save("name", KEY, {"a": "x" * (1 << 20)}, folder=folder)

    assert not os.path.exists(folder)


def test_a_file_just_written_is_not_settled(tmp_path: Path) -> None:
    """Within one tick a file can change again with the same times and size."""
    file = tmp_path / "file"
    file.write_text("x")
    assert not snapshot.settled(file.stat())

    time.sleep(0.05)
    assert snapshot.settled(file.stat())


def test_the_folder_is_runs_or_the_users() -> None:
    """Real root's is /run/gpuhook; everybody else has one in the user's runtime folder."""
    uid = os.geteuid()

    assert ("/run/gpuhook" if uid == 0 else f"/run/user/{uid}/gpuhook") == snapshot.place()


def in_user_namespace_of(uid: int, ask: Callable[[], str]) -> str:
    """What a function says as root of a user namespace that this user made."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            libc = ctypes.CDLL(None, use_errno=True)
            libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, so that our own uid_map is ours to write
            if libc.unshare(0x10000000):
                raise OSError(ctypes.get_errno(), "unshare")
            with open("/proc/self/uid_map", "w") as ids:
                ids.write(f"0 {uid} 1")
            os.write(writable, ask().encode())
        finally:
            os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    with open(readable, "rb") as answer:
        return answer.read().decode()


@as_root
@pytest.mark.engine
def test_root_of_a_user_namespace_has_its_users_folder() -> None:
    """Root of a rootless engine is a user outside, and has that user's folder."""
    assert "/run/user/1000/gpuhook" == in_user_namespace_of(1000, snapshot.place)
