"""What the engines of a node say of themselves: their daemons, their files, and what they know of GPUs."""

from __future__ import annotations

import json
import os
import re

from gpuhook.doctor.model import Level
from gpuhook.doctor.node import PATH, Node, Process, Unreadable
from gpuhook.errors import GpuhookError
from gpuhook.explain.engines import reason
from gpuhook.install import docker as docker_files
from gpuhook.install import dockerd
from gpuhook.install.engine import Registered
from gpuhook.install.engines import ENGINES
from gpuhook.install.errors import FileProtected
from gpuhook.install.host import Host

INFO = ("docker", "info", "--format", "{{json .}}")
PATIENCE = 2.0  # seconds for Docker's answer
HOOK = "nvidia-container-runtime-hook"
OLD_HOOK = "nvidia-container-toolkit"
GPU_PROGRAMS = ("nvidia-container-runtime", OLD_HOOK, "gpuhook")
KUBELETS = ("kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "kubelite")
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
# Where the files of each engine lie: looked at first, since a folder that cannot be listed must not count as empty.
FOLDERS = {
    "docker": ("/etc/docker", "/etc/default", "/etc/systemd/system/docker.service.d"),
    "containerd": ("/etc/containerd", "/etc/containerd/conf.d"),
    "podman": ("/etc/containers", "/etc/containers/containers.conf.d", "/etc/containers/oci/hooks.d"),
    "crio": ("/etc/crio", "/etc/crio/crio.conf.d", "/etc/containers/oci/hooks.d"),
}


def files_of(node: Node) -> Host:
    """The node as gpuhook.install knows machines."""
    return Host(root=node.root)


def dockerds(node: Node) -> list[Process]:
    """The Docker daemons that run, those of root first."""
    return sorted(node.processes("dockerd"), key=lambda daemon: daemon.uid)


def kubelets(node: Node) -> list[Process]:
    """The kubelets that run, or the programs of which they are a part."""
    return node.processes(*KUBELETS)


def has_docker(node: Node) -> bool:
    """Whether there is a Docker daemon, running or not."""
    return bool(dockerds(node)) or bool(node.which("dockerd"))


def docker_info(node: Node) -> dict[str, object]:
    """What the daemon that the `docker` command talks to says of itself, {} where none answers.

    Raises Unreadable where one runs and does not let us ask, or does not answer.
    """
    said = node.run(*INFO, seconds=PATIENCE)
    found = _object(said[1]) if said else {}
    if found.get("ServerVersion"):
        return found
    if not dockerds(node):
        return {}
    errors = found.get("ServerErrors")
    if said is None:
        why = f"no answer within {PATIENCE:g} s" if node.which("docker") else "there is no docker command"
    else:
        why = str(errors[0]) if isinstance(errors, list) and errors else reason(said[2])
    raise Unreadable(f"docker info: {why}")


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def daemon_json(node: Node) -> str:
    """The path of the file that the running dockerd reads, or that one would read which is started."""
    for daemon in dockerds(node):
        if path := daemon.option("--config-file"):
            return path
        if daemon.exe.startswith("/snap/"):
            return docker_files.SNAP
    return dockerd.config_path(files_of(node))


def daemon_settings(node: Node) -> dict[str, object]:
    """daemon.json as a table, {} where it is absent or broken. Raises Unreadable."""
    return _object(node.read(daemon_json(node), "").removeprefix(docker_files.BOM))


def registered(node: Node, engine: str) -> list[Registered]:
    """The GPU runtimes and hooks in an engine's files; none where they are broken. Raises Unreadable."""
    for folder in FOLDERS[engine]:
        node.listdir(folder)
    if engine in ("podman", "crio"):
        from gpuhook.doctor.hookfiles import in_effect

        hooks = [Registered(where=one.path, name="hook", program=one.program) for one in in_effect(node, engine)]
    else:
        hooks = []
    try:
        found = _registered(node, engine)
    except FileProtected as error:
        raise Unreadable(error.text) from error
    except GpuhookError:
        found = []
    return [one for one in (*hooks, *found) if one.name != "hook" and is_gpu_program(one.program)] + [
        one for one in hooks if is_gpu_program(one.program)
    ]


def _registered(node: Node, engine: str) -> list[Registered]:
    host = files_of(node)
    if engine == "docker":
        return docker_files.registered(host, daemon_json(node))
    if engine == "podman":
        from gpuhook.doctor.hookfiles import podman_runtimes

        return podman_runtimes(host)
    if engine == "crio":
        from gpuhook.doctor.hookfiles import crio_runtimes

        return crio_runtimes(host)
    found: list[Registered] = ENGINES[engine].registered(host)
    return found


def is_gpu_program(path: str) -> bool:
    """Whether a program is a GPU runtime or hook, ours or NVIDIA's, by its name."""
    return os.path.basename(path).startswith(GPU_PROGRAMS)


def on_path(node: Node, name: str, path: str = ":".join(PATH)) -> str:
    """The program of this name in the folders of a PATH, or ""."""
    return next(
        (place for folder in path.split(":") if folder and node.exists(place := f"{folder.rstrip('/')}/{name}")), ""
    )


def path_of(daemon: Process | None) -> str:
    """The PATH of a daemon; the usual one where none runs. Raises Unreadable where it is not ours to see."""
    if daemon is None:
        return ":".join(PATH)
    if daemon.environ is None:
        raise Unreadable(f"cannot read /proc/{daemon.pid}/environ: it takes root")
    return daemon.environ.get("PATH", ":".join(PATH))


def hook_for_docker(node: Node) -> str:
    """The program that dockerd finds for `--gpus`, or "". Raises Unreadable."""
    path = path_of(next(iter(dockerds(node)), None))
    return on_path(node, HOOK, path) or on_path(node, "nvidia-cdi-hook", path)


def cdi_files(node: Node) -> list[str]:
    """The CDI specifications about NVIDIA's devices; those of the later folder win. Raises Unreadable."""
    paths = [path for folder in ("/etc/cdi", "/var/run/cdi") for path in node.glob(folder, "*")]
    return [path for path in paths if path.endswith((".json", ".yaml", ".yml")) and "nvidia.com/" in node.read(path)]


def serves_gpus(node: Node, engine: str) -> bool:
    """Whether an engine knows a way to GPUs: a runtime, a hook, or for Docker the program for `--gpus`."""
    if engine == "docker" and has_docker(node) and _quietly(hook_for_docker, node):
        return True
    return bool(present(node, engine) and registered(node, engine))


def _quietly(ask: object, node: Node) -> str:
    try:
        return str(ask(node)) if callable(ask) else ""
    except Unreadable:
        return ""


def present(node: Node, engine: str) -> bool:
    """Whether an engine is on this node."""
    if engine == "docker":
        return has_docker(node)
    if engine == "containerd":
        return bool(kubelets(node)) and not endpoint(node).endswith(("crio.sock", "cri-dockerd.sock"))
    return bool(node.which(engine))


def level_without(node: Node, engine: str) -> Level:
    """How bad it is that this engine knows no GPU: a failure, unless another one of the node does."""
    others = (other for other in ENGINES if other != engine)
    if any(serves_gpus(node, other) for other in others):
        return "warning" if engine == "docker" and dockerds(node) else "note"
    return "failure"


def endpoint(node: Node) -> str:
    """The socket of the runtime that the kubelet uses, "" where it is not said."""
    for process in kubelets(node):
        if found := process.option("--container-runtime-endpoint"):
            return found.removeprefix("unix://")
        path = process.option("--config") or KUBELET_CONFIG
        if line := yaml_value(node.read(path, ""), "containerRuntimeEndpoint"):
            return line.removeprefix("unix://")
    return ""


def kubelet_setting(node: Node, key: str) -> str:
    """A plain value of the kubelet's configuration file, "" where it is not said."""
    paths = [process.option("--config") for process in kubelets(node)]
    return yaml_value(node.read(next((path for path in paths if path), KUBELET_CONFIG), ""), key)


def yaml_value(text: str, key: str) -> str:
    """The value of a top-level key with a plain value of a YAML text."""
    found = re.search(rf"^{key}:\s*[\"']?([^\"'\n#]+)", text, re.MULTILINE)
    return found[1].strip() if found else ""


def cgroup_version(node: Node) -> int:
    """2 for the unified hierarchy, 1 for everything else."""
    return 2 if node.exists("/sys/fs/cgroup/cgroup.controllers") else 1


def has_systemd(node: Node) -> bool:
    """Whether systemd runs this node (sd_booted(3))."""
    return node.exists("/run/systemd/system")


def version_of(text: str) -> tuple[int, ...]:
    """The first version number in a text, as numbers; () for none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in found.groups() if part) if found else ()
