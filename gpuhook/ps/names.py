"""What engines call a container: from containerd's and CRI-O's files, or by asking Docker and Podman."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpuhook.doctor.node import Node, Unreadable
from gpuhook.explain.engines import reason
from gpuhook.ps.owner import BARE, Owner

PATIENCE = 2.0  # seconds for an engine's answer
TASKS = "/run/containerd/io.containerd.runtime.v2.task"
CRIO = "/run/containers/storage/overlay-containers"
DOCKERS = "moby"  # the namespace in which Docker keeps its containers in containerd
# Annotations of the specification: containerd's CRI plugin (pkg/cri/annotations) and CRI-O (pkg/annotations).
NAME = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name")
IMAGE = ("io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName", "io.kubernetes.cri-o.Image")
POD = ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
NAMESPACE = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")


@dataclass(frozen=True)
class Named:
    """A container's engine, and its name, image and pod where they are known."""

    engine: str
    name: str = ""
    image: str = ""
    pod: str = ""


def names(node: Node, owners: Iterable[Owner]) -> tuple[dict[str, Named], list[str]]:
    """What is known of these containers, by id; and what could not be asked."""
    found = {owner.id: Named(owner.engine, pod=owner.pod) for owner in owners}
    unseen: list[str] = []
    for owner_id, named in found.items():
        if named.engine in ("containerd", "unknown"):
            try:
                found[owner_id] = _of_containerd(node, owner_id, named)
            except Unreadable as error:
                unseen.append(str(error))
        elif named.engine == "cri-o":
            unseen += _merge(found, {owner_id: _annotated(node, f"{CRIO}/{owner_id}/userdata/config.json", named)})
    for engine, ask in (("docker", _docker), ("podman", _podman)):
        ids = [owner_id for owner_id, named in found.items() if named.engine == engine and BARE.fullmatch(owner_id)]
        if ids:
            unseen += _merge(found, ask(node, ids))
    return found, unseen


def _merge(found: dict[str, Named], answers: dict[str, Named] | str) -> list[str]:
    if isinstance(answers, str):
        return [answers]
    for owner_id, named in answers.items():
        if owner_id in found:
            found[owner_id] = replace(named, pod=named.pod or found[owner_id].pod)
    return []


def _of_containerd(node: Node, owner_id: str, named: Named) -> Named:
    """A container that containerd runs: for itself, for Kubernetes or for Docker. Raises Unreadable."""
    for namespace in node.listdir(TASKS):
        path = f"{TASKS}/{namespace}/{owner_id}/config.json"
        if node.exists(path):
            engine = "docker" if namespace == DOCKERS else "containerd"
            return _annotated(node, path, replace(named, engine=engine))
    return named


def _annotated(node: Node, path: str, named: Named) -> Named:
    """What the annotations of a specification say."""
    try:
        notes = _table(_table(_json(node.read(path, "{}"))).get("annotations"))
    except Unreadable:
        return named

    def first(keys: tuple[str, ...]) -> str:
        return next((str(notes[key]) for key in keys if notes.get(key)), "")

    pod = "/".join(part for part in (first(NAMESPACE), first(POD)) if part)
    return Named(named.engine, first(NAME), first(IMAGE), pod or named.pod)


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _rows(text: str) -> Iterator[dict[str, object]]:
    found = _json(text)
    yield from (row for row in (found if isinstance(found, list) else []) if isinstance(row, dict))


def _docker(node: Node, ids: list[str]) -> dict[str, Named] | str:
    """The names by `docker inspect`, which tells of the containers that it knows and fails for the others."""
    said = node.run("docker", "inspect", "--type", "container", *ids, seconds=PATIENCE)
    if said is None:
        return f"names of Docker's containers: docker is not here or did not answer within {PATIENCE:g} s"
    found = {}
    for row in _rows(said[1]):
        table = _table(row.get("Config"))
        labels = _table(table.get("Labels"))
        pod = "/".join(str(labels[key]) for key in (NAMESPACE[1], POD[1]) if labels.get(key))
        name = str(row.get("Name", "")).removeprefix("/")
        found[str(row.get("Id", ""))] = Named("docker", name, str(table.get("Image", "")), pod)
    return _known(found, ids) or f"names of Docker's containers: {_why(said, 'it knows none of them')}"


def _podman(node: Node, ids: list[str]) -> dict[str, Named] | str:
    """The names by `podman ps`: those of the user who asks."""
    said = node.run("podman", "ps", "--all", "--no-trunc", "--format", "json", seconds=PATIENCE)
    if said is None:
        return f"names of Podman's containers: podman is not here or did not answer within {PATIENCE:g} s"
    found = {}
    for row in _rows(said[1]):
        listed = row.get("Names")
        name = str(listed[0]) if isinstance(listed, list) and listed else str(listed or "")
        found[str(row.get("Id", ""))] = Named("podman", name, str(row.get("Image", "")), str(row.get("PodName") or ""))
    return _known(found, ids) or f"names of Podman's containers: {_why(said, 'they are not those of this user')}"


def _known(found: dict[str, Named], ids: list[str]) -> dict[str, Named]:
    return {owner_id: named for owner_id, named in found.items() if owner_id in ids}


def _why(said: tuple[int, str, str], otherwise: str) -> str:
    return reason(said[2]) if said[2].strip() else otherwise
