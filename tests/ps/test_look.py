"""Who uses what on made-up nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.ps.container import variable
from gpuhook.ps.look import look
from gpuhook.ps.model import Access, Container
from tests.ps.test_owner import FLAT, ID, OTHER, SLICE, UID
from tests.ps.tree import DEV, Tree, bind

DOCKER = f"/docker/{ID}"
ASKS = "A=1\0NVIDIA_VISIBLE_DEVICES=all\0B=2\0"
INSPECT = f"docker inspect --type container {ID}"


def container(tree: Tree) -> Container:
    (found,) = tree.look().containers
    return found


def test_an_empty_node(tree: Tree) -> None:
    """Processes without anything of the driver are nobody's business."""
    tree.process(1, fds=("/dev/null", "socket:[1]", "/home/nvidia/x"))
    tree.process(9, DOCKER, env="NVIDIA_VISIBLE_DEVICES=void\0")
    found = tree.look()
    assert (found.gpus, found.containers, found.processes, found.unseen) == ([], [], [], [])


def test_gpus_are_named(tree: Tree) -> None:
    """From the driver's own files, in the order of their addresses."""
    tree.gpu(1, "0000:3b:00.0")
    tree.gpu(0, "0000:5e:00.0")
    found = tree.look().gpus
    assert [(one.node, one.uuid, one.bus_id) for one in found] == [
        ("/dev/nvidia1", "GPU-00000001", "0000:3b:00.0"),
        ("/dev/nvidia0", "GPU-00000000", "0000:5e:00.0"),
    ]
    assert found[0].model == "NVIDIA A100"


def test_a_container_of_this_hook(tree: Tree) -> None:
    """Nodes that were mounted, what was asked for, who has them open, whose it is."""
    tree.process(40, DOCKER, started=70, fds=("/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm"))
    tree.process(50, DOCKER, started=60, env=ASKS, mounts=DEV + bind("nvidia2") + bind("nvidiactl"))
    tree.rules(DOCKER, "c 1:3 rwm\nc 195:2 rw\n")
    tree.says(INSPECT, [{"Id": ID, "Name": "/web", "Config": {"Image": "cuda:12", "Labels": {}}}])
    usage = tree.look()
    assert usage.containers == [
        Container(
            engine="docker", id=ID, name="web", image="cuda:12", pid=50, asked="all", processes=[40],
            may_use=[Access(node="/dev/nvidia2", path="/dev/nvidia2", allowed=True)],
        )
    ]  # fmt: skip
    (process,) = usage.processes
    assert (process.pid, process.container, process.command) == (40, ID, "python train.py")
    assert process.open == ["nvidia2", "nvidia-uvm", "nvidiactl"]
    assert process.gpus == ["/dev/nvidia2"]
    assert usage.unseen == []


