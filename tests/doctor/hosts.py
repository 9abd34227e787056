"""Host trees for the doctor, made from compact descriptions (fixtures/hosts/NAME/host.json)."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gpuhook.doctor.command import examine
from gpuhook.doctor.contained import examine as examine_container
from gpuhook.doctor.facts import settings_of
from gpuhook.doctor.model import Finding, worst
from gpuhook.doctor.node import Node
from gpuhook.explain.inspected import from_inspect
from gpuhook.explain.subject import Subject, from_bundle
from gpuhook.loader.merge import merge

HOSTS = Path(__file__).resolve().parents[2] / "fixtures" / "hosts"
LONG_AGO = 1_700_000_000  # when every file was changed, where nothing else is said
NOW = 1_764_000_000  # what the clock of every host shows
MERGED = ("files", "links", "nodes", "commands", "modes", "times")
HEALTHY = (
    "healthy-docker",
    "healthy-containerd-k8s",
    "healthy-podman",
    "healthy-crio",
    "healthy-nvidia-stack",
    "healthy-wsl",
    "healthy-gpu-operator",
)


def names() -> list[str]:
    """All hosts."""
    return sorted(path.parent.name for path in HOSTS.glob("*/host.json"))


@cache
def described(name: str) -> dict[str, Any]:
    """A host's description with that of its base in it. null takes away what the base has."""
    own: dict[str, Any] = json.loads((HOSTS / name / "host.json").read_text())
    whole = copy.deepcopy(described(own["base"])) if "base" in own else {key: {} for key in MERGED}
    for gone in own.get("remove", []):
        for key in ("files", "links", "nodes"):
            whole[key] = {path: value for path, value in whole[key].items() if not f"{path}/".startswith(f"{gone}/")}
    for key in MERGED:
        whole[key] = {**whole.get(key, {}), **own.get(key, {})}
    return {
        **whole,
        **{key: value for key, value in own.items() if key not in (*MERGED, "base", "remove")},
        "expect": own.get("expect", {}),
    }


def made(name: str, folder: Path) -> Node:
    """The host's tree below this folder."""
    host, tree = described(name), folder / "tree"
    tree.mkdir(parents=True)
    _fill(tree, host)
    for made_one in tree.rglob("*"):
        os.utime(made_one, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    for path, mode in host["modes"].items():
        (tree / path[1:]).chmod(int(mode, 8))
    for path, when in host["times"].items():
        os.utime(tree / path[1:], (when, when))
    beside = {
        "commands": {key: scripted(said) for key, said in host["commands"].items() if said is not None},
        "processes": host.get("processes", []),
        "nodes": host["nodes"],
        "clock": NOW,
    }
    for key, value in beside.items():
        (folder / f"{key}.json").write_text(json.dumps(value))
    return Node(str(tree))


def _fill(tree: Path, host: dict[str, Any]) -> None:
    for path, text in host["files"].items():
        put(tree, path, text)
    for path, target in host["links"].items():
        (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tree / path[1:]).symlink_to(target)
    if host.get("cache"):
        sonames = [(soname, path, 64) for soname, path in host["cache"]]
        put(tree, "/etc/ld.so.cache", "").write_bytes(merge(None, sonames))


def put(tree: Path, path: str, text: str) -> Path:
    """A file of a tree; programs are executable."""
    place = tree / path[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755 if place.parent.name in ("bin", "sbin") else 0o644)
    return place


def scripted(said: Any) -> dict[str, Any]:
    """What a command says: a text, {"json": value}, or the whole."""
    if isinstance(said, str):
        return {"stdout": said}
    return {"stdout": json.dumps(said["json"])} if "json" in said else dict(said)


def subject_of(name: str, folder: Path) -> Subject | None:
    """The host's container: what an engine says of it, or a bundle."""
    container = described(name).get("container")
    if container is None:
        return None
    root = folder / "bundle" / "rootfs"
    root.mkdir(parents=True)
    for path, text in container.get("rootfs", {}).items():
        put(root, path, text)
    if "spec" in container:
        (folder / "bundle" / "config.json").write_text(json.dumps(container["spec"]))
        return from_bundle(str(folder / "bundle"))
    item = {**container["inspect"], "GraphDriver": {"Data": {"MergedDir": str(root)}}}
    return from_inspect(json.dumps([item]), "docker inspect web")[0]


def findings(name: str, folder: Path) -> tuple[Finding, ...]:
    """Everything that the doctor finds on a host, its container included."""
    node = made(name, folder)
    return (*examine(node).findings, *_of_container(name, node, folder))


def _of_container(name: str, node: Node, folder: Path) -> Iterator[Finding]:
    subject = subject_of(name, folder)
    if subject is not None:
        yield from examine_container(subject, settings_of(node), node)


def levels(found: tuple[Finding, ...]) -> dict[str, str]:
    """The worst level of each slug that is more than "ok"."""
    slugs = dict.fromkeys(finding.slug for finding in found if finding.level != "ok")
    return {slug: worst(tuple(one for one in found if one.slug == slug)) for slug in slugs}
