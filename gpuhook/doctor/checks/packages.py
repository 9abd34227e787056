"""Programs of different versions, other tools around Docker, and what changed of late."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from gpuhook.doctor.engines import (
    HOOK,
    cgroup_version,
    daemon_settings,
    docker_info,
    dockerds,
    has_docker,
    version_of,
)
from gpuhook.doctor.facts import driver_runs, has_gpu, module_version
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import PATH, Node, Unreadable
from gpuhook.doctor.registry import check
from gpuhook.launchers import MARK

CLI = "nvidia-container-cli"
KNOWS_CGROUP2 = (1, 8)
KNOWS_DEVICES = (1, 28)  # the first docker-compose with device reservations
DAYS = 14
MOST = 6  # changes that are listed
NAMES = re.compile(r"nvidia|docker|containerd|\brunc\b|\bcrun\b|podman|cri-o|linux-image|\bkernel\b|gpuhook")
LOGS = ("/var/log/dpkg.log", "/var/log/dnf.rpm.log", "/var/log/pacman.log", "/var/log/zypp/history")
DATE = re.compile(r"(\d{4}-\d{2}-\d{2})")
STATE = re.compile(r" (?:status|trigproc|configure) ")  # of dpkg: what follows from a change
DONE = re.compile(r"\b(?:install|upgrade|remove|purge|installed|upgraded|removed|Installed|Upgraded?|Erased?)\b")


def _cli_versions(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of nvidia-container-cli and of its library; () where they are not known."""
    said = node.run(CLI, "-V")
    lines = dict(line.split(":", 1) for line in said[1].splitlines() if ":" in line) if said else {}
    return version_of(lines.get("cli-version", "")), version_of(lines.get("lib-version", ""))


def _ours(node: Node, path: str) -> bool:
    try:
        return MARK in node.read(path, "")[:4096]
    except Unreadable:
        return False


@check("cgroupv2-old-lib", family="packages")
def old_library(node: Node) -> Iterator[Finding]:
    """nvidia-container-cli knows the node's kind of cgroups."""
    version, _ = _cli_versions(node)
    if version and version < KNOWS_CGROUP2 and cgroup_version(node) == 2:
        text = ".".join(map(str, version))
        yield tell(
            "cgroupv2-old-lib",
            "failure",
            f"{CLI} {text} is older than cgroup v2, which this host has",
            (f"{CLI} -V", text, "1.8 or later"),
            ("/sys/fs/cgroup/cgroup.controllers",),
            advice='upgrade it, or `backend = "embedded"` under [gpuhook] of config.toml',
        )


@check("package-skew", family="packages")
def skew(node: Node) -> Iterator[Finding]:
    """The parts of NVIDIA's toolkit are of one version and there once."""
    cli, library = _cli_versions(node)
    said = node.run(CLI, "-V")
    if said and "error while loading shared libraries" in said[2]:
        yield tell(
            "package-skew",
            "failure",
            f"{CLI} cannot start: {said[2].strip().splitlines()[0]}",
            (f"{CLI} -V",),
            advice="install libnvidia-container1 of the same version",
        )
    hook = node.run(HOOK, "--version") or node.run(HOOK, "-version")
    hook_version = version_of(hook[1]) if hook and not _ours(node, node.which(HOOK)) else ()
    for name, other, digits in (("libnvidia-container", library, 3), (HOOK, hook_version, 2)):
        if cli and other and cli[:digits] != other[:digits]:
            first, second = (".".join(map(str, version)) for version in (cli, other))
            yield tell(
                "package-skew",
                "warning",
                f"{CLI} {first} and {name} {second} are of different versions",
                (f"{CLI} -V", first),
                (name, second, first),
                advice="install one version of both from one repository, and pin that repository",
            )
    yield from _twice(node)


def _twice(node: Node) -> Iterator[Finding]:
    for name in (CLI, HOOK):
        places = {node.place(path): path for folder in PATH if node.exists(path := f"{folder}/{name}")}
        theirs = [path for path in places.values() if not _ours(node, path)]
        if len(theirs) > 1:
            yield tell(
                "package-skew",
                "warning",
                f"{name} is installed {len(theirs)} times; which one counts depends on who looks",
                *((path,) for path in theirs),
                advice="remove all but one",
            )


