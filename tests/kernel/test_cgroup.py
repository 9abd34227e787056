from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.kernel.cgroup import DeviceGroup, allow, filtered, find_group, folders, group_paths
from gpuhook.kernel.mounts import parse_mountinfo
from gpuhook.refusals import BadContainer, CgroupFailed
from tests.kernel.probes import FUSE, GPU, NULL, Probe, mounted, open_descriptors, root_only

V1 = b"33 31 0:30 / /sys/fs/cgroup/devices rw,relatime shared:9 - cgroup cgroup rw,devices\n"
V2 = b"38 31 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"
PURE = b"30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
OTHERS = (
    b"34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    b"40 23 0:50 / /data/\\040-\\040cgroup rw - ext4 /dev/cgroup rw,devices\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"5:devices:/docker/abc\n1:cpu:/x\n0::/\n", {1: "/docker/abc", 2: "/"}),
        (b"0::/system.slice/docker-abc.scope\n", {2: "/system.slice/docker-abc.scope"}),
        (b"5:devices:/with blank\n", {1: "/with blank"}),
        (b"5:devices:/a:b:devices:/c\n", {1: "/a:b:devices:/c"}),
        (b"0::/a:devices:/b\n", {2: "/a:devices:/b"}),
        (b"4:cpu,devices:/together\n", {1: "/together"}),
        (b"4:name=devices:/named\n3:devices2:/x\n2:name=systemd:/y\n", {}),
        (b"7::/no-hierarchy-but-zero-is-v2\n", {}),
        (b"0::/back\\slash\\040\n", {2: "/back\\slash\\040"}),
        (b"0::/\xff\xfe\n", {2: "/\udcff\udcfe"}),
        (b"", {}),
        (b"0:\n:\n\n", {}),
    ],
)
def test_group_paths(text: bytes, expected: dict[int, str]) -> None:
    """Only the first two colons part a line, and only the devices controller and v2 count."""
    assert group_paths(text) == expected


@pytest.mark.parametrize(
    ("version", "path", "table", "expected"),
    [
        (1, "/docker/abc", OTHERS + V1 + V2, ["/sys/fs/cgroup/devices/docker/abc"]),
        (2, "/a.slice/b.scope", OTHERS + V1 + V2, ["/sys/fs/cgroup/unified/a.slice/b.scope"]),
        (2, "/a", PURE, ["/sys/fs/cgroup/a"]),
        (2, "/", PURE, ["/sys/fs/cgroup"]),
        (1, "/a", V2 + OTHERS, []),
        (2, "/docker/abc/x", PURE.replace(b" / ", b" /docker/abc "), ["/sys/fs/cgroup/x"]),
        (2, "/docker/abc", PURE.replace(b" / ", b" /docker/abc "), ["/sys/fs/cgroup"]),
        (2, "/docker/abcd", PURE.replace(b" / ", b" /docker/abc "), []),
        (2, "/docker", PURE.replace(b" / ", b" /docker/abc "), []),
        (2, "/a", PURE.replace(b" / ", b" /../.. "), []),
        (2, "/a b/c", PURE.replace(b" / ", b" /a\\040b "), ["/sys/fs/cgroup/c"]),
        (2, "/x", PURE.replace(b"/sys/fs/cgroup", b"/my\\134cgroups\\040here"), ["/my\\cgroups here/x"]),
        (2, "/x", PURE.replace(b"/sys/fs/cgroup", b"/"), ["/x"]),
        (2, "/x..y/...", PURE, ["/sys/fs/cgroup/x..y/..."]),
        (2, "/x", PURE + V2, ["/sys/fs/cgroup/x", "/sys/fs/cgroup/unified/x"]),
    ],
)
def test_folders(version: int, path: str, table: bytes, expected: list[str]) -> None:
    """The mount's root leaves the path's front, by whole components; foreign mounts are no candidates."""
    assert [folder for _, folder in folders(version, path, parse_mountinfo(table))] == expected


@pytest.mark.parametrize("path", ["/..", "/../..", "/../other", "/a/../b", "/a/..", "a", "", ".."])
def test_paths_out_of_the_namespace_are_refused(path: str) -> None:
    """AC-64: a path with `..`, as a nested cgroup namespace shows it, or a relative one, is never followed."""
    with pytest.raises(CgroupFailed, match="outside"):
        folders(2, path, parse_mountinfo(PURE))


