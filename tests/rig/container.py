"""A container under a real runtime: made, run, and taken away whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from tests.rig.needs import need, need_cgroup, unified_host
from tests.rig.process import PATH, Result
from tests.rig.rootfs import give_to, make_rootfs, put
from tests.rig.spec import base_spec, in_user_namespace

if TYPE_CHECKING:
    from typing_extensions import Self

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")
GROUP = "gpuhook-rig"
SLACK = 90  # seconds for the runtime's own clean-up, over the container's limit
_numbers = count(1)


@dataclass(frozen=True)
class Hook:
    """An entry of config.json's hooks. args: without the first, which is the path; env: empty as the spec has it."""

    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None

    def entry(self) -> dict[str, Any]:
        """The entry as JSON has it."""
        entry: dict[str, Any] = {"path": self.path, "args": [self.path, *self.args]}
        if self.env:
            entry["env"] = list(self.env)
        if self.timeout is not None:
            entry["timeout"] = self.timeout
        return entry


@dataclass
class Container:
    """A bundle and its run. Use it with `with`: entering makes the bundle, leaving removes everything.

    runtime: "runc" or "crun"; cgroup: "v1" or "v2", "" for this machine's; kind: of root filesystem; args: of the
    entry point; hooks: stage → entries; mounts: added; files: put into the rootfs (texts, bytes, "-> TARGET");
    user_from: first host id of a user namespace, 0 for none; capabilities: added to all sets; edit: changes the
    specification at last; private: run the runtime in a mount namespace of its own (needed for
    any cgroup but the machine's); setup: command lines to run in there before.
    """

    runtime: str = "runc"
    cgroup: str = ""
    kind: str = "busybox"
    args: Sequence[str] = ("/bin/probe", "id")
    env: Sequence[str] = ()
    hooks: Mapping[str, Sequence[Hook]] = field(default_factory=dict)
    mounts: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capabilities: Sequence[str] = ()
    readonly: bool = False
    user_from: int = 0
    propagation: str = ""
    private: bool = True
    edit: Callable[[dict[str, Any]], None] | None = None
    runtime_env: Mapping[str, str] = field(default_factory=dict)
    setup: Sequence[Sequence[str]] = ()
    umask: int = 0o022
    folder: str = ""
    id: str = ""

    def __enter__(self) -> Self:
        self.cgroup = self.cgroup or ("v2" if unified_host() else "v1")
        self.id = f"rig-{os.getpid()}-{next(_numbers)}"
        self.folder = tempfile.mkdtemp(prefix=f"gpuhook-{self.id}-")
        os.chmod(self.folder, 0o711)  # a mapped root of a user namespace has to reach the rootfs
        try:
            os.mkdir(self.bundle, 0o711)
            make_rootfs(self.rootfs, self.kind)
            put(self.rootfs, self.files)
            give_to(self.rootfs, self.user_from)
            self.write_spec()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    @property
    def bundle(self) -> str:
        """The bundle's folder."""
        return f"{self.folder}/bundle"

    @property
    def rootfs(self) -> str:
        """The root filesystem."""
        return f"{self.bundle}/rootfs"

    def spec(self) -> dict[str, Any]:
        """The specification, from the fields."""
        spec = base_spec()
        process, linux = spec["process"], spec["linux"]
        process["args"] = list(self.args)
        process["env"] += list(self.env)
        for names in process["capabilities"].values():
            names += [name for name in self.capabilities if name not in names]
        spec["root"]["readonly"] = self.readonly
        spec["mounts"] += [dict(mount) for mount in self.mounts]
        linux["cgroupsPath"] = f"/{GROUP}/{self.id}"
        if self.propagation:
            linux["rootfsPropagation"] = self.propagation
        if self.user_from:
            in_user_namespace(spec, self.user_from)
        if self.annotations:
            spec["annotations"] = dict(self.annotations)
        if self.hooks:
            spec["hooks"] = {stage: [hook.entry() for hook in hooks] for stage, hooks in self.hooks.items()}
        if self.edit:
            self.edit(spec)
        return spec

    def write_spec(self) -> None:
        """Writes config.json from the fields; call it again after changing them."""
        with open(f"{self.bundle}/config.json", "w", encoding="utf-8") as file:
            json.dump(self.spec(), file, indent=1)

    def run(self, timeout: float = 60) -> Result:
        """Runs the container to its end. status: the entry point's, or the runtime's where it did not start."""
        need(self.runtime)
        need_cgroup(self.cgroup)
        place = tempfile.mkdtemp(prefix="run-", dir=self.folder)
        runtime = shutil.which(self.runtime, path=PATH) or self.runtime
        base = [runtime, "--root", f"{self.folder}/state"]
        job = {
            "argv": [*base, "run", "--bundle", self.bundle, self.id],
            "cleanup": [*base, "delete", "--force", self.id],
            "env": {"PATH": PATH, **self.runtime_env},
            "cwd": self.bundle,
            "umask": self.umask,
            "setup": [list(argv) for argv in self.setup] if self.private else [],
            "timeout": timeout,
            "private": self.private,
            "cgroup": self.cgroup,
            "group": f"{GROUP}/{self.id}",
        }
        return _launch(job, place, timeout)

    def remove(self) -> None:
        """Removes the folder; mounts and processes went with the launcher."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _launch(job: dict[str, Any], place: str, timeout: float) -> Result:
    with open(f"{place}/job.json", "w", encoding="utf-8") as file:
        json.dump(job, file)
    begun = monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-S", LAUNCHER, place], check=False, capture_output=True, timeout=timeout + SLACK
    )
    seconds = monotonic() - begun
    if not os.path.exists(f"{place}/status"):
        raise RuntimeError(f"the launcher failed: {done.stderr.decode(errors='replace')}")
    texts = {name: _bytes(f"{place}/{name}") for name in ("stdout", "stderr", "mounts.before", "mounts.after")}
    return Result(
        int(_bytes(f"{place}/status")),
        texts["stdout"].decode(errors="replace"),
        texts["stderr"].decode(errors="replace"),
        seconds,
        texts["mounts.before"],
        texts["mounts.after"],
    )


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
