"""What people type with Docker, on a real dockerd, and what the container then has."""

from __future__ import annotations

import subprocess

import pytest

from tests.daemons.conftest import Docker
from tests.daemons.inside import QUESTIONS, has
from tests.rig.process import Result

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]


def probe(docker: Docker, *options: str, env: dict[str, str] | None = None, program: str = "docker") -> Result:
    """The probe's answers in a container that was started with these options."""
    words = ("run", "--rm", "--network", "none", "--cap-add", "MKNOD", *options, docker.image)
    return docker(*words, "/bin/probe", *QUESTIONS, env=env, program=program)


def test_without_gpuhook_docker_knows_no_gpu(bare_docker: Docker) -> None:
    """The machine is a fresh one: this is what people see at first."""
    if "--replace-nvidia" in bare_docker.site.gpuhook("install").stdout:
        done = probe(bare_docker, "--gpus", "all")
        assert "could not select device driver" in done.stderr


@pytest.mark.parametrize(
    ("gpus", "indices", "cuda", "ml"),
    [
        ("all", (0, 1, 2), True, True),
        ('"device=0,1"', (0, 1), True, True),
        ("device=GPU-2c000000-1111-2222-3333-000000000002", (2,), True, True),
        ('"device=1","capabilities=compute,utility"', (1,), True, True),
        ('"device=0","capabilities=compute"', (0,), True, False),
        ('"device=0","capabilities=utility"', (0,), False, True),
        ("2", (0, 1), True, True),
    ],
)
def test_gpus(docker: Docker, gpus: str, indices: tuple[int, ...], cuda: bool, ml: bool) -> None:
    """The GPUs that were asked for, and the libraries of the capabilities."""
    has(probe(docker, "--gpus", gpus), *indices, cuda=cuda, ml=ml)


def test_a_container_that_asks_for_nothing_gets_nothing(docker: Docker) -> None:
    """Neither nodes nor libraries, and the hook is not even called."""
    has(probe(docker), cuda=False, ml=False)


def test_a_gpu_that_does_not_exist_is_named_by_docker_itself(docker: Docker) -> None:
    """The daemon's one line has our reason and the GPUs that there are."""
    done = probe(docker, "--gpus", '"device=7"')
    assert done.status == 125
    assert "unknown-device" in done.stderr


@pytest.mark.parametrize(("asked", "indices"), [("1", (1,)), ("all", (0, 1, 2)), ("void", ())])
def test_the_runtime_by_name(docker: Docker, asked: str, indices: tuple[int, ...]) -> None:
    """--runtime=nvidia with the variable."""
    has(
        probe(docker, "--runtime=nvidia", "-e", f"NVIDIA_VISIBLE_DEVICES={asked}"),
        *indices,
        cuda=bool(indices),
        ml=bool(indices),
    )


@pytest.mark.parametrize("name", ["nvidia-docker", "gpuhook-docker"])
def test_nvidia_docker(docker: Docker, name: str) -> None:
    """NV_GPU chooses, and nothing else has to be said."""
    has(probe(docker, env={"NV_GPU": "0 2"}, program=name), 0, 2)


def test_the_runtime_and_gpus_together_do_the_work_once(docker: Docker) -> None:
    """Docker adds NVIDIA's hook, and the runtime recognises it."""
    has(probe(docker, "--runtime=nvidia", "--gpus", "device=1"), 1)


def test_exec_into_a_running_container(docker: Docker) -> None:
    """A second process has what the first one has; the runtime only passes it on."""
    options = ("--network", "none", "--cap-add", "MKNOD", "--runtime=nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=1")
    started = docker("run", "-d", *options, docker.image, "/bin/sleep", "600")
    assert started.status == 0, started.stderr
    name = started.stdout.strip()
    try:
        has(docker("exec", name, "/bin/probe", *QUESTIONS), 1)
    finally:
        assert docker("rm", "-f", name).status == 0


@pytest.mark.parametrize("options", [("--gpus", "device=1"), ("--runtime=nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=1")])
def test_a_stopped_container_starts_again_with_its_gpu(docker: Docker, options: tuple[str, ...]) -> None:
    """What the first start left in its tree does not disturb the second."""
    words = ("--network", "none", "--cap-add", "MKNOD", *options, docker.image, "/bin/probe", *QUESTIONS)
    name = docker("create", *words).stdout.strip()
    try:
        for _ in range(3):
            has(docker("start", "-a", name), 1)
    finally:
        assert docker("rm", "-f", name).status == 0


def test_twenty_containers_at_once(docker: Docker) -> None:
    """Each gets its own GPU and no other."""
    words = ("docker", "run", "--rm", "--network", "none", "--cap-add", "MKNOD")
    running = [
        (number % 3, subprocess.Popen(
            docker.site.enter([*words, "--gpus", f"device={number % 3}", docker.image, "/bin/probe", *QUESTIONS]),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ))
        for number in range(20)
    ]  # fmt: skip
    for gpu, process in running:
        out, err = process.communicate(timeout=300)
        has(Result(process.returncode, out, err), gpu)


def test_a_build_gets_no_gpu(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither docker build nor nvidia-docker build, although the image's variable asks for all."""
    folder = tmp_path_factory.mktemp("build")
    text = f'FROM {docker.image}\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN ["/bin/sh", "-c", "! test -e /dev/nvidiactl"]\n'
    (folder / "Dockerfile").write_text(text)
    for program in ("docker", "nvidia-docker"):
        options = ("build", "--network", "none", "--no-cache", "--force-rm", str(folder))
        done = docker(*options, program=program, env={"DOCKER_BUILDKIT": "0"})
        assert done.status == 0, done.stderr


def test_status_names_the_runtime(docker: Docker) -> None:
    """And the daemon agrees."""
    assert "nvidia is /usr/local/bin/gpuhook-runtime, gpuhook's" in docker.site.gpuhook("status").stdout
    assert "nvidia" in docker("info", "--format", "{{json .Runtimes}}").stdout
