"""The container to explain: taken from a bundle, from an engine's own description, or from variables alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuhook.errors import BadBundle, Usage
from gpuhook.explain.traits import Traits, of_inspected, of_spec
from gpuhook.explain.traits import items as _items
from gpuhook.explain.traits import table as _table
from gpuhook.oci.bundle import Bundle, Mount, read_bundle

LARGEST = 64 << 20  # bytes of a description
ROOTFS = "/rootfs"


@dataclass(frozen=True)
class Subject:
    """A container as the hook would see it.

    name: for people; source: where it was read; bundle: what the hook would read; places: where each variable and
    mount stands; remarks: (slug, text) of what the description itself shows; traits: what else is known of it.
    """

    name: str
    source: str
    bundle: Bundle
    places: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[tuple[str, str], ...] = ()
    traits: Traits = field(default_factory=Traits)

    def place(self, name: str) -> str:
        """Where a variable or a mount's destination stands in the source."""
        return self.places.get(name, self.source)


def from_bundle(folder: str) -> Subject:
    """The bundle in this folder. Raises BadBundle."""
    path = str(Path(folder).absolute())
    bundle = read_bundle(path)
    spec = json.loads(Path(path, "config.json").read_bytes())
    entries = spec.get("process", {}).get("env") or []
    places = {entry.partition("=")[0]: f"config.json: process.env[{n}]" for n, entry in enumerate(entries) if entry}
    places |= {mount.destination: f"config.json: mounts[{mount.index}]" for mount in bundle.mounts}
    hooks = spec.get("hooks") or {}
    return Subject(Path(path).name, path, bundle, places, _hook_remarks(hooks), of_spec(spec, path))


