"""containerd and the kubelet: which file counts, and what is in it."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator

from gpuhook.doctor.engines import (
    cdi_files,
    endpoint,
    files_of,
    is_gpu_program,
    kubelet_setting,
    kubelets,
    level_without,
    present,
    registered,
    version_of,
)
from gpuhook.doctor.facts import has_gpu
from gpuhook.doctor.model import Finding, Level, tell
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.doctor.registry import check
from gpuhook.install import containerd, cri, distributions
from gpuhook.install.errors import FileProtected
from gpuhook.install.tomledit import Table, at, table_at

MAIN = containerd.CONFIG
INSTALL = "`gpuhook install containerd`, then `systemctl restart containerd`"


def _files(node: Node) -> list[cri.File]:
    """Containerd's main file and what it imports, in the order in which they count. Raises ContainerdConfig."""
    node.listdir(os.path.dirname(MAIN))
    host = files_of(node)
    try:
        main = cri.read_file(host.read(MAIN))
        seens = [host.read(path) for pattern in containerd.patterns(main) for path in host.glob(pattern)]
        return [main, *(cri.read_file(seen) for seen in seens if seen.path != MAIN)]
    except FileProtected as error:
        raise Unreadable(error.text) from error


def _plain(node: Node) -> bool:
    """Whether the node's containerd is the plain one, and a kubelet or a GPU runtime needs it."""
    if distributions.find(files_of(node)):
        return False
    return present(node, "containerd") or (node.exists(MAIN) and "nvidia" in node.read(MAIN))


@check("k8s-distro-config", family="kubernetes")
def distribution(node: Node) -> Iterator[Finding]:
    """The containerd of a Kubernetes distribution knows a GPU runtime, in the file that it reads."""
    for one in distributions.find(files_of(node)):
        if not has_gpu(node):
            return
        folder = one.places[0]
        node.listdir(folder)
        known = [entry for entry in one.registered(files_of(node)) if is_gpu_program(entry.program)]
        alive = [entry for entry in known if node.exists(entry.program)]
        if alive:
            yield tell("k8s-distro-config", "ok", f"{one.name} knows the runtime {alive[0].name} ({alive[0].where})")
            continue
        plain = "nvidia" in node.read(MAIN, "")
        dead: list[tuple[str, ...]] = [(entry.where, entry.program, "a program that exists") for entry in known]
        yield tell(
            "k8s-distro-config",
            "failure",
            f"{one.name} has its own containerd, configured from {folder}: it knows no GPU runtime"
            + (f"; {MAIN}, which has one, is not read" if plain else ""),
            *dead or [(folder, "no GPU runtime")],
            *([(MAIN, "not read by it")] if plain else []),
            advice=_distribution_advice(node, one),
        )


def _distribution_advice(node: Node, one: distributions.Distribution) -> tuple[str, ...]:
    restart = " && ".join(" ".join(command) for command in one.restarts(files_of(node)))
    return (
        f"`gpuhook install containerd --replace-nvidia`, then `{restart}`",
        "give pods runtimeClassName: nvidia",
    )


@check("containerd-config", family="kubernetes")
def sections(node: Node) -> Iterator[Finding]:
    """Containerd reads the file, the version and the section in which the GPU runtime is."""
    if not has_gpu(node) or not _plain(node):
        return
    files = _files(node)
    said = node.run(_program(node), "--version")
    version = version_of(said[1].partition(" v")[2] or said[1]) if said else ()
    yield from _wrong_version(files[0], version)
    elsewhere = [entry for file in files for entry in _elsewhere(file)]
    known = registered(node, "containerd")
    for path, line, section, wanted in elsewhere:
        yield tell(
            "containerd-config",
            "failure",
            f"{path} has a GPU runtime in a section that containerd does not read in this version of the file",
            (f"{path}:{line}", section, wanted),
            advice=f"move it to {wanted}, or {INSTALL}",
        )
    yield from _not_imported(node, files[0])
    yield from _disabled(node, files[0])
    if known or elsewhere:
        if known and not elsewhere:
            yield from _in_dump(node, known[0].name)
        return
    level: Level = "note" if cdi_files(node) else level_without(node, "containerd")
    yield tell(
        "containerd-config",
        level,
        f"the kubelet uses containerd ({endpoint(node) or 'its usual socket'}), which has no GPU runtime",
        (MAIN, "no GPU runtime" if node.exists(MAIN) else "absent"),
        advice=(INSTALL, "pods ask for it by a RuntimeClass whose handler is nvidia"),
    )


def _program(node: Node) -> str:
    """The program of the containerd that runs, which need not be the first one in PATH."""
    mine = (
        one for one in node.processes("containerd") if (one.option("--config") or one.option("-c") or MAIN) == MAIN
    )
    return next((one.exe for one in mine if one.exe.startswith("/")), "containerd")


