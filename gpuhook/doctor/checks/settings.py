"""config.toml: whether it can be read, means what it says, and is safe."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuhook.doctor.engines import (
    HOOK,
    daemon_json,
    daemon_settings,
    dockerds,
    has_docker,
    registered,
    version_of,
)
from gpuhook.doctor.facts import config_path, place_of, settings_of
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node
from gpuhook.doctor.registry import check
from gpuhook.install.engines import ENGINES
from gpuhook.settings.decide import decide
from gpuhook.settings.values import Settings

VARIABLES = ("NVIDIA_CTK_CONFIG_FILE_PATH", "XDG_CONFIG_HOME")
NOT_READ = "/etc/nvidia-container-toolkit/config.toml"
LDCONFIGS = ("/sbin/ldconfig.real", "/usr/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig")
ELF = "\x7fELF"
ADVISORIES = (  # NVIDIA's security bulletins: the first release without the fault, and the fault
    ((1, 16, 2), "CVE-2024-0132"),
    ((1, 17, 4), "CVE-2025-23359"),
    ((1, 17, 8), "CVE-2025-23266"),
)
RISKY = ("allow_cuda_compat_libs_from_container", "allow_ldconfig_from_container")
ROOTFUL = ("dockerd", "containerd", "crio")


@check("config-toml-broken", family="settings")
def config(node: Node) -> Iterator[Finding]:
    """config.toml is TOML, and all of its keys are known."""
    file = config_path(node)
    text = node.read(file, "")
    settings = decide(text.encode(), file)  # raises ConfigBroken, which is the finding
    for slug, warning in settings.warnings:
        if slug == "config-toml-broken":
            where, _, said = warning.partition(": ")
            key, _, meant = said.partition("; ")
            advice = meant.replace("did you mean ", "write ").rstrip("?") if meant else "correct or remove the line"
            fix = ("`gpuhook doctor --fix` corrects the spelling",) if "did you mean" in meant else ()
            yield tell(slug, "warning", key, (where,), advice=(advice, *fix))
    if node.exists(NOT_READ):
        yield tell(
            "config-toml-broken",
            "warning",
            f"{NOT_READ} is read by nobody",
            (NOT_READ,),
            advice=f"put its settings into {file}",
        )
    yield from _other_file(node)
    if text and not settings.warnings:
        yield tell("config-toml-broken", "ok", f"{file} is valid")


def _other_file(node: Node) -> Iterator[Finding]:
    for daemon in node.processes(*ROOTFUL):
        environ = daemon.environ or {}
        for name in VARIABLES:
            below = "" if name == VARIABLES[0] else "/nvidia-container-runtime/config.toml"
            path = f"{environ[name]}{below}" if environ.get(name, "").startswith("/") else ""
            if path and path != config_path(node) and (node.exists(path) or not below):
                yield tell(
                    "config-toml-broken",
                    "note",
                    f"{daemon.name} has {name} set: hooks read {path}, not {config_path(node)}",
                    (f"/proc/{daemon.pid}/environ", f"{name}={environ[name]}"),
                )


@check("ldconfig-path", family="settings")
def ldconfig(node: Node) -> Iterator[Finding]:
    """The configured ldconfig is a program of this host."""
    found = settings_of(node).ldconfig
    if not found or not found.startswith("@"):
        return
    path, root = found[1:], settings_of(node).cli_root.rstrip("/")
    other = next((one for one in LDCONFIGS if one != path and node.exists(one)), "")
    where = place_of(node, "nvidia-container-cli.ldconfig")
    if not (node.exists(path) or (root and node.exists(f"{root}{path}"))):
        text, seen = f"the configured ldconfig {path} does not exist on this host", "absent"
    elif node.exists(path) and not node.read(path)[:4].startswith(ELF):
        text, seen = f"the configured ldconfig {path} is a script and cannot run in a container", "no ELF file"
        other = next((one for one in LDCONFIGS if one.endswith(".real") and node.exists(one)), "")
    else:
        return
    yield tell(
        "ldconfig-path",
        "warning",
        text + (f"; {other} is used" if other else ""),
        (where, path, other),
        (path, seen),
        advice=f'ldconfig = "@{other}"' if other else "remove the line",
    )


@check("no-cgroups-rootful", family="settings")
def no_cgroups(node: Node) -> Iterator[Finding]:
    """Device rules are written for engines that run as root."""
    if not settings_of(node).no_cgroups:
        return
    rootful = [process.name for process in node.processes(*ROOTFUL) if process.uid == 0]
    rootful += ["podman as root"] if not rootful and node.which("podman") and registered(node, "podman") else []
    if rootful:
        yield tell(
            "no-cgroups-rootful",
            "failure",
            f"no-cgroups = true makes GPUs unusable in containers of {rootful[0]}",
            (place_of(node, "nvidia-container-cli.no-cgroups"), "true", "not set"),
            advice=(
                "remove the line: gpuhook decides by the context",
                "rootless users keep it in ~/.config/nvidia-container-runtime/config.toml",
            ),
        )


@check("unsafe-config", family="settings")
def unsafe(node: Node) -> Iterator[Finding]:
    """Nothing lets an image or another user decide what root does."""
    settings = settings_of(node)
    for slug, warning in settings.warnings:
        if slug == "unsafe-config":
            where, _, text = warning.partition(": ")
            yield tell(slug, "warning", text, (where,))
    yield from _flags(node, settings)
    yield from _writable(node)
    said = node.run(HOOK, "--version")
    version = version_of(said[1]) if said and "NVIDIA Container Runtime Hook" in said[1] else ()
    known = [name for fixed, name in ADVISORIES if version and version < fixed]
    if known:
        text = ".".join(map(str, version))
        fixed = ".".join(map(str, ADVISORIES[-1][0]))
        yield tell(
            "unsafe-config",
            "warning",
            f"nvidia-container-toolkit {text} has known holes: {', '.join(known)}",
            (f"{HOOK} --version", text, f"{fixed} or later"),
            advice="upgrade it: an image could take over the host",
        )


def _flags(node: Node, settings: Settings) -> Iterator[Finding]:
    for name in RISKY:
        if getattr(settings, name):
            key = f"features.{name.replace('_', '-')}"
            yield tell(
                "unsafe-config",
                "warning",
                f"{key} lets an image decide what runs with rights of the host",
                (place_of(node, key), "true", "false"),
                advice="remove the line",
            )


def _writable(node: Node) -> Iterator[Finding]:
    programs = {one.program for engine in ENGINES for one in registered(node, engine) if one.program.startswith("/")}
    for path in (config_path(node), *([daemon_json(node)] if has_docker(node) else []), *sorted(programs)):
        status = node.status(path)
        if status and status.st_mode & 0o022:
            yield tell(
                "unsafe-config",
                "warning",
                f"others than root can write {path}, which decides what root does",
                (path, f"{status.st_mode & 0o7777:04o}", f"{status.st_mode & 0o7755:04o}"),
                advice=f"`chmod go-w {path}`",
            )


@check("swarm-resource", family="settings")
def swarm(node: Node) -> Iterator[Finding]:
    """The variable of Swarm's GPU resource is the one that config.toml names."""
    table = daemon_settings(node)
    found = table.get("node-generic-resources")
    listed = found if isinstance(found, list) else []
    named = [str(one).partition("=")[0] for one in listed if "GPU" in str(one).upper()]
    if not named or not (dockerds(node) or has_docker(node)):
        return
    wanted = [f"DOCKER_RESOURCE_{re.sub(r'[^A-Za-z0-9_-]', '', name)}" for name in dict.fromkeys(named)]
    have = settings_of(node).swarm_resource
    absent = [name for name in wanted if name not in have]
    where, path = place_of(node, "swarm-resource"), daemon_json(node)
    if absent:
        yield tell(
            "swarm-resource",
            "warning",
            f"Swarm tells tasks their GPUs by {absent[0]}, which swarm-resource does not name",
            (path, f"node-generic-resources: {named[0]}"),
            (where, ",".join(have) or "not set", absent[0]),
            advice=f'swarm-resource = "{",".join((*have, *absent))}" at the top of config.toml, on every GPU node',
        )
    elif not table.get("default-runtime"):
        yield tell(
            "swarm-resource",
            "warning",
            "Swarm has no way to ask for a runtime, and the default runtime is not a GPU runtime",
            (path, "no default-runtime", '"default-runtime": "nvidia"'),
            advice="`gpuhook install docker --set-as-default`, then `systemctl restart docker`",
        )
