"""Programs, firmware, sockets and procfs files: taken where they are right, noted where they are not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gpuhook.driver import tables
from gpuhook.driver.extras import Found, find_firmware, find_proc_files, find_programs, find_sockets
from gpuhook.kernel.beneath import Root
from tests.rig.needs import need


def touch(root: Path, path: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


def listen(root: Path, path: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(place.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{place.name}")
    os.close(folder)


def programs(root: Path, path: str = "") -> Found:
    with Root(str(root)) as opened:
        return find_programs(opened, path)


def firmware(root: Path) -> Found:
    with Root(str(root)) as opened:
        return find_firmware(opened, "550.54.14")


def sockets(root: Path) -> Found:
    with Root(str(root)) as opened:
        return find_sockets(opened)


def test_programs_are_in_table_order(tmp_path: Path) -> None:
    """Whatever folder they are in."""
    touch(tmp_path, "/usr/bin/nvidia-cuda-mps-server")
    touch(tmp_path, "/usr/local/nvidia/bin/nvidia-smi")
    found, missing = programs(tmp_path)
    assert found == ("/usr/local/nvidia/bin/nvidia-smi", "/usr/bin/nvidia-cuda-mps-server")
    assert "program nv-fabricmanager: not installed" in missing


@pytest.mark.parametrize("folder", tables.PROGRAM_FOLDERS)
def test_every_program_folder_is_searched(tmp_path: Path, folder: str) -> None:
    """The usual folders need no PATH."""
    touch(tmp_path, f"{folder}/nvidia-smi")
    assert programs(tmp_path)[0] == (f"{folder}/nvidia-smi",)


@pytest.mark.parametrize(
    ("path", "found"),
    [("/opt/odd", True), (":/x:/opt/odd:", True), ("", False), ("opt/odd", False), ("./opt/odd:odd", False)],
)
def test_path_adds_absolute_folders(tmp_path: Path, path: str, found: bool) -> None:
    """A relative entry of PATH means the current folder, which is anybody's."""
    touch(tmp_path, "/opt/odd/nvidia-smi")
    assert (programs(tmp_path, path)[0] == ("/opt/odd/nvidia-smi",)) is found


def test_programs_behind_links(tmp_path: Path) -> None:
    """Debian's alternatives lead to the real file; its path is listed."""
    touch(tmp_path, "/usr/lib/nvidia/current/nvidia-smi")
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/etc/alternatives/nvidia-smi")
    assert programs(tmp_path)[0] == ("/usr/lib/nvidia/current/nvidia-smi",)


@pytest.mark.attack
def test_a_program_that_leads_to_another_name(tmp_path: Path) -> None:
    """A link to a shell is no nvidia-smi."""
    touch(tmp_path, "/bin/sh")
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/bin/sh")
    found, missing = programs(tmp_path)
    assert found == ()
    assert "program nvidia-smi: /usr/bin/nvidia-smi leads to /bin/sh, another name" in missing


@pytest.mark.attack
def test_a_program_that_is_a_fifo(tmp_path: Path) -> None:
    """Only regular files are programs; a later folder may have the right one."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    os.mkfifo(tmp_path / "usr/bin/nvidia-smi")
    assert "is a FIFO" in programs(tmp_path)[1][0]
    touch(tmp_path, "/opt/bin/nvidia-smi")
    assert programs(tmp_path)[0] == ("/opt/bin/nvidia-smi",)


def test_firmware_of_this_version(tmp_path: Path) -> None:
    """Sorted, GSP images only, by the path that the driver asks for."""
    for name in ("gsp_tu10x.bin", "gsp_ga10x.bin", "other.bin", "gsp_x.txt"):
        touch(tmp_path, f"/usr/lib/firmware/nvidia/550.54.14/{name}")
    (tmp_path / "lib").symlink_to("usr/lib")
    assert firmware(tmp_path) == (
        tuple(f"/lib/firmware/nvidia/550.54.14/{name}" for name in ("gsp_ga10x.bin", "gsp_tu10x.bin")),
        (),
    )


def test_no_firmware_is_noted(tmp_path: Path) -> None:
    """Old GPUs need none."""
    assert firmware(tmp_path)[1] == ("firmware /lib/firmware/nvidia/550.54.14: No such file or directory",)


@pytest.mark.attack
def test_firmware_that_is_no_file(tmp_path: Path) -> None:
    """A dangling link and a folder are left out."""
    touch(tmp_path, "/lib/firmware/nvidia/550.54.14/gsp.bin")
    (tmp_path / "lib/firmware/nvidia/550.54.14/gsp_a.bin").symlink_to("/etc/shadow")
    (tmp_path / "lib/firmware/nvidia/550.54.14/gsp_b.bin").mkdir()
    found, missing = firmware(tmp_path)
    assert found == ("/lib/firmware/nvidia/550.54.14/gsp.bin",)
    assert len(missing) == 2


def test_sockets_by_their_resolved_paths(tmp_path: Path) -> None:
    """Through the link /var/run, as on every distribution."""
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    listen(tmp_path, "/run/nvidia-persistenced/socket")
    listen(tmp_path, "/run/nvidia-fabricmanager/socket")
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    assert sockets(tmp_path) == (
        ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps"),
        (),
    )


def test_absent_sockets_are_noted(tmp_path: Path) -> None:
    """All three are optional."""
    found, missing = sockets(tmp_path)
    assert found == ()
    assert len(missing) == 3


@pytest.mark.attack
def test_a_socket_that_is_a_file(tmp_path: Path) -> None:
    """Nothing else is mounted in a socket's place."""
    touch(tmp_path, "/var/run/nvidia-persistenced/socket")
    assert "a regular file, not a socket" in sockets(tmp_path)[1][0]


@pytest.mark.attack
@pytest.mark.parametrize("target", ["/root", "../root"])
def test_the_mps_folder_is_not_followed(tmp_path: Path, target: str) -> None:
    """Any user of the host can make a link in /tmp; it must not bring root's folder into a container."""
    (tmp_path / "root").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp/nvidia-mps").symlink_to(target)
    found, missing = sockets(tmp_path)
    assert found == ()
    assert "a link, not a folder" in missing[-1]


@pytest.mark.attack
@pytest.mark.engine
def test_the_mps_folder_of_another_user(tmp_path: Path) -> None:
    """Nor must a user's own folder pass for the service's."""
    need()
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    os.chown(tmp_path / "tmp/nvidia-mps", 12345, 12345)
    found, missing = sockets(tmp_path)
    assert found == ()
    assert "uid 12345" in missing[-1]


def test_proc_files(tmp_path: Path) -> None:
    """Those that exist, in the order of their copying."""
    touch(tmp_path, "/proc/driver/nvidia/version")
    touch(tmp_path, "/proc/driver/nvidia/params")
    (tmp_path / "proc/driver/nvidia/params").write_text("ModifyDeviceFiles: 1\n")
    with Root(str(tmp_path)) as root:
        assert find_proc_files(root) == (
            (("params", b"ModifyDeviceFiles: 1\n"), ("version", b"")),
            ("/proc/driver/nvidia/registry: No such file or directory",),
        )
