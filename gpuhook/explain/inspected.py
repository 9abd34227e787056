"""Containers and images as `docker inspect` and `podman inspect` describe them, in all their versions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuhook.errors import BadBundle
from gpuhook.explain.subject import MOST_GPUS, Subject, Uncalled, bundle_of, has_hook, is_privileged, parse
from gpuhook.explain.traits import items, of_inspected, table
from gpuhook.oci.bundle import Mount
from gpuhook.settings.values import CAPABILITIES

PLAIN = ("runc", "crun", "youki", "io.containerd.runc.v1", "io.containerd.runc.v2")  # runtimes that call no GPU hook
WAYS = ("docker run --gpus all, or --runtime=nvidia with NVIDIA_VISIBLE_DEVICES", "-e NVIDIA_VISIBLE_DEVICES=all")
REQUESTS = "HostConfig.DeviceRequests (docker run --gpus)"


def from_inspect(text: str, source: str) -> list[Subject]:
    """The containers or images in the output of `docker inspect`, `docker image inspect` or `podman inspect`.

    Raises BadBundle.
    """
    hint = "docker inspect --type container NAME, or docker image inspect IMAGE"
    found = parse(text, source, hint)
    listed = found if isinstance(found, list) else [found]
    if not listed:
        raise BadBundle("nothing is described here: the list is empty", where=source, hint=hint)
    for number, item in enumerate(listed):
        if not isinstance(item, dict) or not {"Config", "ContainerConfig"} & set(item):
            text = f"entry {number} is neither a container nor an image: it has no Config"
            raise BadBundle(text, where=source, hint=hint)
    return [_subject(item, source) for item in listed]


def _subject(item: dict[str, Any], source: str) -> Subject:
    config, host = table(item.get("Config") or item.get("ContainerConfig")), table(item.get("HostConfig"))
    listed = [
        (n, entry) for n, entry in enumerate(items(config.get("Env"))) if isinstance(entry, str) and "=" in entry
    ]
    env = dict(entry.split("=", 1) for _, entry in listed)
    places = {entry.split("=", 1)[0]: f"{source}: Config.Env[{n}]" for n, entry in listed}
    requested = _requested(host)
    env |= requested
    places |= dict.fromkeys(requested, f"{source}: {REQUESTS}")
    mounts = tuple(
        Mount(destination=str(mount.get("Destination", "")), source=str(mount.get("Source", "")), index=number)
        for number, mount in enumerate(map(table, items(item.get("Mounts"))))
        if mount
    )
    places |= {mount.destination: f"{source}: Mounts[{mount.index}]" for mount in mounts}
    by_cdi = _cdi(host)
    return Subject(
        _name(item),
        source,
        bundle_of(env, mounts, privileged=_is_privileged(item, host)),
        places,
        notes=tuple(_notes(host, by_cdi)),
        traits=of_inspected(item),
        uncalled=_uncalled(item, host) if host and not requested and not by_cdi else None,
        pending=f"it asks for {by_cdi} by CDI, which the engine itself serves: no hook is called" if by_cdi else "",
        way=WAYS["OCIRuntime" in item],
    )


def _name(item: Mapping[str, Any]) -> str:
    name = item.get("Name") or next(iter(items(item.get("RepoTags"))), "") or item.get("Id", "")
    return str(name)[:80].lstrip("/")


def _is_privileged(item: Mapping[str, Any], host: Mapping[str, Any]) -> bool:
    """Podman tells the bounding set; Docker makes it of what was added."""
    return is_privileged(host.get("Privileged"), [*items(host.get("CapAdd")), *items(item.get("BoundingCaps"))])


def _uncalled(item: Mapping[str, Any], host: Mapping[str, Any]) -> Uncalled | None:
    """Why no hook is called for a container that was made without a device request; None where one may be."""
    if "OCIRuntime" in item:
        return _without_hook_file(item)
    runtime = os.path.basename(str(host.get("Runtime") or ""))
    if runtime not in PLAIN:
        return None
    text = f"it was made with the runtime {runtime} and without --gpus: no GPU hook is called for it"
    return "runtime-not-registered", text, f"make it anew: {WAYS[0]}"


def _without_hook_file(item: Mapping[str, Any]) -> Uncalled | None:
    """Podman writes the hooks that it found into config.json, where that can be read from here."""
    try:
        with Path(str(item.get("OCIConfigPath") or "")).open("rb") as file:
            spec = table(json.loads(file.read(16 << 20)))
    except (OSError, ValueError, RecursionError):
        return None
    runtime = os.path.basename(str(item.get("OCIRuntime") or ""))
    if not spec or has_hook(spec) or runtime not in PLAIN:
        return None
    text = f"Podman found no GPU hook for it and made it with {runtime}: no GPU hook is called for it"
    return "podman-hooks-dir", text, "gpuhook install podman, then make it anew"


def _gpu_requests(host: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The device requests that NVIDIA's hook serves, with their capabilities: all alternatives of them."""
    for request in map(table, items(host.get("DeviceRequests"))):
        names = [str(name) for group in items(request.get("Capabilities")) for name in items(group)]
        if request.get("Driver") in (None, "", "nvidia") and {"gpu", "nvidia"} & set(names):
            yield request, names


def _requested(host: Mapping[str, Any]) -> dict[str, str]:
    """The variables that dockerd adds for `--gpus`, from HostConfig.DeviceRequests."""
    env: dict[str, str] = {}
    for request, names in _gpu_requests(host):
        ids, count = ",".join(map(str, items(request.get("DeviceIDs")))), _count(request)
        if wanted := ids or ("all" if count < 0 else ",".join(map(str, range(min(count, MOST_GPUS))))):
            env["NVIDIA_VISIBLE_DEVICES"] = wanted
        if some := [name for name in names if name in CAPABILITIES]:
            env["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(some)
    return env


def _count(request: Mapping[str, Any]) -> int:
    count = request.get("Count")
    return int(count) if isinstance(count, int | float) and abs(count) < 1e9 else 0


def _cdi(host: Mapping[str, Any]) -> str:
    """The CDI devices of NVIDIA's that it was made with."""
    requests = [table(request) for request in items(host.get("DeviceRequests"))]
    names = [str(name) for one in requests if one.get("Driver") == "cdi" for name in items(one.get("DeviceIDs"))]
    return ", ".join(name for name in names if name.startswith("nvidia.com/"))


def _notes(host: Mapping[str, Any], by_cdi: str) -> Iterator[tuple[str, str]]:
    for request, _ in _gpu_requests(host):
        if not items(request.get("DeviceIDs")) and not _count(request):
            text = "--gpus 0 is a number of GPUs, none: the image's own NVIDIA_VISIBLE_DEVICES stays in force"
            yield "unknown-device", text
    if by_cdi:
        yield "cdi-stale", f"{by_cdi} comes by CDI, as the specification in /etc/cdi or /var/run/cdi says"
