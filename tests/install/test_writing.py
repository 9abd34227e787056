"""Writing: all or nothing, at once, and never over what somebody else just wrote."""

from __future__ import annotations

import errno
import json
import os
import posix
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.install import apply as applying
from gpuhook.install.change import Change, write
from gpuhook.install.errors import FileBusy, FileProtected, JournalBroken
from gpuhook.install.host import Host
from gpuhook.install.journal import PATH, Entry, Journal, locked, read_journal, write_journal
from tests.install.conftest import Machine
from tests.rig.needs import refuse

FILE = "/etc/docker/daemon.json"


def change_of(machine: Machine, text: str) -> Change:
    """A change of the file to this text."""
    seen = Host(root=str(machine.root)).read(FILE)
    return Change(engine="docker", kind="daemon.json", seen=seen, after=text.encode(), about="")


@pytest.mark.parametrize("meanwhile", ["newer", None])
def test_a_file_that_changed_meanwhile_is_not_replaced(machine: Machine, meanwhile: str | None) -> None:
    """Nor one that is gone: whoever did that would lose his work."""
    machine.put({FILE: "old"})
    change = change_of(machine, "ours")
    if meanwhile:
        machine.put({FILE: meanwhile})
    else:
        machine.path(FILE).unlink()
    before = machine.tree()
    with pytest.raises(FileBusy, match="changed by somebody else"):
        write(change, f"{machine.path(FILE)}.aside")
    assert before == machine.tree()


def test_a_file_that_appeared_meanwhile_is_not_replaced(machine: Machine) -> None:
    """Where none was, none may be."""
    machine.path(FILE).parent.mkdir(parents=True)
    change = change_of(machine, "ours")
    machine.put({FILE: "theirs"})
    with pytest.raises(FileBusy):
        write(change, "")
    assert machine.text(FILE) == "theirs"


def test_readers_see_the_old_file_or_the_new_one(machine: Machine) -> None:
    """The name never leads to nothing or to half a file, however often it is replaced."""
    machine.put({FILE: "{}"})
    code = (
        "import sys\n"
        "while True:\n"
        f"  text = open({str(machine.path(FILE))!r}).read()\n"
        "  assert text == '{}' or text == 'x' * 100000, text[:20]\n"
    )
    reader = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    try:
        for number in range(100):
            write(change_of(machine, "{}" if number % 2 else "x" * 100000), "")
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.communicate()


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_failure_in_the_middle_undoes_the_beginning(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """A full disk at any of the files leaves everything as it was."""
    machine.put({FILE: "{}"})
    before, count = machine.tree(), 0

    def full(change: Change, aside: str) -> None:
        nonlocal count
        count += 1
        if count == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), change.seen.real)
        write(change, aside)

    monkeypatch.setattr(applying, "write", full)
    assert machine("install", "docker") == 1
    assert machine.err.startswith("gpuhook: file-protected:")
    assert os.strerror(errno.ENOSPC) in machine.err
    assert before == machine.tree()


def test_a_failing_rename_leaves_nothing_beside(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the new file nor the old one's second name."""
    machine.put({FILE: "{}"})
    before = machine.tree()

    def fail(*_names: str) -> None:
        raise OSError(errno.EIO, "broken", "x")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="broken"):
        write(change_of(machine, "ours"), f"{machine.path(FILE)}.aside")
    assert before == machine.tree()