def test_nodes_that_a_runtime_made(tree: Tree) -> None:
    """`--device` and device plugins: they stand in the container's own /dev and in no mount table."""
    tree.process(50, DOCKER, mounts=DEV, nodes=("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "null"))
    assert [access.node for access in container(tree).may_use] == ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia10"]


@pytest.mark.parametrize("mounts", ["", "90 80 0:50 / /dev rw - fuse.hostile x rw\n"])
def test_a_folder_of_the_container_is_not_looked_into(tree: Tree, mounts: str) -> None:
    """Only memory filesystems are: any other one could be the container's own program."""
    tree.process(50, DOCKER, mounts=mounts, nodes=("nvidia0",))
    assert tree.look().containers == []


def test_a_link_in_place_of_dev_is_not_followed(tree: Tree) -> None:
    """It would lead to the host's nodes."""
    tree.process(50, DOCKER, mounts=DEV)
    tree.write("proc/1/root/dev/nvidia0")
    tree.link("proc/50/root/dev", "../../1/root/dev")
    assert tree.look().containers == []


def test_a_node_under_another_name(tree: Tree) -> None:
    """The host's node counts, and what the container calls it is told."""
    tree.process(50, DOCKER, mounts=DEV + bind("nvidia3", "/dev/nvidia0"))
    (access,) = container(tree).may_use
    assert (access.node, access.path) == ("/dev/nvidia3", "/dev/nvidia0")


@pytest.mark.parametrize(
    ("rules", "lost"),
    [
        ("c 1:3 rwm\n", ["/dev/nvidia0", "/dev/nvidia1"]),
        ("c 195:0 rw\n", ["/dev/nvidia1"]),
        ("c 195:* rwm\n", []),
        ("a *:* rwm\n", []),
        ("c 195:0 r\nc 195:0 w\nc 195:1 m\n", ["/dev/nvidia0", "/dev/nvidia1"]),
        ("b 195:* rwm\nnonsense\n", ["/dev/nvidia0", "/dev/nvidia1"]),
    ],
)
def test_lost_devices(tree: Tree, rules: str, lost: list[str]) -> None:
    """After a reload of systemd the nodes are still there, and the device rules are new ones without them."""
    tree.process(50, DOCKER, mounts=DEV + bind("nvidia0") + bind("nvidia1"))
    tree.rules(DOCKER, rules)
    assert container(tree).lost == lost


def test_rules_that_cannot_be_seen(tree: Tree) -> None:
    """Nothing is called lost, and it is said that the rules were not seen."""
    tree.process(50, DOCKER, mounts=DEV + bind("nvidia0"))
    usage = tree.look()
    assert (usage.containers[0].may_use[0].allowed, usage.containers[0].lost) == (None, [])
    assert any(text.startswith("device rules of 1 process") for text in usage.unseen)


def test_it_asked_and_has_nothing(tree: Tree) -> None:
    """A container whose hook did not run is listed."""
    tree.process(50, DOCKER, mounts=DEV, env=ASKS)
    assert (container(tree).asked, container(tree).may_use) == ("all", [])


def test_processes_outside_of_containers(tree: Tree) -> None:
    """They are listed with their user; a kernel's or zombie's empty command line shows the name."""
    tree.process(
        7, "/user.slice/session-1.scope", fds=("/run/nvidia/driver/dev/nvidia0", "/dev/nvidia1 (deleted)"), command=""
    )
    (process,) = tree.look().processes
    assert (process.container, process.command, process.gpus) == ("", "[name]", ["/dev/nvidia0", "/dev/nvidia1"])


def test_a_pod_of_containerd(tree: Tree) -> None:
    """Names come from the specification that containerd keeps; without it the pod's uid is told."""
    tree.process(50, f"{SLICE}/cri-containerd-{ID}.scope", mounts=bind("nvidia0"))
    tree.process(51, f"/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{OTHER}.scope", mounts=bind("nvidia1"))
    tree.write(
        f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json",
        '{"annotations": {"io.kubernetes.cri.container-name": "train", "io.kubernetes.cri.image-name": "cuda:12",'
        ' "io.kubernetes.cri.sandbox-name": "job-1", "io.kubernetes.cri.sandbox-namespace": "ml"}}',
    )
    found = {one.id: one for one in tree.look().containers}
    assert (found[ID].name, found[ID].image, found[ID].pod) == ("train", "cuda:12", "ml/job-1")
    assert (found[OTHER].name, found[OTHER].pod) == ("", UID)


def test_a_pod_of_crio(tree: Tree) -> None:
    """Its names are in its own copy of the specification."""
    tree.process(50, f"{SLICE}/crio-{ID}.scope", mounts=bind("nvidia0"))
    tree.write(
        f"run/containers/storage/overlay-containers/{ID}/userdata/config.json",
        '{"annotations": {"io.kubernetes.container.name": "c", "io.kubernetes.pod.name": "p",'
        ' "io.kubernetes.pod.namespace": "n"}}',
    )
    found = container(tree)
    assert (found.engine, found.name, found.pod) == ("cri-o", "c", "n/p")


def test_docker_under_another_cgroup_parent(tree: Tree) -> None:
    """Docker's namespace in containerd tells whose it is."""
    tree.process(50, f"/mine/{ID}", mounts=bind("nvidia0"))
    tree.write(f"run/containerd/io.containerd.runtime.v2.task/moby/{ID}/config.json", "{}")
    tree.says(INSPECT, [{"Id": ID, "Name": "/web", "Config": {"Image": "i"}}])
    assert (container(tree).engine, container(tree).name) == ("docker", "web")


def test_podman(tree: Tree) -> None:
    """Names and pods by `podman ps`."""
    tree.process(50, f"/machine.slice/libpod-{ID}.scope", mounts=bind("nvidia0"))
    rows = [{"Id": ID, "Names": ["box"], "Image": "i", "PodName": "p"}, {"Id": OTHER, "Names": None}]
    tree.says("podman ps --all --no-trunc --format json", rows)
    found = container(tree)
    assert (found.engine, found.name, found.image, found.pod) == ("podman", "box", "i", "p")


@pytest.mark.parametrize(
    ("path", "command"),
    [(DOCKER, INSPECT), (f"/x/libpod-{ID}", "podman ps --all --no-trunc --format json")],
)
@pytest.mark.parametrize(
    "rows", ["nonsense", {}, [], [1, None, {"Id": 1, "Config": 3, "Names": {}, "Name": []}], None]
)
def test_engines_that_answer_nonsense(tree: Tree, path: str, command: str, rows: object) -> None:
    """The container is listed by its id, and that its name is unknown is said."""
    tree.process(50, path, mounts=bind("nvidia0"))
    if rows is not None:
        tree.says(command, rows, 1, "Cannot connect to the daemon")
    usage = tree.look()
    assert (usage.containers[0].id, usage.containers[0].name) == (ID, "")
    assert any(text.startswith("names of ") for text in usage.unseen)


def test_a_container_of_nobody_we_know(tree: Tree) -> None:
    """Another mount namespace with mounted GPUs: a bare runtime's."""
    tree.process(50, "/rig/c1", mounts=DEV + bind("nvidia0"), space="mnt:[2]")
    tree.process(51, "/rig/c1", mounts=DEV + bind("nvidia0"), space="mnt:[2]", fds=("/dev/nvidia0",))
    tree.process(52, "/system.slice/x.service", mounts=DEV, space="mnt:[3]")
    found = container(tree)
    assert (found.engine, found.id, found.pid, found.processes) == ("unknown", "c1", 50, [51])


@pytest.mark.parametrize(
    ("environ", "value"),
    [("", None), ("A=1\0", None), ("NVIDIA_VISIBLE_DEVICES=\0", ""), (ASKS + "NVIDIA_VISIBLE_DEVICES=0", "0")],
)
def test_the_variable(environ: str, value: str | None) -> None:
    """The last one counts, as for the hook."""
    assert variable(environ) == value


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's eyes need root")
def test_without_root(tree: Tree, tmp_path: Path) -> None:
    """What is readable is told, what is not is counted."""
    tree.process(50, DOCKER, fds=("/dev/nvidia0",), env=ASKS, mounts=bind("nvidia0"))
    tree.process(51, DOCKER, fds=("/dev/nvidia0",), env=ASKS, mounts=bind("nvidia0"))
    node = tree.node()
    for pid in (50, 51):
        for name in ("environ", "mountinfo"):
            (tree.root / f"proc/{pid}/{name}").chmod(0o400)
    (tree.root / "proc/50/fd").chmod(0o500)
    places = [place for place in (tmp_path, *tmp_path.parents) if place.stat().st_mode & 0o001 == 0]
    modes = {place: place.stat().st_mode for place in places}
    for place in places:
        place.chmod(0o755)
    os.seteuid(65534)
    try:
        usage = look(node)
    finally:
        os.seteuid(0)
        for place, mode in modes.items():
            place.chmod(mode)
    (found,) = usage.containers
    assert (found.asked, found.may_use, found.processes) == (None, [], [51])
    assert {text.removesuffix(" (root may)") for text in usage.unseen if "process" in text} == {
        "environment of 1 process", "mounts of 1 process", "open files of 1 process",
    }  # fmt: skip
