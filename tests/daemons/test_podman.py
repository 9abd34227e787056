"""Podman with the hook that the installation registers, under runc and crun."""

from __future__ import annotations

import pytest

from tests.daemons.conftest import Docker
from tests.daemons.inside import QUESTIONS, has
from tests.daemons.site import Site
from tests.rig.needs import need
from tests.rig.process import Result

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")  # else Podman raises them, if it may
STORAGE = ("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none")


def podman(site: Site, *options: str, runtime: str = "runc", before: tuple[str, ...] = ()) -> Result:
    """The probe's answers in a container that Podman started with these options."""
    return site.run(
        "podman", *STORAGE, *before, "--runtime", runtime,
        "run", "--rm", "--network", "none", *LIMITS, "--log-driver", "none", "--cap-add", "MKNOD", *options,
        "probe", "/bin/probe", *QUESTIONS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site_with_hook(docker: Docker) -> Site:
    """The machine with Podman's hook installed."""
    need("podman", "runc", "crun")
    done = docker.site.run("podman", *STORAGE, "import", f"{docker.site.folder}/image.tar", "probe")
    assert done.status == 0, done.stderr
    assert "oci-nvidia-hook.json" in docker.site.gpuhook("install", "podman").stdout
    return docker.site


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize(("asked", "gpus"), [("1", (1,)), ("all", (0, 1, 2)), ("void", ())])
def test_the_installed_hook(site_with_hook: Site, runtime: str, asked: str, gpus: tuple[int, ...]) -> None:
    """Podman finds it by itself, and the variable decides."""
    done = podman(site_with_hook, "-e", f"NVIDIA_VISIBLE_DEVICES={asked}", runtime=runtime)
    has(done, *gpus, cuda=bool(gpus), ml=bool(gpus))


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_a_folder_on_the_command_line(site_with_hook: Site, runtime: str) -> None:
    """--hooks-dir with a file that --config names."""
    assert site_with_hook.gpuhook("uninstall", "podman").status == 0
    folder = "/etc/gpu-hooks"
    asked = ("-e", "NVIDIA_VISIBLE_DEVICES=2")
    try:
        assert site_with_hook.gpuhook("install", "podman", "--config", f"{folder}/gpu.json").status == 0
        has(podman(site_with_hook, *asked, runtime=runtime), cuda=False, ml=False)
        has(podman(site_with_hook, *asked, runtime=runtime, before=("--hooks-dir", folder)), 2)
    finally:
        assert site_with_hook.gpuhook("uninstall", "podman").status == 0
        assert site_with_hook.gpuhook("install", "podman").status == 0


def test_the_installed_runtime(site_with_hook: Site) -> None:
    """By the name that containers.conf.d gives it."""
    assert site_with_hook.gpuhook("uninstall", "podman").status == 0
    try:
        assert site_with_hook.gpuhook("install", "podman", "--via", "runtime").status == 0
        has(podman(site_with_hook, "-e", "NVIDIA_VISIBLE_DEVICES=0", runtime="nvidia"), 0)
    finally:
        assert site_with_hook.gpuhook("uninstall", "podman").status == 0
        assert site_with_hook.gpuhook("install", "podman").status == 0
