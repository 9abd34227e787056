"""What a container's description shows besides its request: rights, mounts, root filesystem, runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Traits:
    """As far as it is known.

    rootfs: where its files can be read on this machine, "" for nowhere; readonly: whether its root cannot be written;
    all_devices: the engine gives it every device; devices: paths of those that it gets by name; destinations: where
    files of the host or of a volume are mounted, with whether they are read-only; nofile: the limit of open files, 0
    for not said; label: SELinux's of its processes, None where it is not known; runtime: the low-level OCI runtime, ""
    where it is not known; annotations: of the container; odd: what of its configuration is of an old form; twice:
    variables that are given twice; version: of the OCI format.
    """

    rootfs: str = ""
    readonly: bool = False
    all_devices: bool = False
    devices: tuple[str, ...] = ()
    destinations: Mapping[str, bool] = field(default_factory=dict)
    nofile: int = 0
    label: str | None = None
    runtime: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    odd: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    version: str = ""


OWN = ("tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2")  # types of mounts that bring no files along


def table(value: object) -> dict[str, Any]:
    """The value, if it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value, if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def twice(entries: list[Any]) -> tuple[str, ...]:
    """The names that more than one NAME=value entry has."""
    names = [str(entry).partition("=")[0] for entry in entries]
    return tuple(dict.fromkeys(name for name in names if names.count(name) > 1))


def of_spec(spec: Mapping[str, Any], bundle: str) -> Traits:
    """The traits in a bundle's config.json."""
    process, linux, root = table(spec.get("process")), table(spec.get("linux")), table(spec.get("root"))
    limits = [table(limit) for limit in items(process.get("rlimits"))]
    mounts = [mount for mount in map(table, items(spec.get("mounts"))) if mount.get("type") not in OWN]
    path = os.path.join(bundle, str(root.get("path") or ""))
    return Traits(
        rootfs=path if root.get("path") and os.path.isdir(path) else "",
        readonly=root.get("readonly") is True,
        all_devices=_allows_all(items(table(linux.get("resources")).get("devices"))),
        devices=tuple(str(table(device).get("path", "")) for device in items(linux.get("devices"))),
        destinations={str(mount.get("destination", "")): "ro" in items(mount.get("options")) for mount in mounts},
        nofile=max(
            (_number(limit.get("soft")) for limit in limits if limit.get("type") == "RLIMIT_NOFILE"), default=0
        ),
        label=str(process.get("selinuxLabel") or "") if "selinuxLabel" in process else None,
        annotations={str(key): str(value) for key, value in table(spec.get("annotations")).items()},
        odd=tuple(_odd(spec, process)),
        twice=twice(items(process.get("env"))),
        version=str(spec.get("ociVersion") or ""),
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _allows_all(rules: list[Any]) -> bool:
    """Whether the last rule about all devices allows them (privileged containers)."""
    general = [
        rule for rule in map(table, rules) if rule.get("major") in (None, -1) and rule.get("minor") in (None, -1)
    ]
    return bool(general) and general[-1].get("allow") is True and "r" in str(general[-1].get("access") or "rwm")


def _odd(spec: Mapping[str, Any], process: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(process.get("capabilities"), list):
        yield "process.capabilities is a list, as before OCI 1.0"
    if "linux" not in spec:
        yield "linux is missing"
    if "env" not in process:
        yield "process.env is missing"


def of_inspected(item: Mapping[str, Any]) -> Traits:
    """The traits in what `docker inspect` or `podman inspect` says of a container, or of an image."""
    config, host = table(item.get("Config")), table(item.get("HostConfig"))
    merged = str(table(table(item.get("GraphDriver")).get("Data")).get("MergedDir") or "")
    mounts = [mount for mount in map(table, items(item.get("Mounts"))) if mount.get("Type") not in OWN]
    limits = [table(limit) for limit in items(host.get("Ulimits"))]
    open_files = [_number(limit.get("Soft")) for limit in limits if "nofile" in str(limit.get("Name", "")).lower()]
    return Traits(
        rootfs=merged if merged and _is_folder(merged) else "",
        readonly=host.get("ReadonlyRootfs") is True,
        all_devices=host.get("Privileged") is True,
        devices=tuple(str(table(one).get("PathInContainer", "")) for one in items(host.get("Devices"))),
        destinations={str(mount.get("Destination", "")): mount.get("RW") is False for mount in mounts},
        nofile=max(open_files, default=0),
        label=str(item["ProcessLabel"]) if isinstance(item.get("ProcessLabel"), str) else None,
        runtime=os.path.basename(str(item.get("OCIRuntime") or host.get("Runtime") or "")),
        annotations={str(key): str(value) for key, value in table(_annotations(config, host)).items()},
        twice=twice(items(config.get("Env"))),
    )


def _annotations(config: Mapping[str, Any], host: Mapping[str, Any]) -> object:
    return host.get("Annotations") or config.get("Annotations")


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # not ours to see
        return False
