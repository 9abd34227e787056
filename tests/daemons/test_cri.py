"""Pods: containerd's CRI plugin, asked as a kubelet asks, with what NVIDIA's device plugin adds to a container."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.daemons.cri import Kubelet, Pod, Refused, image_archive, mounts, variable
from tests.daemons.inside import QUESTIONS, has
from tests.daemons.site import Site, image_tar, make_site
from tests.rig.needs import need
from tests.rig.process import Result, run
from tests.runtime.node import GPUS

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

UUIDS = tuple(str(gpu["uuid"]) for gpu in GPUS)
PAUSE, PROBE, CUDA = "localhost/pause:1", "localhost/probe:1", "localhost/cuda:1"
PROBING = ("/bin/probe", *QUESTIONS)
# A node's own file. No score of the OOM killer is lowered, which a machine may forbid.
CONTAINERD = f"""\
version = 2

# this node's
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
"""
MOUNTS_ONLY = """\
accept-nvidia-visible-devices-as-volume-mounts = true
accept-nvidia-visible-devices-envvar-when-unprivileged = false
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A machine with containerd's file, and with gpuhook as the manual says."""
    need("containerd", "ctr")
    site = make_site(str(tmp_path_factory.mktemp("node")))
    try:
        site.write("/etc/containerd/config.toml", CONTAINERD)
        done = site.gpuhook("install", "containerd")
        assert done.status == 0, done.stderr
        yield site
    finally:
        site.close()


@pytest.fixture(scope="module")
def kubelet(node: Site) -> Iterator[Kubelet]:
    """A connection to containerd, which has the images."""
    daemon = node.start("containerd", ready=lambda: node.run("ctr", "version").status == 0, log="containerd.log")
    kubelet = Kubelet(f"/proc/{daemon.pid}/root/run/containerd/containerd.sock", f"{node.folder}/pods")
    try:
        for archive, reference in images(node.folder):
            words = ("ctr", "-n", "k8s.io", "images", "import", "--snapshotter", "native", archive)
            done = node.run(*words)
            assert done.status == 0, done.stderr
            kubelet.wait_for_image(reference)
        yield kubelet
    finally:
        kubelet.close()


def images(folder: str) -> Iterator[tuple[str, str]]:
    """Archives: the sandbox's image, the probe, and the probe in an image that asks for every GPU, as CUDA's do."""
    tar = image_tar(folder)
    pause = f"{folder}/pause.tar"
    done = run(["tar", "-C", f"{folder}/rootfs", "-cf", pause, "./usr/bin/busybox", "./bin"])
    assert done.status == 0, done.stderr
    yield image_archive(f"{folder}/pause.img", PAUSE, pause, argv=["/bin/busybox", "sleep", "86400"]), PAUSE
    yield image_archive(f"{folder}/probe.img", PROBE, tar, argv=["/bin/sh"]), PROBE
    every = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    yield image_archive(f"{folder}/cuda.img", CUDA, tar, argv=["/bin/sh"], env=every), CUDA


@pytest.fixture
def pod(kubelet: Kubelet) -> Iterator[Pod]:
    """A pod with runtimeClassName: nvidia."""
    with kubelet.pod("nvidia") as pod:
        yield pod


@pytest.fixture
def mounts_only(node: Site) -> Iterator[None]:
    """A node that takes mounts for devices, and no unprivileged container's word."""
    path = "/etc/nvidia-container-runtime/config.toml"
    before = node.read(path)
    node.write(path, MOUNTS_ONLY + before)
    yield
    node.write(path, before)


def by_exec(pod: Pod, image: str, **fields: Any) -> Result:
    """The probe's answers as a second process of a running container."""
    container = pod.start(image, ["/bin/sleep", "600"], **fields)
    return pod.kubelet.exec(container, *PROBING)


def by_log(pod: Pod, image: str, **fields: Any) -> Result:
    """The probe's answers as the container's own process."""
    return pod.run(image, PROBING, **fields)


@pytest.mark.parametrize("asked", [by_log, by_exec])
@pytest.mark.parametrize("gpus", [(1,), (0, 2)])
def test_a_device_plugins_variable(pod: Pod, asked: Callable[..., Result], gpus: Sequence[int]) -> None:
    """The UUIDs that it allocated, and not all those that the image's own variable asks for."""
    has(asked(pod, CUDA, **variable(",".join(UUIDS[gpu] for gpu in gpus))), *gpus)


@pytest.mark.usefixtures("mounts_only")
@pytest.mark.parametrize("asked", [by_log, by_exec])
@pytest.mark.parametrize("gpus", [(1,), (0, 2)])
def test_a_device_plugins_mounts(pod: Pod, asked: Callable[..., Result], gpus: Sequence[int]) -> None:
    """/dev/null at the UUIDs' names, where the node takes those; the image's variable does not count."""
    has(asked(pod, CUDA, **mounts(*(UUIDS[gpu] for gpu in gpus))), *gpus)


def test_mounts_mean_nothing_on_a_node_that_does_not_take_them(pod: Pod) -> None:
    """That is the default."""
    has(by_log(pod, PROBE, **mounts(UUIDS[1])), cuda=False, ml=False)


@pytest.mark.usefixtures("mounts_only")
def test_an_image_that_asks_by_itself_on_a_node_that_allocates(pod: Pod) -> None:
    """Without an allocated GPU it starts, and has none."""
    has(by_log(pod, CUDA), cuda=False, ml=False)


def test_two_containers_of_a_pod(pod: Pod) -> None:
    """Each has its own GPU, one of them none."""
    running = [pod.start(PROBE, ["/bin/sleep", "600"], **fields) for fields in (
        variable(UUIDS[0]), variable(UUIDS[2]), {},
    )]  # fmt: skip
    has(pod.kubelet.exec(running[0], *PROBING), 0)
    has(pod.kubelet.exec(running[1], *PROBING), 2)
    has(pod.kubelet.exec(running[2], *PROBING), cuda=False, ml=False)


def test_the_sandbox_has_no_gpu(pod: Pod) -> None:
    """It is made by the same runtime."""
    pod.start(PROBE, ["/bin/sleep", "600"], **variable(UUIDS[0]))
    names = os.listdir(f"/proc/{pod.kubelet.sandbox_pid(pod)}/root/dev")
    assert "null" in names
    assert [name for name in names if "nvidia" in name] == []


def test_a_pod_of_another_class(kubelet: Kubelet) -> None:
    """Without the runtime nobody is called, whatever the variable says."""
    with kubelet.pod("") as pod:
        has(by_log(pod, CUDA, **variable(UUIDS[0])), cuda=False, ml=False)


def test_a_gpu_that_is_gone_is_in_the_pods_events(pod: Pod) -> None:
    """The kubelet gets our one line, with the reason; the next container of the pod starts."""
    with pytest.raises(Refused, match=r"unknown-device: .*GPU-3d000000"):
        pod.start(PROBE, ["/bin/sleep", "600"], **variable("GPU-3d000000-1111-2222-3333-000000000003"))
    has(by_log(pod, PROBE, **variable(UUIDS[1])), 1)


def test_containerd_keeps_the_nodes_own_settings(node: Site, kubelet: Kubelet) -> None:
    """What was installed stands beside them."""
    assert "# this node's" in node.read("/etc/containerd/config.toml")
    shown = node.run("containerd", "config", "dump").stdout
    assert f'sandbox_image = "{PAUSE}"' in shown
    assert 'snapshotter = "native"' in shown
    assert 'BinaryName = "/usr/local/bin/gpuhook-runtime"' in shown
