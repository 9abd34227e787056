"""A machine that gpuhook was on and is not any more."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.daemons.site import DAEMON_JSON, PROJECT, Site, make_site
from tests.rig.needs import need
from tests.rig.snapshot import Snapshot, snapshot

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]


def state(site: Site) -> Snapshot:
    """The folders that an installation may touch."""
    return snapshot(*(f"{site.folder}{path}" for path in ("/etc", "/usr", "/var")), mounts=False)


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A fresh machine."""
    need("dockerd", "containerd", "podman")
    made = make_site(str(tmp_path_factory.mktemp("site")))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("options", [(), ("--replace-nvidia", "--set-as-default")])
def test_every_byte_is_as_before(site: Site, options: tuple[str, ...]) -> None:
    """With the usual paths, without --root: every file, mode and owner below /etc, /usr/local and /var/lib."""
    before = state(site)
    for engine in ("docker", "containerd", "podman"):
        done = site.gpuhook("install", engine, *options)
        assert done.status == 0, done.stderr
    assert site.read("/etc/docker/daemon.json") != DAEMON_JSON
    assert "gpuhook 0" in site.run("/usr/local/bin/gpuhook", "--version").stdout
    assert site.gpuhook("uninstall").status == 0
    assert before.differences(state(site)) == []


def test_the_installed_launcher_can_uninstall_itself(site: Site) -> None:
    """`gpuhook uninstall` is what people type, and the launcher that runs it is one of the files that go."""
    before = state(site)
    assert site.gpuhook("install", "docker").status == 0
    done = site.run("/usr/local/bin/gpuhook", "uninstall", "docker")
    assert (done.status, done.stderr) == (0, "")
    assert before.differences(state(site)) == []


def test_a_restart_that_this_machine_cannot_do_is_said(site: Site) -> None:
    """Everything is installed all the same, and the command is named."""
    done = site.gpuhook("install", "docker", "--restart")
    assert done.status == 1
    assert done.stderr.startswith("gpuhook: restart-failed:")
    assert "systemctl restart docker" in done.stderr
    assert "nvidia" in site.read("/etc/docker/daemon.json")


@pytest.mark.parametrize(("status", "outcome"), [(0, 0), (3, 1)])
def test_a_restart_is_systemds_work(site: Site, status: int, outcome: int) -> None:
    """Only with --restart, and its failure is ours."""
    site.write("/usr/local/sbin/systemctl", f'#!/bin/sh\necho "$@" >> /etc/restarted\nexit {status}\n')
    site.run("chmod", "+x", "/usr/local/sbin/systemctl")
    site.run("mkdir", "-p", "/run/systemd/system")
    assert site.gpuhook("install", "docker").status == 0
    assert site.run("cat", "/etc/restarted").status != 0
    assert site.gpuhook("install", "docker", "--restart").status == outcome
    assert site.read("/etc/restarted") == "restart docker\n"
    assert site.gpuhook("uninstall", "docker", "--restart").status == outcome
    assert site.read("/etc/restarted") == "restart docker\nrestart docker\n"


def test_without_root_it_says_so(site: Site) -> None:
    """And changes nothing."""
    before = state(site)
    code = (
        "import os, sys; sys.path.insert(0, sys.argv.pop(1)); from gpuhook.install import add, remove, show\n"
        "from gpuhook import hook, launchers, terminal; launchers._is_compiled = lambda: True\n"
        "launchers.text_for('gpuhook'); from gpuhook.install import docker; os.setuid(65534)\n"
        "sys.exit(hook.main(sys.argv[1:]))"
    )
    done = site.run(sys.executable, "-c", code, PROJECT, "install", "docker")
    assert done.status == 1
    assert "run it as root" in done.stderr
    assert before.differences(state(site)) == []
