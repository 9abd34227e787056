"""Containers of Kubernetes' pods, as `kubectl get -o json` prints them, and of whatever makes pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuhook.errors import BadBundle
from gpuhook.explain.subject import MOST_GPUS, Subject, bundle_of, is_privileged, parse
from gpuhook.explain.traits import items, table
from gpuhook.oci.bundle import Mount
from gpuhook.request.devices import FOLDERS, NULL_DEVICE, VARIABLE

DEEPEST = 4  # lists in lists, templates in templates
KINDS = ("initContainers", "containers", "ephemeralContainers")
RESOURCE = "nvidia.com/"
HINT = "kubectl get pod NAME -o json prints one"


def from_pod(text: str, source: str) -> list[Subject]:
    """The containers of the pods in a JSON text: of one, of a list, or of the template of a Deployment and its kind.

    Raises BadBundle.
    """
    found = [
        _container(name, spec, each, source)
        for name, spec in pods(parse(text, source, HINT))
        for kind in KINDS
        for each in map(table, items(spec.get(kind)))
        if each
    ]
    if not found:
        raise BadBundle("this is no pod, and nothing that makes pods: no containers", where=source, hint=HINT)
    return found


def pods(value: object, left: int = DEEPEST) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and spec of every pod, of lists too, and of templates."""
    for one in items(value) or items(table(value).get("items")):
        if left:
            yield from pods(one, left - 1)
    holder = table(value)
    name = str(table(holder.get("metadata")).get("name") or "pod")
    for _ in range(DEEPEST):
        spec = table(holder.get("spec"))
        if any(items(spec.get(kind)) for kind in KINDS):
            yield name, spec
            return
        holder = table(spec.get("template") or spec.get("jobTemplate") or holder.get("template"))


def _container(pod: str, spec: Mapping[str, Any], container: Mapping[str, Any], source: str) -> Subject:
    name = str(container.get("name") or "")
    here = f"{source}: container {name}"
    listed = [table(entry) for entry in items(container.get("env"))]
    env = {str(one.get("name") or ""): str(one.get("value") or "") for one in listed if "valueFrom" not in one}
    env.pop("", None)
    mounts = tuple(_mounts(spec, container))
    places = {**dict.fromkeys(env, f"{here}: env"), **{one.destination: f"{here}: volumeMounts" for one in mounts}}
    unknown = [str(one.get("name")) for one in listed if "valueFrom" in one and one.get("name") == VARIABLE]
    limits = _limits(container)
    stand_ins, caveat = stand_in(limits) if not unknown and VARIABLE not in env else ({}, "")
    if stand_ins:
        env |= {VARIABLE: stand_ins[VARIABLE]}
        mounts += tuple(Mount(destination=path, source=NULL_DEVICE, index=0) for path in stand_ins if path != VARIABLE)
        places |= dict.fromkeys(stand_ins, f"{here}: resources.limits: {_told(limits)}")
    return Subject(
        f"{pod}/{name}",
        source,
        bundle_of(env, mounts, privileged=_is_privileged(container)),
        places,
        remarks=tuple(_remarks(limits, env)),
        notes=tuple(_notes(spec)),
        stand_ins=tuple(stand_ins),
        caveat=caveat,
        pending=_pending(limits, unknown) if not stand_ins else "",
        elsewhere=" here; its image may set it" + (", and so may envFrom" if container.get("envFrom") else ""),
        way=f'resources.limits: {{"{RESOURCE}gpu": 1}}',
    )


def _mounts(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[Mount]:
    """Its volumes; the source is known for those of the host."""
    volumes = {str(one.get("name")): one for one in map(table, items(spec.get("volumes")))}
    for number, one in enumerate(map(table, items(container.get("volumeMounts")))):
        host = table(table(volumes.get(str(one.get("name")))).get("hostPath"))
        yield Mount(destination=str(one.get("mountPath") or ""), source=str(host.get("path") or ""), index=number)


def _limits(container: Mapping[str, Any]) -> dict[str, int]:
    """How many of which of NVIDIA's resources it asks for."""
    limits = table(table(container.get("resources")).get("limits"))
    found = {str(key): str(value) for key, value in limits.items() if str(key).startswith(RESOURCE)}
    return {key: int(value) for key, value in found.items() if value.isdecimal() and 0 < int(value[:9]) <= MOST_GPUS}


def _told(limits: Mapping[str, int]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in limits.items())


def stand_in(limits: Mapping[str, int]) -> tuple[dict[str, str], str]:
    """What stands for that which the device plugin will ask for, by variable and by mount; and what to say of it."""
    count = sum(number for key, number in limits.items() if key.startswith(f"{RESOURCE}gpu"))
    if not count:
        return {}, ""
    some = [str(index) for index in range(count)]
    names = {VARIABLE: ",".join(some), **{f"{FOLDERS[0]}{index}": index for index in some}}
    verb = "stands" if count == 1 else "stand"
    return names, f"the device plugin chooses for {_told(limits)}, and GPU {', '.join(some)} {verb} for it here"


def _pending(limits: Mapping[str, int], unknown: list[str]) -> str:
    if unknown:
        return f"as it stands; {VARIABLE} comes from elsewhere (valueFrom), which is not known here"
    return f"as it stands; the device plugin asks for {_told(limits)} when the pod is placed" if limits else ""


def _is_privileged(container: Mapping[str, Any]) -> bool:
    security = table(container.get("securityContext"))
    return is_privileged(security.get("privileged"), items(table(security.get("capabilities")).get("add")))


def _remarks(limits: Mapping[str, int], env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if VARIABLE in env and not limits:
        yield "env-all-exposes", f"it asks by variable, without a limit of {RESOURCE}gpu: the scheduler knows nothing"


def _notes(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not spec.get("runtimeClassName"):
        text = "the pod has no runtimeClassName: the hook is called only where a GPU runtime is the node's default"
        yield "hook-not-invoked", text