@given(st.binary(max_size=300))
def test_group_paths_takes_any_bytes(data: bytes) -> None:
    """Nothing that a file could hold makes the parser fail."""
    assert set(group_paths(data)) <= {1, 2}


names = st.text(st.characters(exclude_characters="/\n\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
parts = st.lists(names.filter(lambda name: name != ".."), max_size=5)


@given(parts, parts)
def test_any_group_is_found_below_its_mount(root: list[str], below: list[str]) -> None:
    """Whatever the names, the folder is the mount point and what lies below the mount's root."""
    escaped = "/".join(["", *root]) or "/"
    for letter in "\\ \t":
        escaped = escaped.replace(letter, f"\\{ord(letter):03o}")
    path = "/".join(["", *root, *below]) or "/"
    line = f"5:devices:/x\n0::{path}\n".encode()
    table = f"30 23 0:27 {escaped} /cg rw - cgroup2 none rw\n".encode()

    found = folders(2, group_paths(line)[2], parse_mountinfo(table))

    assert [folder for _, folder in found] == ["/".join(["/cg", *below])]


class Host:
    """A procfs of our own, with one folder that stands for the mounts."""

    def __init__(self, folder: Path) -> None:
        self.folder, status = folder, folder.stat()
        self.device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
        for who in ("7", "self"):
            (folder / who).mkdir()

    def find(self, theirs: str, mounts: list[tuple[str, str]], ours: str = "5:devices:/\n0::/\n") -> DeviceGroup:
        """mounts: pairs of device and filesystem with options; the point is always the folder."""
        lines = [f"{20 + n} 1 {device} / {self.folder} rw - {kind}" for n, (device, kind) in enumerate(mounts)]
        (self.folder / "7/cgroup").write_text(theirs)
        (self.folder / "self/cgroup").write_text(ours)
        (self.folder / "self/mountinfo").write_text("\n".join(lines))
        return find_group(7, str(self.folder))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


V1_KIND, V2_KIND = "cgroup cgroup rw,devices", "cgroup2 none rw"


def test_v1_is_chosen_on_a_hybrid_host(host: Host) -> None:
    """Where the devices controller is mounted, it decides."""
    group = host.find("5:devices:/c\n0::/d\n", [(host.device, V2_KIND), (host.device, V1_KIND)])

    assert group == DeviceGroup(version=1, folder=f"{host.folder}/c", pid=7)


def test_v2_is_chosen_without_a_devices_controller(host: Host) -> None:
    """A process with a v2 line only is filtered there."""
    group = host.find("0::/d\n", [(host.device, V2_KIND)])

    assert group == DeviceGroup(version=2, folder=f"{host.folder}/d", pid=7)


def test_a_covered_mount_is_not_taken(host: Host) -> None:
    """A v1 mount below another one is out of reach; in its hierarchy's root nothing is filtered, so v2 decides."""
    group = host.find("5:devices:/\n0::/d\n", [("0:9999", V1_KIND), (host.device, V2_KIND)])

    assert group.version == 2


def test_a_v1_group_out_of_reach_is_not_passed_over(host: Host) -> None:
    """If the process has a v1 group that we cannot see, v2 is no substitute."""
    with pytest.raises(CgroupFailed, match="is mounted here"):
        host.find("5:devices:/c\n0::/d\n", [("0:9999", V1_KIND), (host.device, V2_KIND)])


@pytest.mark.parametrize(
    ("theirs", "ours", "shared"),
    [
        ("0::/a/b\n", "0::/a/b\n", True),
        ("0::/a\n", "0::/a/b\n", True),
        ("0::/\n", "0::/a\n", True),
        ("0::/a/b\n", "0::/a\n", False),
        ("0::/a/b\n", "0::/a/bc\n", False),
        ("0::/a/b\n", "0::/\n", False),
    ],
)
def test_a_group_that_holds_us_is_marked(host: Host, theirs: str, ours: str, shared: bool) -> None:
    """AC-64: our own group, or one above it, is not the container's alone."""
    assert host.find(theirs, [(host.device, V2_KIND)], ours).shared is shared


@pytest.mark.parametrize("theirs", ["", "1:cpu:/x\n"])
def test_no_group_at_all(host: Host, theirs: str) -> None:
    """A process in no hierarchy that decides about devices is refused."""
    with pytest.raises(CgroupFailed, match="in none"):
        host.find(theirs, [(host.device, V2_KIND)])


def test_a_process_that_is_gone(host: Host) -> None:
    """A process without an entry in procfs has ended, which is no fault of its cgroup."""
    with pytest.raises(BadContainer, match="process 8 has ended"):
        find_group(8, str(host.folder))


def test_a_plain_folder_is_no_cgroup(tmp_path: Path) -> None:
    """Nothing is written to a folder of another filesystem, whatever it is called."""
    (tmp_path / "devices.allow").touch()
    (tmp_path / "cgroup.procs").write_text("7\n")
    before = open_descriptors()

    with pytest.raises(CgroupFailed, match="is no cgroup v1"):
        allow(DeviceGroup(version=1, folder=str(tmp_path), pid=7), [GPU])

    assert (tmp_path / "devices.allow").read_bytes() == b""
    assert open_descriptors() == before


def test_a_group_that_is_gone(tmp_path: Path) -> None:
    """A folder that has vanished is a clear error, for the question as well."""
    gone = DeviceGroup(version=2, folder=str(tmp_path / "gone"), pid=7)

    with pytest.raises(CgroupFailed, match="No such file"):
        allow(gone, [GPU])
    with pytest.raises(CgroupFailed, match="No such file"):
        filtered(gone)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """The folder itself is opened, never what a link in its place names."""
    (tmp_path / "link").symlink_to("/sys/fs/cgroup")

    with pytest.raises(CgroupFailed, match="Not a directory"):
        allow(DeviceGroup(version=2, folder=str(tmp_path / "link"), pid=1), [GPU])


def test_no_devices_need_no_group(tmp_path: Path) -> None:
    """With nothing to allow, nothing is opened."""
    allow(DeviceGroup(version=2, folder=str(tmp_path / "gone"), pid=7), [])()


@pytest.mark.engine
def test_more_devices_than_a_program_can_hold(v1: Path, probe: Probe) -> None:
    """The limit is said, and nothing is written."""
    with pytest.raises(CgroupFailed, match="8193 devices"):
        allow(find_group(probe.pid), [(195, minor) for minor in range(8193)])


@pytest.mark.parametrize("device", [(-1, 0), (0, -1), (1 << 12, 0), (195, 1 << 20)])
def test_impossible_numbers(device: tuple[int, int], tmp_path: Path) -> None:
    """Numbers that no device can have end in a clear error before anything is opened."""
    with pytest.raises(CgroupFailed, match="no device number"):
        allow(DeviceGroup(version=1, folder=str(tmp_path / "gone"), pid=7), [device])


@pytest.fixture
def v1(tmp_path: Path) -> Iterator[Path]:
    root_only()
    mount = mounted("cgroup", "devices", tmp_path / "v1")
    group = mount / f"gpuhook test:{os.getpid()}\\040"
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()
        if mount == tmp_path / "v1":
            subprocess.run(["umount", str(mount)], check=True)


@pytest.fixture
def probe(v1: Path, tmp_path: Path) -> Iterator[Probe]:
    """A process in a v1 group in which only /dev/null may be used."""
    (v1 / "devices.deny").write_text("a")
    (v1 / "devices.allow").write_text("c 1:3 rwm")
    probe = Probe(v1, tmp_path)
    yield probe
    probe.end()


engine = pytest.mark.engine


@engine
def test_the_kernels_own_words_lead_to_the_group(v1: Path, probe: Probe) -> None:
    """A name with a blank, a colon and a backslash is found as it is."""
    assert find_group(probe.pid) == DeviceGroup(version=1, folder=str(v1), pid=probe.pid)


@engine
def test_v1_allows_the_device_and_only_that(v1: Path, probe: Probe) -> None:
    """Before: denied. After: the device can be read and written, not made; all else is as before."""
    assert filtered(find_group(probe.pid))
    assert probe.open(GPU) == "denied"

    allow(find_group(probe.pid), [GPU, (195, 255)]).close()

    assert [probe.open(GPU), probe.open((195, 255))] == ["allowed", "allowed"]
    assert [probe.open(NULL), probe.open(FUSE), probe.mknod(GPU)] == ["allowed", "denied", "denied"]
    assert probe.open(GPU, block=True) == "denied"


@engine
def test_v1_undo_restores_the_list(v1: Path, probe: Probe) -> None:
    """Undo leaves what was there before, also where a rule of fewer letters stood."""
    (v1 / "devices.allow").write_text("c 195:1 rm")
    before, fds = (v1 / "devices.list").read_text(), open_descriptors()

    undo = allow(find_group(probe.pid), [GPU, (195, 1)])
    assert "c 195:1 rwm" in (v1 / "devices.list").read_text()
    undo()

    assert (v1 / "devices.list").read_text() == before
    assert probe.open(GPU) == "denied"
    assert open_descriptors() == fds


@engine
@pytest.mark.parametrize("rule", ["c 195:0 rw", "c 195:* rwm", "c *:* rw"])
def test_v1_leaves_what_is_allowed_already(v1: Path, probe: Probe, rule: str) -> None:
    """A device that a rule covers gets no second rule, and undo does not take the first one away."""
    (v1 / "devices.allow").write_text(rule)
    before = (v1 / "devices.list").read_text()

    undo = allow(find_group(probe.pid), [GPU])
    assert (v1 / "devices.list").read_text() == before
    undo()

    assert probe.open(GPU) == "allowed"


@engine
def test_v1_twice_is_as_once(v1: Path, probe: Probe) -> None:
    """The second hook of a container finds everything in place."""
    first = allow(find_group(probe.pid), [GPU])
    allow(find_group(probe.pid), [GPU])()

    assert probe.open(GPU) == "allowed"
    first.close()


@engine
def test_v1_without_a_filter_has_nothing_to_do(v1: Path, tmp_path: Path) -> None:
    """A group that may use everything is left alone."""
    probe = Probe(v1, tmp_path)
    group = find_group(probe.pid)

    assert not filtered(group)
    allow(group, [GPU])()

    assert (v1 / "devices.list").read_text() == "a *:* rwm\n"
    probe.end()


@engine
def test_v1_a_group_above_forbids(v1: Path, probe: Probe, tmp_path: Path) -> None:
    """The kernel refuses a rule that the group above lacks; what was added until then is taken back."""
    inner = v1 / "inner"
    inner.mkdir()
    (v1 / "devices.allow").write_text("c 195:0 rw")
    nested = Probe(inner, tmp_path)
    (inner / "devices.deny").write_text("c 195:0 rw")
    try:
        with pytest.raises(CgroupFailed, match="not permitted") as caught:
            allow(find_group(nested.pid), [GPU, FUSE, (300, 1)])
        assert "cgroup above" in caught.value.hint
        assert nested.open(GPU) == "denied"
    finally:
        nested.end()
        inner.rmdir()


@engine
def test_another_process_is_no_member(v1: Path, probe: Probe) -> None:
    """AC-64: the folder itself must name the process, else nothing is written."""
    before = (v1 / "devices.list").read_text()

    with pytest.raises(CgroupFailed, match=f"process {os.getpid()} is not in the cgroup"):
        allow(DeviceGroup(version=1, folder=str(v1), pid=os.getpid()), [GPU])

    assert (v1 / "devices.list").read_text() == before


@engine
def test_a_shared_group_is_not_written(v1: Path, probe: Probe) -> None:
    """AC-64: in a filtered group that holds the hook as well, the start fails and the rules stay."""
    before = (v1 / "devices.list").read_text()

    with pytest.raises(CgroupFailed, match="no cgroup of its own"):
        allow(find_group(probe.pid).with_(shared=True), [GPU])

    assert (v1 / "devices.list").read_text() == before


@engine
def test_our_own_group_is_recognised() -> None:
    """A process in the same group as we are is marked so."""
    root_only()

    assert find_group(os.getpid()).shared


@engine
def test_from_a_nested_cgroup_namespace_nothing_is_guessed(v1: Path, probe: Probe, tmp_path: Path) -> None:
    """AC-64: seen from inside a group's namespace, a process outside of it has a path with `/..` and is refused."""
    inner = v1 / "inner"
    inner.mkdir()
    code = f"import gpuhook.kernel.cgroup as c; c.find_group({probe.pid})"
    enter = f"import os; open({str(inner / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    run = f"{enter}; os.execvp('unshare', ['unshare', '--cgroup', {sys.executable!r}, '-c', {code!r}])"
    try:
        done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
        assert "CgroupFailed: the cgroup /.. lies outside" in done.stderr
    finally:
        inner.rmdir()
