"""The container to explain: as the hook would see it, and what its description shows besides."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuhook.errors import BadBundle, Usage
from gpuhook.explain.traits import Traits, items, of_spec, table
from gpuhook.oci.bundle import Bundle, Mount, read_bundle

LARGEST = 64 << 20  # bytes of a description
MOST_GPUS = 128  # of a node
ROOTFS = "/rootfs"
HOOKS = ("gpuhook", "nvidia-container")  # what the programs of GPU hooks are called at the beginning
Uncalled = tuple[str, str, str]


@dataclass(frozen=True)
class Subject:
    """A container as the hook would see it.

    name: for people; source: where it was read; bundle: what the hook would read; places: where each variable and
    mount stands; remarks, notes: (slug, text) of what the description itself shows, warnings and lesser ones; traits:
    what else is known of it; uncalled: slug, text and advice where no engine calls a hook for it.
    Where somebody else will ask for its devices: stand_ins, the variables and mounts that stand for that here; caveat:
    what they stand for; pending: what to say where nothing can. elsewhere: who else may set its variables; way: how it
    would ask for a GPU.
    """

    name: str
    source: str
    bundle: Bundle
    places: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    traits: Traits = field(default_factory=Traits)
    uncalled: Uncalled | None = None
    stand_ins: tuple[str, ...] = ()
    caveat: str = ""
    pending: str = ""
    elsewhere: str = ""
    way: str = "NVIDIA_VISIBLE_DEVICES=all"

    def place(self, name: str) -> str:
        """Where a variable or a mount's destination stands in the source."""
        return self.places.get(name, self.source)


def from_bundle(folder: str) -> Subject:
    """The bundle in this folder, which may be named by its config.json. Raises BadBundle."""
    path = str(Path(folder).absolute())
    if os.path.basename(path) == "config.json" and not os.path.isdir(path):
        path = os.path.dirname(path)
    _require_readable(path)
    bundle = read_bundle(path)
    spec = table(json.loads(Path(path, "config.json").read_bytes()))
    entries = [str(entry) for entry in items(table(spec.get("process")).get("env"))]
    places = {entry.partition("=")[0]: f"config.json: process.env[{n}]" for n, entry in enumerate(entries) if entry}
    places |= {mount.destination: f"config.json: mounts[{mount.index}]" for mount in bundle.mounts}
    return Subject(
        os.path.basename(path), path, bundle, places, traits=of_spec(spec, path), uncalled=_uncalled_in(spec)
    )


def _require_readable(path: str) -> None:
    """Say whose a bundle is that is not ours to read. Raises BadBundle."""
    place = path
    try:
        for place in (path, f"{path}/config.json"):
            owner = os.stat(place).st_uid
            if not os.access(place, os.R_OK):
                raise BadBundle(
                    f"cannot read it: it belongs to the user {owner}",
                    where=place,
                    hint="explain it as root, or as that user",
                )
    except FileNotFoundError as error:
        what = "there is no such folder" if place == path else "the folder has no config.json: it is no bundle"
        raise BadBundle(what, where=path, hint="gpuhook explain --help names other ways") from error
    except OSError as error:
        raise BadBundle(f"cannot read it: {error.strerror}", where=place, hint="explain it as root") from error


def has_hook(spec: Mapping[str, Any]) -> bool:
    """Whether a config.json names a GPU hook."""
    hooks = [table(hook) for stage in table(spec.get("hooks")).values() for hook in items(stage)]
    return any(os.path.basename(str(hook.get("path", ""))).startswith(HOOKS) for hook in hooks)


def _uncalled_in(spec: Mapping[str, Any]) -> Uncalled | None:
    if has_hook(spec):
        return None
    text = "config.json has no GPU hook: unless an engine adds one, the hook is not called for this container"
    return "hook-not-invoked", text, "register gpuhook (gpuhook install), or start it with gpuhook-runtime"


def from_variables(entries: list[str]) -> Subject:
    """An unprivileged container with these NAME=VALUE entries. Raises Usage."""
    for entry in entries:
        if "=" not in entry:
            raise Usage(f"--env takes NAME=VALUE, not {entry!r}")
    env = dict(entry.split("=", 1) for entry in entries)
    return Subject("(variables)", "the command line", bundle_of(env), {name: f"--env {name}" for name in env})


def bundle_of(env: Mapping[str, str], mounts: tuple[Mount, ...] = (), *, privileged: bool = False) -> Bundle:
    """What the hook would read of a container that has no bundle here."""
    return Bundle(path="/", env=dict(env), mounts=mounts, root_path=ROOTFS, privileged=privileged)


def is_privileged(flag: object, capabilities: Iterable[object]) -> bool:
    """Whether a container has CAP_SYS_ADMIN, by its description's flag or by the capabilities that it names."""
    names = {str(name).upper().removeprefix("CAP_") for name in capabilities}
    return flag is True or bool(names & {"SYS_ADMIN", "ALL"})


def parse(text: str, source: str, hint: str = "") -> Any:
    """A JSON text. Raises BadBundle."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadBundle(f"it is not JSON: {fault}", where=source, hint=hint) from fault