@check("gvisor-driver", family="packages")
def gvisor(node: Node) -> Iterator[Finding]:
    """The driver is one that gVisor supports, where that is one of Docker's runtimes."""
    runtimes = daemon_settings(node).get("runtimes")
    names = [str(entry.get("path", "")) for entry in runtimes.values()] if isinstance(runtimes, dict) else []
    version = module_version(node)
    if not driver_runs(node) or not (any("runsc" in name for name in names) or node.which("runsc")):
        return
    said = node.run("runsc", "nvproxy", "list-supported-drivers")
    known = said[1].split() if said and said[0] == 0 else []
    if known and version not in known:
        near = [one for one in known if one.partition(".")[0] == version.partition(".")[0]] or known[-3:]
        yield tell(
            "gvisor-driver",
            "warning",
            f"gVisor (runsc) does not support the driver {version}",
            ("runsc nvproxy list-supported-drivers", ", ".join(near), version),
            advice=f"update runsc, or install one of these drivers: {', '.join(near)}",
        )


@check("compose-syntax", family="packages")
def compose(node: Node) -> Iterator[Finding]:
    """Compose knows device reservations."""
    said = node.run("docker-compose", "version", "--short", seconds=2.0)
    version = version_of(said[1]) if said else ()
    if version and version < KNOWS_DEVICES:
        text = ".".join(map(str, version))
        yield tell(
            "compose-syntax",
            "warning",
            f"docker-compose {text} does not know `deploy.resources.reservations.devices`",
            ("docker-compose version --short", text, "1.28 or 2"),
            advice="use `docker compose` (version 2), or `runtime: nvidia` with NVIDIA_VISIBLE_DEVICES",
        )


@check("build-no-gpu", family="packages")
def builds(node: Node) -> Iterator[Finding]:
    """Nobody relies on the default runtime for builds, which BuildKit does not use."""
    default = str(daemon_settings(node).get("default-runtime", ""))
    if not dockerds(node) or default in ("", "runc", "crun"):
        return
    version = version_of(str(docker_info(node).get("ServerVersion", "")))
    if version and version >= (23,):
        yield tell(
            "build-no-gpu",
            "note",
            f"the default runtime is {default}, but `docker build` uses BuildKit, which does not consult it",
            ("docker info: ServerVersion", ".".join(map(str, version))),
            advice="compile without a GPU (nvcc needs none), or DOCKER_BUILDKIT=0 for a build that must have one",
        )


@check("nvidia-docker-cmd", family="packages")
def wrapper(node: Node) -> Iterator[Finding]:
    """Whoever sets NV_GPU has the wrapper that reads it."""
    if node.which("nvidia-docker") or not has_docker(node):
        return
    for path in ("/etc/environment", "/etc/profile", "/etc/bash.bashrc", *node.glob("/etc/profile.d", "*.sh")):
        for number, line in enumerate(node.lines(path), 1):
            if re.match(r"\s*(export\s+)?NV_GPU=", line) or re.search(r"\bnvidia-docker\s+run\b", line):
                yield tell(
                    "nvidia-docker-cmd",
                    "warning",
                    "NV_GPU or nvidia-docker is used here, and there is no nvidia-docker to read it",
                    (f"{path}:{number}", line.strip()),
                    advice=(
                        "`gpuhook launchers /usr/local/bin` writes gpuhook-docker; link nvidia-docker to it",
                        "or `docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=…`",
                    ),
                )
                return


@check("upgrade-regression", family="packages", after_fault=True)
def recent_changes(node: Node) -> Iterator[Finding]:
    """What packages changed in the last days: printed with every run that found a fault."""
    changes = [change for path in LOGS for change in _changes(node, path)]
    if has_gpu(node) and changes:
        shown = sorted(changes, reverse=True)[:MOST]
        more = f" (the newest {len(shown)} are shown)" if len(changes) > len(shown) else ""
        yield tell(
            "upgrade-regression",
            "note",
            f"changed in the last {DAYS} days, of what takes part: {len(changes)}{more}",
            *((where, text) for _, where, text in shown),
            advice="if it worked before, go back to the version before, and hold the package there",
        )


def _changes(node: Node, path: str) -> Iterator[tuple[str, str, str]]:
    since = time.strftime("%Y-%m-%d", time.gmtime(node.now() - DAYS * 86400))
    for number, line in enumerate(node.lines(path), 1):
        date = DATE.search(line)
        if date and date[1] >= since and NAMES.search(line) and DONE.search(line) and not STATE.search(line):
            yield date[1], f"{path}:{number}", line[:100]
