from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook import note
from gpuhook.kernel import bpf
from gpuhook.kernel.cgroup import DeviceGroup, allow, filtered
from gpuhook.kernel.devprog import allows
from gpuhook.refusals import CgroupFailed
from tests.kernel.probes import (
    ALLOW_ALL,
    DENY_ALL,
    FUSE,
    GPU,
    NULL,
    Probe,
    insn,
    mounted,
    open_descriptors,
    root_only,
    runc_like,
)

pytestmark = pytest.mark.engine

UVM = (510, 0)
MODES = {"multi": bpf.ALLOW_MULTI, "override": bpf.ALLOW_OVERRIDE, "single": 0}


class Group:
    """A cgroup v2 folder with a process in it, and device programs as a runtime would attach them."""

    def __init__(self, folder: Path, nodes: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.fd = os.open(folder, os.O_RDONLY)
        self.probe = Probe(folder, nodes)
        self.device_group = DeviceGroup(version=2, folder=str(folder), pid=self.probe.pid)

    def attach(self, program: bytes, flags: int = bpf.ALLOW_MULTI) -> None:
        loaded = bpf.load(program)
        bpf.attach(self.fd, loaded, flags)
        os.close(loaded)

    def programs(self) -> tuple[int, ...]:
        return bpf.query(self.fd)[0]

    def end(self) -> None:
        self.probe.end()
        os.close(self.fd)
        self.folder.rmdir()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    root_only()
    mount = mounted("cgroup2", "rw", tmp_path / "v2")
    yield mount
    if mount == tmp_path / "v2":
        subprocess.run(["umount", str(mount)], check=True)


@pytest.fixture
def group(mount: Path, tmp_path: Path) -> Iterator[Group]:
    group = Group(mount / f"gpuhook test:{os.getpid()}", tmp_path)
    yield group
    group.end()


def test_a_runtimes_program_is_extended(group: Group) -> None:
    """Before: denied. After: the GPU can be used, and everything else is as it was, mknod and block nodes included."""
    group.attach(runc_like())
    assert group.probe.open(GPU) == "denied"

    allow(group.device_group, [GPU, UVM]).close()

    assert [group.probe.open(GPU), group.probe.open(UVM)] == ["allowed", "allowed"]
    assert group.probe.open(GPU, os.O_RDONLY) == group.probe.open(GPU, os.O_WRONLY) == "allowed"
    assert [group.probe.open(NULL), group.probe.open(FUSE)] == ["allowed", "denied"]
    assert [group.probe.open(GPU, block=True), group.probe.open((195, 1))] == ["denied", "denied"]
    assert group.probe.mknod(FUSE) == "allowed"
    assert len(group.programs()) == 1


def test_mknod_stays_as_it_was(group: Group) -> None:
    """A rule never lets the container make the node."""
    group.attach(DENY_ALL)

    allow(group.device_group, [GPU]).close()

    assert [group.probe.open(GPU), group.probe.mknod(GPU)] == ["allowed", "denied"]


@pytest.mark.parametrize("mode", MODES)
def test_undo_puts_the_old_program_back(group: Group, mode: str) -> None:
    """Undo attaches the very program that was there, under its flags, and closes everything."""
    group.attach(runc_like(), MODES[mode])
    before, fds = bpf.query(group.fd), open_descriptors()
    undo = allow(group.device_group, [GPU])
    assert group.probe.open(GPU) == "allowed"
    assert bpf.query(group.fd)[1] == before[1]

    undo()

    assert bpf.query(group.fd) == before
    assert group.probe.open(GPU) == "denied"
    assert open_descriptors() == fds


def test_every_program_of_the_group_gets_a_replacement(group: Group) -> None:
    """A device needs the consent of all; two that deny are both replaced, one that allows stays."""
    group.attach(runc_like())
    group.attach(ALLOW_ALL)
    group.attach(DENY_ALL)
    before = group.programs()

    allow(group.device_group, [GPU]).close()

    assert [group.probe.open(GPU), group.probe.open(NULL)] == ["allowed", "denied"]
    assert [old == new for old, new in zip(before, group.programs(), strict=True)] == [False, True, False]


def test_twice_is_as_once(group: Group) -> None:
    """The second hook of a container finds everything in place and changes nothing, nor does its undo."""
    group.attach(runc_like())
    allow(group.device_group, [GPU, UVM]).close()
    before = group.programs()

    undo = allow(group.device_group, [UVM, GPU, UVM])
    assert group.programs() == before
    undo()

    assert group.probe.open(GPU) == "allowed"


def test_more_devices_later(group: Group) -> None:
    """A program of ours is extended like any other."""
    group.attach(runc_like())
    allow(group.device_group, [GPU]).close()
    allow(group.device_group, [UVM]).close()

    assert [group.probe.open(GPU), group.probe.open(UVM), group.probe.open(FUSE)] == ["allowed", "allowed", "denied"]


def test_nothing_filters(group: Group) -> None:
    """Without a program there and above there is nothing to do, and none is added."""
    assert not filtered(group.device_group)

    allow(group.device_group, [GPU]).close()

    assert group.programs() == ()
    assert group.probe.open(GPU) == "allowed"


def test_a_group_above_denies(group: Group, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A program above the container's group stays as it is, and what it forbids is said."""
    group.attach(runc_like())
    inner = Group(group.folder / "inner", tmp_path)
    inner.attach(DENY_ALL)
    before = group.programs()
    try:
        assert filtered(inner.device_group)
        allow(inner.device_group, [GPU, NULL]).close()

        assert group.programs() == before
        assert [inner.probe.open(GPU), inner.probe.open(NULL)] == ["denied", "allowed"]
        assert "forbids 195:0;" in capfd.readouterr().err
    finally:
        inner.end()


def test_a_group_above_that_allows_is_not_mentioned(
    group: Group, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No warning where the program above lets the device pass."""
    group.attach(ALLOW_ALL)
    inner = Group(group.folder / "inner", tmp_path)
    inner.attach(DENY_ALL)
    allow(inner.device_group, [GPU]).close()
    try:
        assert inner.probe.open(GPU) == "allowed"
        assert capfd.readouterr().err == ""
    finally:
        inner.end()


def test_a_group_above_that_cannot_be_judged(
    group: Group, hardened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A program above whose instructions are hidden is only noted: it may well allow the device."""
    group.attach(ALLOW_ALL)
    hardened.write_text("2")
    monkeypatch.setattr(note, "debug", True)
    inner = Group(group.folder / "inner", tmp_path)
    try:
        allow(inner.device_group, [GPU]).close()
        assert "cannot be judged" in capfd.readouterr().err
    finally:
        inner.end()


def test_a_threaded_group(group: Group) -> None:
    """A group that names threads only is recognised by those."""
    inner = group.folder / "inner"
    inner.mkdir()
    (inner / "cgroup.type").write_text("threaded")
    (inner / "cgroup.threads").write_text(str(group.probe.pid))
    try:
        allow(group.device_group.with_(folder=str(inner)), [GPU]).close()
        with pytest.raises(CgroupFailed, match="is not in the cgroup"):
            allow(group.device_group.with_(folder=str(inner), pid=1), [GPU])
    finally:
        group.probe.end()
        inner.rmdir()


def test_many_devices(group: Group) -> None:
    """Far more GPUs and MIG capabilities than any machine has are one program that the kernel accepts."""
    group.attach(runc_like())
    devices = [(major, minor) for major in (195, 234, 508, 510) for minor in range(1500)]

    allow(group.device_group, devices).close()

    assert [group.probe.open((508, 1499)), group.probe.open((508, 1500))] == ["allowed", "denied"]


def test_many_majors(group: Group) -> None:
    """The kernel's checker copes with one device each of many majors."""
    group.attach(runc_like())

    allow(group.device_group, [(major, 3) for major in range(300, 400)]).close()

    assert [group.probe.open((399, 3)), group.probe.open((399, 4))] == ["allowed", "denied"]


def test_more_programs_than_there_is_room_for(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that does not fit is asked for again."""
    monkeypatch.setattr(bpf, "FIRST_ROOM", 1)
    for _ in range(12):
        group.attach(DENY_ALL)

    allow(group.device_group, [GPU]).close()

    assert group.probe.open(GPU) == "allowed"
    assert len(group.programs()) == 12


def test_replacing_without_the_replace_flag(group: Group) -> None:
    """Before Linux 5.6 the new program comes first and then the old one goes."""
    group.attach(DENY_ALL)
    old, new = bpf.open_program(group.programs()[0]), bpf.load(ALLOW_ALL)

    bpf.replace_by_hand(group.fd, old, new)

    assert len(group.programs()) == 1
    assert group.probe.open(GPU) == "allowed"
    os.close(old)
    os.close(new)


def test_replacing_by_hand_what_is_not_there(group: Group) -> None:
    """If the old program has gone, the new one goes too."""
    old, new = bpf.load(DENY_ALL), bpf.load(ALLOW_ALL)

    with pytest.raises(OSError, match="PROG_DETACH"):
        bpf.replace_by_hand(group.fd, old, new)

    assert group.programs() == ()
    os.close(old)
    os.close(new)


def link(group: Group, program: bytes) -> int:
    """Attach by a link (bpf(2), BPF_LINK_CREATE), as some security tools do."""
    loaded = bpf.load(program)
    room = ctypes.create_string_buffer(struct.pack("=IIII", loaded, group.fd, 6, 0), 64)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(ctypes.c_long(bpf.call_number()), ctypes.c_long(28), room, ctypes.c_ulong(64))
    os.close(loaded)
    assert fd >= 0
    return int(fd)


def test_a_program_held_by_a_link(group: Group) -> None:
    """What only its owner can replace is refused; programs that were replaced before it are put back."""
    group.attach(runc_like())
    held = link(group, DENY_ALL)
    before, fds = group.programs(), open_descriptors()

    with pytest.raises(CgroupFailed, match="replaced"):
        allow(group.device_group, [GPU])

    assert group.programs() == before
    assert open_descriptors() == fds
    os.close(held)


def test_undo_after_somebody_elses_change(group: Group, capfd: pytest.CaptureFixture[str]) -> None:
    """If the runtime has replaced the program meanwhile, undo leaves that alone and says so."""
    group.attach(DENY_ALL)
    undo = allow(group.device_group, [GPU])
    ours = bpf.open_program(group.programs()[0])
    group.attach(runc_like())
    bpf.detach(group.fd, ours)
    os.close(ours)
    before = group.programs()

    undo()

    assert group.programs() == before
    assert "could not be taken back" in capfd.readouterr().err


def test_a_shared_group_is_not_changed(group: Group) -> None:
    """AC-64: programs of a group that holds the hook too stay as they are."""
    group.attach(DENY_ALL)
    before, fds = group.programs(), open_descriptors()

    with pytest.raises(CgroupFailed, match="no cgroup of its own"):
        allow(group.device_group.with_(shared=True), [GPU])

    assert group.programs() == before
    assert open_descriptors() == fds


def test_descriptors_are_closed_on_exec(group: Group) -> None:
    """Nothing that is held for undo reaches a program that we start."""
    group.attach(runc_like())
    before = {fd for fd in range(256) if os.path.exists(f"/proc/self/fd/{fd}")}
    undo = allow(group.device_group, [GPU])

    held = [fd for fd in range(256) if os.path.exists(f"/proc/self/fd/{fd}") and fd not in before]

    assert len(held) == 3
    assert not any(os.get_inheritable(fd) for fd in held)
    undo.close()


def test_in_a_user_namespace(group: Group) -> None:
    """A rootless engine may not even ask: the error says what to set."""
    group.attach(DENY_ALL)
    code = "from gpuhook.kernel.cgroup import *\nfrom gpuhook.errors import GpuhookError\n"
    code += f"try: allow({group.device_group!r}, [(195, 0)])\nexcept GpuhookError as e: print(e.render())"

    done = subprocess.run(
        ["unshare", "-U", "-r", sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("gpuhook: rootless-cgroup: the device rules cannot be changed: ")
    assert "leave no-cgroups unset" in done.stdout


def test_the_kernels_reasons_are_passed_on() -> None:
    """A program that the kernel refuses comes with the checker's last words."""
    root_only()

    with pytest.raises(CgroupFailed, match="R0 !read_ok"):
        bpf.load(insn(0x95))


@pytest.fixture
def hardened() -> Iterator[Path]:
    root_only()
    harden, hide = Path("/proc/sys/net/core/bpf_jit_harden"), Path("/proc/sys/kernel/kptr_restrict")
    before = harden.read_text(), hide.read_text()
    harden.write_text("2")
    yield hide
    harden.write_text(before[0])
    hide.write_text(before[1])


def test_on_a_hardened_kernel(group: Group, hardened: Path) -> None:
    """Programs whose constants the kernel has hidden are extended all the same, time and again."""
    group.attach(runc_like())

    allow(group.device_group, [GPU]).close()
    allow(group.device_group, [UVM]).close()

    assert [group.probe.open(GPU), group.probe.open(UVM)] == ["allowed", "allowed"]
    assert [group.probe.open(NULL), group.probe.open(FUSE)] == ["allowed", "denied"]


def test_a_program_that_the_kernel_does_not_show(group: Group, hardened: Path) -> None:
    """Where instructions cannot be read back, the error names the setting and nothing changes."""
    group.attach(DENY_ALL)
    before, fds = group.programs(), open_descriptors()
    hardened.write_text("2")

    with pytest.raises(CgroupFailed, match="does not show") as caught:
        allow(group.device_group, [GPU])

    assert "kptr_restrict" in caught.value.hint
    assert group.programs() == before
    assert open_descriptors() == fds


@pytest.mark.parametrize("device", [GPU, NULL, FUSE, (5, 0), (136, 7), (10, 200)])
def test_our_judgement_is_the_kernels(group: Group, device: tuple[int, int]) -> None:
    """What we say of a program, read back from the kernel, is what happens in its group."""
    group.attach(runc_like())
    program = bpf.open_program(group.programs()[0])

    assert allows(bpf.instructions(program), *device) is (group.probe.open(device) == "allowed")
    os.close(program)