def _hook_remarks(hooks: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    paths = [str(hook.get("path", "")) for stage in hooks.values() for hook in stage or [] if isinstance(hook, dict)]
    if any(Path(path).name.startswith(("gpuhook", "nvidia-container")) for path in paths):
        return ()
    text = "config.json has no GPU hook: unless an engine adds one, the hook is not called for this container"
    return (("hook-not-invoked", text),)


def from_variables(entries: list[str]) -> Subject:
    """An unprivileged container with these NAME=VALUE entries. Raises Usage."""
    for entry in entries:
        if "=" not in entry:
            raise Usage(f"--env takes NAME=VALUE, not {entry!r}")
    env = dict(entry.split("=", 1) for entry in entries)
    return Subject("(variables)", "the command line", _bundle(env), {name: f"--env {name}" for name in env})


def _bundle(env: Mapping[str, str], mounts: tuple[Mount, ...] = (), *, privileged: bool = False) -> Bundle:
    return Bundle(path="/", env=dict(env), mounts=mounts, root_path=ROOTFS, privileged=privileged)


def from_inspect(text: str, source: str) -> list[Subject]:
    """The containers or images in the output of `docker inspect`, `docker image inspect` or `podman inspect`.

    Raises BadBundle.
    """
    found = parse(text, source)
    items = found if isinstance(found, list) else [found]
    if not items or not all(isinstance(item, dict) for item in items):
        raise BadBundle("this is no output of docker inspect or podman inspect", where=source)
    return [_inspected(item, source) for item in items]


def parse(text: str, source: str) -> Any:
    """A JSON text. Raises BadBundle."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadBundle(f"it is not JSON: {fault}", where=source) from fault


def _inspected(item: dict[str, Any], source: str) -> Subject:
    config, host = _table(item.get("Config") or item.get("ContainerConfig")), _table(item.get("HostConfig"))
    entries = [entry for entry in _items(config.get("Env")) if isinstance(entry, str) and "=" in entry]
    places = {entry.split("=", 1)[0]: f"{source}: Config.Env[{n}]" for n, entry in enumerate(entries)}
    env = dict(entry.split("=", 1) for entry in entries)
    requested, remarks = _device_requests(host)
    env |= requested
    places |= dict.fromkeys(requested, f"{source}: HostConfig.DeviceRequests (docker run --gpus)")
    mounts = tuple(
        Mount(destination=str(mount.get("Destination", "")), source=str(mount.get("Source", "")), index=number)
        for number, mount in enumerate(_items(item.get("Mounts")))
        if isinstance(mount, dict)
    )
    added = {str(name).upper().removeprefix("CAP_") for name in _items(host.get("CapAdd"))}
    added |= {str(name).removeprefix("CAP_") for name in _items(item.get("BoundingCaps"))}
    privileged = host.get("Privileged") is True or bool(added & {"SYS_ADMIN", "ALL"})
    name = str(item.get("Name") or next(iter(_items(item.get("RepoTags"))), "") or item.get("Id", ""))[:80].lstrip("/")
    if host and not requested:
        remarks += _runtime_remark(str(host.get("Runtime") or item.get("OCIRuntime") or ""))
    return Subject(name, source, _bundle(env, mounts, privileged=privileged), places, remarks, of_inspected(item))


def _runtime_remark(runtime: str) -> tuple[tuple[str, str], ...]:
    """What to say of the OCI runtime under which a container was made without a device request."""
    if not runtime or "nvidia" in runtime or "gpuhook" in runtime:
        return ()
    text = f"it was made with the runtime {runtime} and without --gpus: no GPU hook is called for it"
    return (("runtime-not-registered", text),)


def _device_requests(host: Mapping[str, Any]) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """The variables that dockerd adds for `--gpus`, from HostConfig.DeviceRequests."""
    env: dict[str, str] = {}
    known = {"compute", "utility", "graphics", "video", "display", "ngx", "compat32"}
    for request in map(_table, _items(host.get("DeviceRequests"))):
        names = [str(name) for group in _items(request.get("Capabilities")) for name in _items(group)]
        if "gpu" not in names and "nvidia" not in names:
            continue
        ids, count = [str(one) for one in _items(request.get("DeviceIDs"))], request.get("Count")
        wanted = ",".join(ids) if ids else "all" if count == -1 else ",".join(map(str, range(int(count or 0))))
        env["NVIDIA_VISIBLE_DEVICES"] = wanted or "void"
        if known & set(names):
            env["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(name for name in names if name in known)
    return env, ()


def from_pod(text: str, source: str) -> list[Subject]:
    """The containers of a pod, as `kubectl get pod NAME -o json` prints it. Raises BadBundle."""
    pod = _table(parse(text, source))
    spec = _table(pod.get("spec"))
    containers = [*_items(spec.get("initContainers")), *_items(spec.get("containers"))]
    if not containers:
        raise BadBundle("this is no pod: it has no spec.containers", where=source)
    name = str(_table(pod.get("metadata")).get("name", "pod"))
    return [_pod_container(name, _table(each), source) for each in containers]


def _pod_container(pod: str, container: dict[str, Any], source: str) -> Subject:
    name = str(container.get("name", ""))
    listed = [_table(entry) for entry in _items(container.get("env"))]
    env = {str(entry.get("name")): str(entry.get("value")) for entry in listed if "value" in entry}
    places = dict.fromkeys(env, f"{source}: container {name}: env")
    return Subject(
        f"{pod}/{name}",
        source,
        _bundle(env, privileged=_is_privileged(container)),
        places,
        tuple(_pod_remarks(container, listed, env)),
    )


def _is_privileged(container: Mapping[str, Any]) -> bool:
    security = _table(container.get("securityContext"))
    added = {
        str(name).upper().removeprefix("CAP_") for name in _items(_table(security.get("capabilities")).get("add"))
    }
    return security.get("privileged") is True or bool(added & {"SYS_ADMIN", "ALL"})


def _pod_remarks(
    container: Mapping[str, Any], listed: list[dict[str, Any]], env: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    limits = _table(_table(container.get("resources")).get("limits"))
    gpus = {key: value for key, value in limits.items() if str(key).startswith("nvidia.com/")}
    if gpus:
        what = ", ".join(f"{key}: {value}" for key, value in gpus.items())
        yield "env-all-exposes", f"{what}: the device plugin adds NVIDIA_VISIBLE_DEVICES when the pod is placed"
    elif "NVIDIA_VISIBLE_DEVICES" in env:
        yield (
            "env-all-exposes",
            "it asks by variable without a nvidia.com/gpu limit: the scheduler knows nothing",
        )
    for entry in listed:
        if str(entry.get("name", "")).startswith("NVIDIA_") and "valueFrom" in entry:
            yield "strict-mode-mismatch", f"{entry['name']} comes from elsewhere (valueFrom) and is not known here"
