"""What is read besides the file that is changed: units, drop-ins, folders of a tree; and what of it is passed over."""

from __future__ import annotations

import json
import os

import pytest

from gpuhook.install import podman
from gpuhook.install.host import Host
from tests.install.conftest import SHIM, Machine
from tests.rig.needs import need

FILE = "/etc/docker/daemon.json"
UNIT, VENDOR = "/etc/systemd/system/docker.service", "/usr/lib/systemd/system/docker.service"
OPTION = "[Service]\nExecStart=/usr/bin/dockerd --add-runtime=x=/y\n"
PLAIN = "[Service]\nExecStart=/usr/bin/dockerd\n"


def masked(machine: Machine, path: str) -> None:
    """A file that is switched off by a link to /dev/null."""
    need()
    machine.put({"/dev/x": ""})
    if not machine.path("/dev/null").exists():
        os.mknod(machine.path("/dev/null"), 0o020666, os.makedev(1, 3))
    machine.path(path).parent.mkdir(parents=True, exist_ok=True)
    os.symlink("/dev/null", machine.path(path))


@pytest.mark.engine
@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ("docker", UNIT),
        ("docker", f"{UNIT}.d/x.conf"),
        ("crio", "/etc/crio/crio.conf.d/x.conf"),
        ("podman", "/etc/containers/containers.conf.d/x.conf"),
        ("podman", "/usr/share/containers/oci/hooks.d/x.json"),
    ],
)
def test_what_is_switched_off_is_passed_over(machine: Machine, engine: str, path: str) -> None:
    """`systemctl mask docker`, and the same done to a drop-in."""
    machine.put({FILE: "{}", "/etc/crio/crio.conf": "", "/etc/containers/containers.conf": ""})
    masked(machine, path)
    assert machine("install", engine) == 0, machine.err
    assert os.readlink(machine.path(path)) == "/dev/null"


@pytest.mark.engine
def test_a_configuration_is_never_written_over_a_device(machine: Machine) -> None:
    """Where daemon.json itself is switched off, somebody did it on purpose."""
    masked(machine, FILE)
    assert machine("install", "docker") == 1
    assert "is not a regular file" in machine.err


@pytest.mark.parametrize("folder", ["/etc/crio/crio.conf.d/sub", "/etc/containers/containers.conf.d/sub.conf"])
def test_a_folder_among_the_files_is_passed_over(machine: Machine, folder: str) -> None:
    """It has no settings."""
    machine.put({f"{folder}/x": "= broken", "/etc/crio/crio.conf": "", "/etc/containers/containers.conf": ""})
    assert machine("install", "crio", "podman") == 0, machine.err


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({VENDOR: OPTION}, 1),
        ({VENDOR: OPTION, UNIT: PLAIN}, 0),
        ({VENDOR: OPTION, f"{UNIT}.d/a.conf": "[Service]\nExecStart=\nExecStart=dockerd\n"}, 0),
        ({VENDOR: PLAIN, f"{UNIT}.d/a.conf": "[Service]\nExecStart=\nExecStart=dockerd --add-runtime x=y\n"}, 1),
        ({f"{VENDOR}.d/a.conf": OPTION, f"{UNIT}.d/a.conf": PLAIN}, 0),
        ({f"{VENDOR}.d/z.conf": OPTION, f"{UNIT}.d/a.conf": PLAIN}, 1),
    ],
)
def test_only_the_unit_that_counts_is_asked(machine: Machine, files: dict[str, str], status: int) -> None:
    """An overridden one, or a line that a drop-in takes back, is nobody's option any more."""
    machine.put({FILE: "{}", **files})
    assert machine("install", "docker") == status, machine.err


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ('--config-file "/etc/other.json"', "/etc/other.json"),
        ("--config-file=/etc/other.json", "/etc/other.json"),
        ("--config-file=$CONFIG", FILE),
        ("--config-file=${CONFIG}", FILE),
    ],
)
def test_the_file_of_the_unit(machine: Machine, option: str, path: str) -> None:
    """A variable's value is not known here."""
    machine.put({FILE: "{}", VENDOR: f"[Service]\nExecStart=dockerd {option}\n"})
    assert machine("install", "docker") == 0
    assert json.loads(machine.text(path))["runtimes"]["nvidia"]["path"] == SHIM


def test_a_folder_that_is_a_link_stays_within_the_tree(machine: Machine) -> None:
    """An absolute link means a folder of the machine, not of the one on which we run."""
    machine.put({"/srv/crio/b.conf": "", "/srv/crio/.hidden": "", "/etc/crio/crio.conf": ""})
    os.symlink("/srv/crio", machine.path("/etc/crio/crio.conf.d"))
    host = Host(root=str(machine.root))
    assert host.glob("/etc/crio/crio.conf.d/*") == ["/etc/crio/crio.conf.d/b.conf"]
    assert host.glob("/etc/*/crio.c*") == ["/etc/crio/crio.conf", "/etc/crio/crio.conf.d"]
    assert host.glob("/etc/crio/nothing/*") == host.glob("/nothing*/x") == []
    assert host.glob("/etc/crio/crio.conf") == ["/etc/crio/crio.conf"]


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        (['["/a"]'], ["/a"]),
        (['["/a"]', '["/b"]'], ["/b"]),
        (['["/a"]', '["/b", {append=true}]'], ["/a", "/b"]),
        (['["/a", {append=true}]'], ["/usr/share/containers/oci/hooks.d", "/a"]),
        (['["/a"]', "[{append=true}]", '["/a", {append=true}]'], ["/a"]),
        (["[]"], ["/usr/share/containers/oci/hooks.d"]),
    ],
)
def test_lists_that_go_on(machine: Machine, files: list[str], folders: list[str]) -> None:
    """A later file may add to an earlier one's hook folders: a hook is in effect in any of them."""
    for number, value in enumerate(files):
        machine.put({f"/etc/containers/containers.conf.d/{number}.conf": f"[engine]\nhooks_dir = {value}\n"})
    assert list(podman.folders(Host(root=str(machine.root)))) == folders