def test_the_new_content_is_on_the_disk_before_it_takes_the_name(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the name itself afterwards: a power cut leaves the old file or the new one. All in the file's own folder."""
    machine.put({FILE: "{}"})
    folder, calls = str(machine.path(FILE).parent), list[tuple[str, str]]()
    fsync, rename = os.fsync, os.rename

    def watch_fsync(fd: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def watch_rename(old: str, new: str) -> None:
        calls.append(("rename", old))
        assert machine.path(FILE).read_bytes() == b"{}"
        rename(old, new)

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "rename", watch_rename)
    write(change_of(machine, "ours"), f"{machine.path(FILE)}.aside")
    new = calls[0][1]
    assert calls == [("fsync", new), ("rename", new), ("fsync", folder)]
    assert os.path.dirname(new) == folder


def test_labels_and_access_lists_stay(machine: Machine) -> None:
    """Extended attributes, as far as this filesystem has them; one that cannot be copied loses no other."""
    machine.put({FILE: "{}"})
    names = ("user.a", "user.b", "user.c")
    try:
        for name in names:
            os.setxattr(machine.path(FILE), name, name.encode())
    except OSError:
        refuse("needs a filesystem with extended attributes")
    assert machine("install", "docker") == 0
    assert {name: os.getxattr(machine.path(FILE), name) for name in names} == {name: name.encode() for name in names}


def test_an_attribute_that_cannot_be_kept_loses_no_other(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label, for example, that only the kernel gives."""
    machine.put({FILE: "{}"})
    monkeypatch.setattr(posix, "listxattr", lambda _path: ["security.none", "user.b"])
    monkeypatch.setattr(posix, "getxattr", lambda _path, name: name.encode())
    kept = []

    def give(_fd: int, name: str, _value: bytes) -> None:
        if name.startswith("security"):
            raise OSError(errno.EPERM, "no")
        kept.append(name)

    monkeypatch.setattr(posix, "setxattr", give)
    write(change_of(machine, "ours"), "")
    assert kept == ["user.b"]


def test_an_interrupted_installation_can_be_undone(machine: Machine) -> None:
    """The journal is written before the files are: a kill between them loses nothing."""
    machine.put({FILE: "{}"})
    before = machine.tree()
    code = (
        "import os; from gpuhook.install import apply; from gpuhook.hook import main\n"
        "real, left = apply.write, [3]\n"
        "def write(change, aside):\n"
        "    left[0] -= 1\n"
        "    os._exit(9) if not left[0] else real(change, aside)\n"
        "apply.write = write\n"
        f"main(['install', 'docker', '--root', {str(machine.root)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 9
    assert before != machine.tree()
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_two_programs_at_once_both_succeed(machine: Machine) -> None:
    """The second waits for the first, and then reads what that one wrote."""
    machine.put({FILE: "{}"})
    code = "import sys; from gpuhook.hook import main; sys.exit(main(sys.argv[1:]))"
    project = Path(__file__).parents[2]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, "install", "docker", "--root", str(machine.root), "--runtime-name", name],
            cwd=project, stdout=subprocess.DEVNULL,
        )
        for name in ("one", "two", "three")
    ]  # fmt: skip
    assert [0, 0, 0] == [process.wait(60) for process in running]
    assert {"one", "two", "three"} == set(json.loads(machine.text(FILE))["runtimes"])


def test_a_lock_that_is_held_for_long_is_an_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a wait for ever."""
    monkeypatch.setattr("gpuhook.install.journal.PATIENCE", 0.2)
    host = Host(root=str(machine.root))
    machine.put({FILE: "{}"})
    with locked(host):
        assert machine("install", "docker") == 1
    assert machine.err.startswith("gpuhook: changed-meanwhile: another gpuhook")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "files": {"/a": {}}, "folders": []}'])
def test_a_journal_that_cannot_be_understood_is_refused(machine: Machine, text: str) -> None:
    """Nothing is guessed about what to remove."""
    machine.put({PATH: text, FILE: "{}"})
    before = machine.tree()
    assert machine("uninstall") == JournalBroken.exit_status
    assert machine.err.startswith("gpuhook: install-journal:")
    assert machine("install", "docker") == JournalBroken.exit_status
    assert before == machine.tree()


def test_a_journal_that_others_can_write_is_not_obeyed(machine: Machine) -> None:
    """It says which files root removes."""
    host = Host(root=str(machine.root))
    entry = Entry(engines=("docker",), kind="program", before="", after="", aside="")
    machine.path(PATH).parent.mkdir(parents=True)
    write_journal(host, Journal(files={"/etc/passwd": entry}))
    machine.path(PATH).chmod(0o666)
    assert machine("uninstall") == 1
    assert machine.err.startswith("gpuhook: unsafe-config:")


def test_a_journal_survives_being_kept(machine: Machine) -> None:
    """What is written is what is read."""
    host = Host(root=str(machine.root))
    entry = Entry(engines=("a", "b"), kind="k", before="x", after="y", aside="/z", exact=False, previous="{}")
    journal = Journal(files={"/f": entry}, folders=("/d",))
    machine.path(PATH).parent.mkdir(parents=True)
    write_journal(host, journal)
    assert read_journal(host) == journal


def test_a_name_that_is_taken_is_not_used_for_the_old_file(machine: Machine) -> None:
    """It is somebody else's."""
    machine.put({FILE: "{}", f"{FILE}.before-gpuhook": "theirs"})
    before = machine.tree()
    assert machine("install", "docker") == 0
    assert machine.text(f"{FILE}.before-gpuhook") == "theirs"
    assert machine.text(f"{FILE}.before-gpuhook.2") == "{}"
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_an_old_file_that_is_all_that_is_left_stays(machine: Machine) -> None:
    """Somebody removed daemon.json after the installation."""
    machine.put({FILE: '{"a": 1}'})
    assert machine("install", "docker") == 0
    machine.path(FILE).unlink()
    assert machine("uninstall") == 0
    assert f"{FILE}.before-gpuhook" in machine.out
    assert machine.text(f"{FILE}.before-gpuhook") == '{"a": 1}'


def test_a_hook_file_that_somebody_edited_is_left_unless_forced(machine: Machine) -> None:
    """Nothing tells which part of it is whose."""
    hook = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
    machine.put({"/etc/containers/containers.conf": ""})
    assert machine("install", "podman") == 0
    machine.put({hook: machine.text(hook).replace("prestart", "createRuntime")})
    assert machine("uninstall") == 1
    assert "edited since" in machine.out
    assert machine.path(hook).exists()
    assert machine("uninstall", "--force") == 0
    assert not machine.path(hook).exists()


@pytest.mark.engine
def test_a_read_only_filesystem_is_said(machine: Machine) -> None:
    """And nothing is tried."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    machine.put({FILE: "{}"})
    code = (
        f"mount --bind {machine.path('/etc/docker')} {machine.path('/etc/docker')} && "
        f"mount -o remount,ro,bind {machine.path('/etc/docker')} && "
        f"exec {sys.executable} -c 'import sys; from gpuhook.hook import main; sys.exit(main(sys.argv[1:]))' "
        f"install docker --root {machine.root}"
    )
    before = machine.tree()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", code], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == FileProtected.exit_status
    assert "read-only" in done.stderr
    assert before == machine.tree()
