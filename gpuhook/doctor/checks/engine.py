"""Docker: which daemon answers, and whether it knows a hook or a runtime for GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuhook.doctor.engines import (
    HOOK,
    daemon_json,
    daemon_settings,
    docker_info,
    dockerds,
    files_of,
    has_docker,
    hook_for_docker,
    is_gpu_program,
    level_without,
    path_of,
    registered,
)
from gpuhook.doctor.facts import has_gpu, is_tegra, is_wsl
from gpuhook.doctor.model import Finding, Level, tell
from gpuhook.doctor.node import Node, Process, Unreadable
from gpuhook.doctor.registry import check
from gpuhook.install import docker as docker_files
from gpuhook.install import dockerd
from gpuhook.install.engine import Registered
from gpuhook.install.errors import DaemonJsonInvalid, FileProtected

INSTALL = "`gpuhook install docker --replace-nvidia`, then `systemctl restart docker`"
RESTART = "`systemctl restart docker` (running containers stop unless live-restore is on)"
# Options of dockerd and the keys of daemon.json that must not be given together with them.
OPTIONS = {
    "--add-runtime": "runtimes",
    "--default-runtime": "default-runtime",
    "--exec-opt": "exec-opts",
    "--host": "hosts",
    "-H": "hosts",
    "--data-root": "data-root",
    "--storage-driver": "storage-driver",
}
NO_RUNTIME = ("-hook", "-toolkit", "-ctk")  # ends of names of programs that are no OCI runtimes


@check("docker-desktop", family="engine")
def desktop(node: Node) -> Iterator[Finding]:
    """The `docker` command does not talk to Docker Desktop's virtual machine (on Windows that one has the GPU)."""
    if is_wsl(node):
        return
    said = node.run("docker", "context", "show", seconds=2.0)
    context = said[1].strip() if said and said[0] == 0 else ""
    system = ""
    if context != "desktop-linux" and said:
        try:
            system = str(docker_info(node).get("OperatingSystem", ""))
        except Unreadable:
            system = ""
    if context == "desktop-linux" or system == "Docker Desktop":
        yield tell(
            "docker-desktop",
            "failure",
            "the docker command talks to Docker Desktop, whose virtual machine has no GPU",
            ("docker context show", context or "default", "default"),
            advice="use Docker Engine: `docker context use default` (install docker-ce if it is not there)",
        )


@check("snap-docker", family="engine")
def snap(node: Node) -> Iterator[Finding]:
    """Docker is not the snap's."""
    daemons = [daemon for daemon in dockerds(node) if daemon.exe.startswith("/snap/")]
    others = [daemon for daemon in dockerds(node) if not daemon.exe.startswith("/snap/")]
    if not daemons and not node.exists(docker_files.SNAP):
        return
    here = (f"/proc/{daemons[0].pid}/exe", daemons[0].exe) if daemons else (docker_files.SNAP,)
    both = bool(others) or bool(node.which("dockerd"))
    yield tell(
        "snap-docker",
        "warning" if both else "failure",
        "there are two Dockers, one of them from a snap"
        if both
        else "this is Docker from a snap: it reads neither /etc/docker/daemon.json nor the host's programs",
        here,
        advice="install docker-ce or docker.io, then `snap remove docker`; or use the snap's own NVIDIA support",
    )


@check("daemon-json-invalid", family="engine")
def daemon_json_valid(node: Node) -> Iterator[Finding]:
    """daemon.json is what dockerd can read, and nothing in it is also an option of the daemon."""
    path = daemon_json(node)
    if not has_docker(node) and not node.exists(path):
        return
    text = node.read(path, "")
    try:
        found = docker_files.registered(files_of(node), path)
    except FileProtected as error:
        raise Unreadable(error.text) from error
    except DaemonJsonInvalid as error:
        yield _broken(text, path, error)
        return
    faults: list[Finding] = [*_repeated(node, path), *_no_runtimes(found)]
    if text.startswith(docker_files.BOM):
        faults.append(
            tell(
                "daemon-json-invalid",
                "warning",
                f"{path} begins with a byte order mark, which only recent versions of Docker read",
                (f"{path}:1:1",),
                advice="save the file as UTF-8 without a byte order mark",
            )
        )
    yield from faults
    if text.strip() and not faults:
        yield tell("daemon-json-invalid", "ok", f"{path} is valid")


def _broken(text: str, path: str, error: DaemonJsonInvalid) -> Finding:
    """The line at fault, as it is, and what follows from it."""
    place = re.search(r":(\d+):\d+$", error.where)
    line = text.splitlines()[int(place[1]) - 1].strip() if place and int(place[1]) <= len(text.splitlines()) else ""
    what = f"correct line {place[1]} of {path}" if place else f"correct {path}"
    return tell(
        "daemon-json-invalid",
        "failure",
        error.text,
        (error.where, line),
        advice=f"{what}, then `systemctl restart docker`: dockerd does not start with it as it is",
    )


