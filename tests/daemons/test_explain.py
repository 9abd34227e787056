"""explain, doctor and ps ask real daemons, and say of their containers what the containers have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.daemons.conftest import Docker
from tests.daemons.test_podman import LIMITS, STORAGE

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

SLEEP = ("/bin/busybox", "sleep", "600")
ALL = "NVIDIA_VISIBLE_DEVICES=all"
Start = Callable[..., str]


@pytest.fixture
def start(docker: Docker) -> Iterator[Start]:
    """Starts a container of Docker with these options and returns its name."""
    names: list[str] = []

    def begin(*options: str) -> str:
        names.append(f"told-{len(names)}")
        done = docker("run", "-d", "--name", names[-1], "--network", "none", *options, docker.image, *SLEEP)
        assert done.status == 0, done.stderr
        return names[-1]

    yield begin
    docker("rm", "-f", *names)


def explained(docker: Docker, *words: str) -> dict[str, Any]:
    done = docker.site.gpuhook("explain", "--json", *words)
    assert done.status == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def indices(found: dict[str, Any]) -> list[str]:
    return [device["index"] for device in found["devices"]]


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        (("--gpus", "all"), ["0", "1", "2"]),
        (("--gpus", '"device=1"'), ["1"]),
        (("--gpus", "2"), ["0", "1"]),
        (("--runtime=nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=2"), ["2"]),
    ],
)
def test_a_gpu_container_of_docker(options: tuple[str, ...], gpus: list[str], docker: Docker, start: Start) -> None:
    """By its name, by its id, by its bundle at containerd: the same GPUs, and nothing to warn of."""
    name = start(*options)
    whole = docker("inspect", "-f", "{{.Id}}", name).stdout.strip()
    for words in (("--docker", name), ("--docker", whole[:12]), ("--containerd", whole[:12])):
        found = explained(docker, *words)
        assert (found["verdict"], found["uncalled"], indices(found)) == ("inject", "", gpus)
        assert found["warnings"] == []


def test_a_container_for_which_nobody_calls_the_hook(docker: Docker, start: Start) -> None:
    """Docker's runc, and the variable: what people meet first."""
    name = start("-e", ALL)
    assert "without --gpus" in explained(docker, "--docker", name)["uncalled"]
    whole = docker("inspect", "-f", "{{.Id}}", name).stdout.strip()
    assert "has no GPU hook" in explained(docker, "--containerd", whole)["uncalled"]
    report = json.loads(docker.site.gpuhook("doctor", "--json", "--container", name).stdout)
    assert (f"container {name}: ", "runtime-not-registered") in [
        (finding["text"][: len(name) + 12], finding["slug"]) for finding in report["findings"]
    ]


@pytest.mark.parametrize("name", ["host", "none", "probe", "no-such"])
def test_networks_images_and_nothing_are_no_containers(name: str, docker: Docker) -> None:
    """`docker inspect` alone would tell of them."""
    done = docker.site.gpuhook("explain", "--docker", name)
    assert (done.status, done.stdout) == (1, "")
    assert "docker ps --all" in done.stderr


def test_images_are_explained_from_what_docker_prints(docker: Docker) -> None:
    """On stdin or in a file."""
    site = docker.site
    site.write("/etc/docker/image.json", docker("image", "inspect", docker.image).stdout)
    found = explained(docker, "--image-json", "/etc/docker/image.json")
    assert (found["container"], found["verdict"]) == ("probe:latest", "skip")


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_podmans_containers_are_told_by_their_hooks(runtime: str, docker: Docker) -> None:
    """Its hook file is there or not; the name of the runtime means nothing."""
    site = docker.site

    def podman(*words: str) -> str:
        done = site.run("podman", *STORAGE, *words)
        assert done.status == 0, done.stderr
        return done.stdout

    podman("import", f"{site.folder}/image.tar", "probe")
    made = ("--network", "none", *LIMITS, "--log-driver", "none", "-e", ALL, "probe", *SLEEP)
    site.write("/etc/containers/storage.conf", '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\n'
               'graphroot = "/var/lib/containers/storage"\n')  # fmt: skip
    try:
        podman("--runtime", runtime, "run", "-d", "--name", "bare", *made)
        assert explained(docker, "--podman", "bare")["uncalled"].startswith("Podman found no GPU hook")
        assert site.gpuhook("install", "podman").status == 0
        podman("--runtime", runtime, "run", "-d", "--name", "hooked", *made)
        found = explained(docker, "--podman", "hooked")
        assert (found["uncalled"], found["warnings"], indices(found)) == ("", [], ["0", "1", "2"])
        assert ("hook-error-hidden" in [note["reference"] for note in found["notes"]]) == (runtime == "crun")
    finally:
        podman("rm", "-f", "-t", "0", "-i", "bare", "hooked")
        site.gpuhook("uninstall", "podman")


def test_ps_names_them_all(docker: Docker, start: Start) -> None:
    """With what they may use, and a mark for the one that asked in vain."""
    given, in_vain = start("--gpus", '"device=1"'), start("-e", ALL)
    found = json.loads(docker.site.gpuhook("ps", "--json").stdout)
    by_name = {one["name"]: one for one in found["containers"]}
    assert [access["node"] for access in by_name[given]["may_use"]] == ["/dev/nvidia0"]
    assert (by_name[in_vain]["asked"], by_name[in_vain]["may_use"]) == ("all", [])
