"""containerd by itself: `ctr run` with our runtime, and the file that the installation makes."""

from __future__ import annotations

import os
from itertools import count

import pytest

from tests.daemons.conftest import Docker
from tests.daemons.inside import QUESTIONS, has
from tests.rig.process import Result

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

_numbers = count(1)


@pytest.fixture(scope="module")
def image(docker: Docker) -> str:
    """The probe's image in containerd."""
    tar = f"{docker.site.folder}/saved.tar"
    assert docker("save", "-o", tar, docker.image).status == 0
    done = docker.site.run("ctr", "images", "import", "--snapshotter", "native", tar)
    assert done.status == 0, done.stderr
    return name_of(docker)


def name_of(docker: Docker) -> str:
    """The name that containerd has given the image: the only one it holds."""
    return docker.site.run("ctr", "images", "ls", "-q").stdout.split()[0]


def ctr(docker: Docker, *options: str) -> Result:
    """The probe's answers in a container that ctr started with these options."""
    words = ("ctr", "run", "--rm", "--snapshotter", "native", "--cap-add", "CAP_MKNOD", *options, name_of(docker))
    return docker.site.run(*words, f"probe-{os.getpid()}-{next(_numbers)}", "/bin/probe", *QUESTIONS)


@pytest.mark.parametrize(("asked", "gpus"), [("1", (1,)), ("0,2", (0, 2)), ("all", (0, 1, 2)), ("void", ())])
@pytest.mark.parametrize("program", ["gpuhook-runtime", "nvidia-container-runtime"])
def test_ctr_with_our_runtime(docker: Docker, image: str, asked: str, gpus: tuple[int, ...], program: str) -> None:
    """--runc-binary, found on containerd's PATH; the variable decides."""
    done = ctr(docker, "--runc-binary", program, "--env", f"NVIDIA_VISIBLE_DEVICES={asked}")
    has(done, *gpus, cuda=bool(gpus), ml=bool(gpus))


def test_ctr_with_runc_gives_nothing(docker: Docker, image: str) -> None:
    """Nobody is called."""
    has(ctr(docker, "--env", "NVIDIA_VISIBLE_DEVICES=all"), cuda=False, ml=False)


def test_the_installed_runtime_is_what_containerd_reads(docker: Docker) -> None:
    """With the machine's own file, of which every line stays; uninstall takes it back."""
    site = docker.site
    before = site.read("/etc/containerd/config.toml")
    assert site.gpuhook("install", "containerd").status == 0
    try:
        after = site.read("/etc/containerd/config.toml")
        assert [line for line in before.splitlines() if line not in after.splitlines()] == []
        shown = site.run("containerd", "config", "dump").stdout
        assert 'BinaryName = "/usr/local/bin/gpuhook-runtime"' in shown
        assert 'bin_dir = "/usr/lib/cni"' in shown
    finally:
        assert site.gpuhook("uninstall", "containerd").status == 0
    assert before == site.read("/etc/containerd/config.toml")