def _repeated(node: Node, path: str) -> Iterator[Finding]:
    keys = daemon_settings(node)
    seen = set()
    for file, number, line in dockerd.option_lines(files_of(node)):
        for option, key in OPTIONS.items():
            if key not in keys or key in seen or not re.search(rf"(?<![\w-]){re.escape(option)}(?=[= ])", line):
                continue
            seen.add(key)
            yield tell(
                "daemon-json-invalid",
                "failure",
                f"dockerd gets {option} as an option and {key} in {path}: it refuses to start",
                (f"{file}:{number}", line.strip()),
                (path, key),
                advice=f"remove {option} there (an override of the unit), then `systemctl daemon-reload` and "
                "`systemctl restart docker`",
            )


def _no_runtimes(found: list[Registered]) -> Iterator[Finding]:
    for one in found:
        if one.program.endswith(NO_RUNTIME) or one.program.endswith("/gpuhook"):
            yield tell(
                "daemon-json-invalid",
                "failure",
                f"the runtime {one.name} is {one.program}, which is a hook and no OCI runtime",
                (one.where, one.program, "a runtime such as /usr/local/bin/gpuhook-runtime"),
                advice=INSTALL,
            )


@check("engine-no-gpu-driver", family="engine")
def gpus_option(node: Node) -> Iterator[Finding]:
    """Dockerd finds the program that it looks for when `--gpus` is given."""
    if not has_docker(node) or not has_gpu(node) or is_tegra(node) or _is_snap(node):
        return
    daemon = next(iter(dockerds(node)), None)
    path, hook = path_of(daemon), hook_for_docker(node)
    who = f"dockerd (pid {daemon.pid})" if daemon else "dockerd"
    if not hook:
        runtimes = registered(node, "docker")
        level: Level = "warning" if runtimes else level_without(node, "docker")
        yield tell(
            "engine-no-gpu-driver",
            level,
            f"{who} finds no {HOOK}, which it needs for `docker run --gpus`",
            (f"PATH of {who}", path),
            advice=(INSTALL, *([f"or start containers with --runtime={runtimes[0].name}"] if runtimes else [])),
        )
    elif daemon and _changed_since(node, hook, daemon):
        yield tell(
            "engine-no-gpu-driver",
            "failure",
            f"{hook} was installed after dockerd was started, which looks for it only then",
            (hook, _day(node, hook)),
            advice=RESTART,
        )
    else:
        yield tell("engine-no-gpu-driver", "ok", f"dockerd finds {hook}")


def _is_snap(node: Node) -> bool:
    return any(daemon.exe.startswith("/snap/") for daemon in dockerds(node))


def _changed_since(node: Node, path: str, daemon: Process) -> bool:
    status = node.status(path)
    return bool(status and daemon.started and status.st_mtime > daemon.started + 1)


def _day(node: Node, path: str) -> str:
    import time

    status = node.status(path)
    return time.strftime("changed %Y-%m-%d %H:%M:%S UTC", time.gmtime(status.st_mtime)) if status else ""


@check("runtime-not-registered", family="engine")
def docker_runtime(node: Node) -> Iterator[Finding]:
    """The GPU runtime of daemon.json is known to the daemon that runs."""
    if not has_docker(node) or not has_gpu(node) or _is_snap(node):
        return
    path, files = daemon_json(node), registered(node, "docker")
    daemon = next(iter(dockerds(node)), None)
    if not files:
        if not _is_broken(node, path):  # which the check before tells
            yield _nowhere(node, path)
        return
    live = docker_info(node).get("Runtimes")
    missing = [one.name for one in files if isinstance(live, dict) and live and one.name not in live]
    stale = daemon is not None and _changed_since(node, path, daemon)
    if missing and stale:
        yield tell(
            "runtime-not-registered",
            "failure",
            f"{path} has the runtime {missing[0]}, and the running dockerd was not restarted after that change",
            (path, _day(node, path)),
            advice=RESTART,
        )
    elif missing:
        yield tell(
            "runtime-not-registered",
            "failure",
            f"{path} has the runtime {missing[0]}, and the daemon that answers does not know it",
            ("docker info", ", ".join(map(str, live)) if isinstance(live, dict) else ""),
            advice="another daemon answers (DOCKER_HOST, `docker context show`, sudo or not), or "
            "`systemctl restart docker` is missing",
        )
    else:
        who = "Docker knows" if live else f"{path} has"
        yield tell("runtime-not-registered", "ok", f"{who} the runtime {files[0].name} ({files[0].program})")


def _is_broken(node: Node, path: str) -> bool:
    try:
        docker_files.registered(files_of(node), path)
    except DaemonJsonInvalid:
        return True
    return False


def _nowhere(node: Node, path: str) -> Finding:
    live = docker_info(node).get("Runtimes") if dockerds(node) else None
    options = [line for _, _, line in dockerd.option_lines(files_of(node)) if "--add-runtime" in line]
    if isinstance(live, dict) and any(_is_gpu(one) for one in live.values()):
        where = "options of dockerd" if options else "another file"
        return tell("runtime-not-registered", "ok", f"Docker knows a GPU runtime, from {where}")
    level: Level = "note" if hook_for_docker(node) else level_without(node, "docker")
    return tell(
        "runtime-not-registered",
        level,
        "Docker has no GPU runtime: `docker run --runtime nvidia` and Compose's `runtime: nvidia` do not work",
        (path, "absent" if not node.exists(path) else "no such runtime", "runtimes.nvidia"),
        advice=INSTALL,
    )


def _is_gpu(entry: object) -> bool:
    return isinstance(entry, dict) and is_gpu_program(str(entry.get("path", "")))