def _wrong_version(main: cri.File, version: tuple[int, ...]) -> Iterator[Finding]:
    if main.toml.table and main.version == 1 and version >= (2,):
        yield tell(
            "containerd-config",
            "failure",
            f"{main.path} is of version 1, which containerd {'.'.join(map(str, version))} does not read",
            (f"{main.path}:1", "version 1", "version 2 or 3"),
            advice="`containerd config migrate` shows it in the new version",
        )


def _elsewhere(file: cri.File) -> Iterator[tuple[str, int, str, str]]:
    """Path, line and section of GPU runtimes that are where another version of the file would have them."""
    for version, plugin in cri.PLUGINS.items():
        place = (*plugin, "containerd", "runtimes")
        for name in table_at(file.toml.table, place) if version != file.version else ():
            wanted = dotted(*file.cri, "runtimes", name)
            yield file.path, file.toml.lines.get((*place, name), 1), dotted(*place, name), wanted


def dotted(*parts: str) -> str:
    """A table's name as TOML has it: plugins."io.containerd.grpc.v1.cri".containerd."""
    return ".".join(f'"{part}"' if re.search(r"[^\w-]", part) else part for part in parts)


def _not_imported(node: Node, main: cri.File) -> Iterator[Finding]:
    patterns = containerd.patterns(main)
    for folder in ("/etc/containerd/conf.d", "/etc/containerd/config.d"):
        for path in node.glob(folder, "*.toml"):
            if "nvidia" in node.read(path) and not any(fnmatch.fnmatch(path, pattern) for pattern in patterns):
                yield tell(
                    "containerd-config",
                    "failure",
                    f"{path} has a GPU runtime and is not imported",
                    (f"{MAIN}: imports", ", ".join(patterns) or "none", f"{folder}/*.toml"),
                    advice=f'imports = ["{folder}/*.toml"] at the top of {MAIN}, then restart containerd',
                )


def _disabled(node: Node, main: cri.File) -> Iterator[Finding]:
    off = at(main.toml.table, ("disabled_plugins",))
    cri_plugins = ("cri", cri.PLUGINS[2][1], cri.PLUGINS[3][1])
    names = [name for name in off if name in cri_plugins] if isinstance(off, list) else []
    if names and kubelets(node):
        yield tell(
            "containerd-config",
            "failure",
            f"{main.path} disables the CRI plugin, so that no kubelet can use this containerd",
            (f"{main.path}:{main.toml.lines.get(('disabled_plugins',), 1)}", ", ".join(map(str, names))),
            advice="remove it from disabled_plugins and restart containerd",
        )


def _in_dump(node: Node, name: str) -> Iterator[Finding]:
    """What containerd itself makes of its files: since 2.0 it merges imports, before it replaced whole sections."""
    said = node.run(_program(node), "config", "dump")
    if said is None or said[0]:
        return
    if re.search(rf"runtimes\.[\"']?{re.escape(name)}[\"']?\s*\]", said[1]):
        yield tell("containerd-config", "ok", f"containerd knows the runtime {name}")
        return
    yield tell(
        "containerd-config",
        "failure",
        f"the runtime {name} is in containerd's files, and containerd does not take it over",
        ("containerd config dump", f"no runtimes.{name}"),
        advice="before containerd 2.0 the last file that has the CRI plugin replaces all others: put all of it in one",
    )


@check("containerd-systemdcgroup", family="kubernetes")
def cgroup_driver(node: Node) -> Iterator[Finding]:
    """The GPU runtime has the cgroup driver of runc, and of the kubelet."""
    if not _plain(node):
        return
    runtimes: Table = {}
    files = _files(node)
    for file in files:
        runtimes |= file.runtimes
    ours = [name for name in runtimes if is_gpu_program(str(at(runtimes, (name, "options", "BinaryName"))))]
    other = "systemd" if kubelet_setting(node, "cgroupDriver") == "systemd" else ""
    runc = at(runtimes, ("runc", "options", "SystemdCgroup"))
    wanted = True if runc is True or (runc is None and other) else bool(runc)
    for name in ours:
        found = at(runtimes, (name, "options", "SystemdCgroup")) is True
        if found != wanted:
            yield tell(
                "containerd-systemdcgroup",
                "warning",
                f"{'runc uses' if runc is not None else 'the kubelet has'} SystemdCgroup = {_word(wanted)}, "
                f"the runtime {name} {_word(found)}: pods die at random",
                (f"{_owner(files, name)}: runtimes.{name}.options.SystemdCgroup", _word(found), _word(wanted)),
                advice=f"set SystemdCgroup = {_word(wanted)} for {name} and restart containerd",
            )


def _word(value: bool) -> str:  # noqa: FBT001  # it is what is told
    return "true" if value else "false"


def _owner(files: list[cri.File], name: str) -> str:
    return next((file.path for file in reversed(files) if name in file.runtimes), MAIN)
