"""Hook files and runtimes of Podman and CRI-O, read without a word on stderr (oci-hooks(5))."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.errors import GpuhookError
from gpuhook.install import conf, crio, podman
from gpuhook.install.engine import Registered
from gpuhook.install.errors import CrioConfig, FileProtected, HooksDir
from gpuhook.install.hookfile import USUAL
from gpuhook.install.host import Host
from gpuhook.install.tomledit import at, table_at

EVERYWHERE = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d", "/run/containers/oci/hooks.d")


@dataclass(frozen=True)
class HookFile:
    """A hook file. fault: why an engine cannot use it, "" where it can; program: that it calls."""

    path: str
    program: str = ""
    fault: str = ""
    is_gpu: bool = False


def folders(node: Node, engine: str) -> tuple[str, ...]:
    """The folders that an engine reads hook files from, the last one winning. Raises Unreadable."""
    host = Host(root=node.root)
    try:
        if engine == "podman":
            return podman.folders(host)
        known = conf.read(host, crio.CONF, CrioConfig)
        return known.texts(*crio.RUNTIME, "hooks_dir", usual=USUAL)
    except FileProtected as error:
        raise Unreadable(error.text) from error
    except GpuhookError:
        return USUAL


def in_folder(node: Node, folder: str) -> list[HookFile]:
    """The hook files of a folder, good and bad. Raises Unreadable."""
    return [_read(node, path) for path in node.glob(folder, "*.json")]


def in_effect(node: Node, engine: str) -> list[HookFile]:
    """The good hook files that count, by name. Raises Unreadable."""
    by_name = {os.path.basename(one.path): one for folder in folders(node, engine) for one in in_folder(node, folder)}
    return [one for one in by_name.values() if not one.fault]


def _read(node: Node, path: str) -> HookFile:
    text = node.read(path)
    is_gpu = any(word in text for word in ("nvidia-container", "gpuhook"))
    try:
        found = json.loads(text)
    except ValueError as error:
        return HookFile(path, fault=f"it is no JSON: {error}", is_gpu=is_gpu)
    table = found if isinstance(found, dict) else {}
    hook, when, stages = table.get("hook"), table.get("when"), table.get("stages")
    program = str(hook.get("path", "")) if isinstance(hook, dict) else ""
    fault = ""
    if table.get("version") != "1.0.0":
        fault = f"its version is {table.get('version')!r}, and engines read '1.0.0'"
    elif not program.startswith("/"):
        fault = "hook.path is no absolute path"
    elif not isinstance(when, dict) or not when:
        fault = "`when` is missing, so it never matches"
    elif when.get("always") is False:
        fault = "when.always is false"
    elif not isinstance(stages, list) or not {"prestart", "createRuntime"} & set(map(str, stages)):
        fault = f"stages is {stages!r} and must have prestart or createRuntime"
    return HookFile(path, program, fault, is_gpu)


def podman_runtimes(host: Host) -> list[Registered]:
    """The OCI runtimes in containers.conf. Raises HooksDir."""
    known = conf.read(host, podman.CONF, HooksDir)
    found = []
    for seen, toml in known.files:
        for name, programs in table_at(toml.table, ("engine", "runtimes")).items():
            program = programs[0] if isinstance(programs, list) and programs else ""
            default = at(known.table, ("engine", "runtime")) == name
            found.append(Registered(where=seen.path, name=name, program=str(program), default=default))
    return found


def crio_runtimes(host: Host) -> list[Registered]:
    """The OCI runtimes in crio.conf. Raises CrioConfig."""
    known = conf.read(host, crio.CONF, CrioConfig)
    default = at(known.table, crio.DEFAULT)
    found = []
    for seen, toml in known.files:
        for name in table_at(toml.table, (*crio.RUNTIME, "runtimes")):
            program = toml.at(*crio.RUNTIME, "runtimes", name, "runtime_path")
            if isinstance(program, str):
                found.append(Registered(where=seen.path, name=name, program=program, default=name == default))
    return found
