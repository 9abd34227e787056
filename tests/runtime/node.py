"""A node for tests: a fake driver with three GPUs, the lean launcher, and configurations that point to them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from tests.rig.container import Container, Hook
from tests.rig.init import Init, run_hook
from tests.rig.needs import need, unified_host
from tests.rig.process import Result, run
from tests.rig.snapshot import Snapshot, snapshot
from tests.rig.spec import base_spec

# Index, minor and address disagree on purpose: whoever takes one for the other gives the wrong GPU.
GPUS = (
    {"index": 0, "minor": 2, "uuid": "GPU-0a000000-1111-2222-3333-000000000000", "pci": "0000:3b:00.0"},
    {"index": 1, "minor": 0, "uuid": "GPU-1b000000-1111-2222-3333-000000000001", "pci": "0000:3f:00.0"},
    {"index": 2, "minor": 1, "uuid": "GPU-2c000000-1111-2222-3333-000000000002", "pci": "0000:5e:00.0"},
)
COMMON = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl")
# crun's v1 and v2 cannot both run here: with v2 it raises RLIMIT_MEMLOCK, which a machine may forbid.
PAIRS = (("runc", "v2"), ("crun", "v2")) if unified_host() else (("runc", "v1"), ("runc", "v2"), ("crun", "v1"))
# A process without a runtime has a devices cgroup of its own only where version 1 is there.
RULES = {"no-cgroups": True} if unified_host() else {}


@dataclass
class Node:
    """folder: of everything; launcher: the hook's path; driver: the fake one. Configurations are made by `config`."""

    folder: str
    launcher: str
    driver: FakeDriver
    _configs: dict[str, str] = field(default_factory=dict)

    def config(self, *, backend: str = "embedded", cli: Mapping[str, object] | None = None, text: str = "") -> str:
        """The path of a config.toml with this backend, these keys of [nvidia-container-cli], and text before all."""
        keys = {"root": self.driver.root, **(cli or {})}
        lines = [text, "[nvidia-container-cli]", *(f"{key} = {_toml(value)}" for key, value in keys.items())]
        return self.write_config("\n".join([*lines, "[gpuhook]", f'backend = "{backend}"', ""]))

    def write_config(self, text: str) -> str:
        """The path of a config.toml of this text."""
        if text not in self._configs:
            path = f"{self.folder}/config-{len(self._configs)}.toml"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            self._configs[text] = path
        return self._configs[text]

    def hook(self, stage: str = "prestart", config: str = "", log: str = "") -> Hook:
        """An entry that runs this stage. log: a file that gets its stderr, which runtimes show of failures only."""
        args = ("--config", config or self.config(), "--debug", stage)
        if not log:
            return Hook(self.launcher, args)
        return Hook(self.script(f'exec {self.launcher} "$@" 2>> {log}\n'), args)

    def script(self, text: str) -> str:
        """A shell script of this text that can be executed."""
        path = f"{self.folder}/script-{len(os.listdir(self.folder))}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}")
        os.chmod(path, 0o755)
        return path

    def host(self) -> Snapshot:
        """The host's side now: the driver's tree, and the mounts that a hook could have made."""
        return state_of(self.driver.folder)

    def processes(self) -> list[str]:
        """Command lines of processes that belong to this node."""
        found = []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if self.launcher in line:
                found.append(line)
        return found

    def bundle(self, rootfs: str, *env: str, **changes: object) -> str:
        """A bundle for this tree with this environment. changes: of the specification's top level, None removes."""
        folder = f"{self.folder}/bundle-{len(os.listdir(self.folder))}"
        os.mkdir(folder)
        spec = base_spec()
        spec["root"]["path"] = rootfs
        spec["process"]["args"] = ["true"]
        spec["process"]["env"] += env
        spec |= changes
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({key: value for key, value in spec.items() if value is not None}, file)
        return folder

    def prestart(self, init: Init, *env: str, config: str = "", stage: str = "prestart", **changes: object) -> Result:
        """Runs the hook on this process, whose container has this environment. changes: of its specification."""
        argv = [self.launcher, "--config", config or self.config(cli=RULES), stage]
        return run_hook(argv, init.state(self.bundle(init.rootfs, *env, **changes)))

    def run(self, *questions: str, gpus: str | None = "all", env: tuple[str, ...] = (), **fields: Any) -> Result:
        """Runs the probe with these questions in a container that asks for these GPUs (None: says nothing)."""
        asked = (f"NVIDIA_VISIBLE_DEVICES={gpus}",) if gpus is not None else ()
        fields = {"hooks": {"prestart": [self.hook()]}, "kind": "debian", **fields}
        with Container(args=("/bin/probe", *questions), env=(*asked, *env), **fields) as container:
            return container.run()


def state_of(*folders: str) -> Snapshot:
    """The state of these folders now, and of the mounts that have to do with them or with NVIDIA's driver.

    Others may mount and unmount something on this machine meanwhile.
    """
    now = snapshot(*folders)
    words = (b"nvidia", b"ld.so.cache", *(folder.encode() for folder in folders))
    lines = [line for line in now.mounts.splitlines() if any(word in line for word in words)]
    return replace(now, mounts=b"\n".join(lines))


def make_node(folder: str) -> Node:
    """A node in this folder, which exists."""
    need("gcc")
    driver = build(f"{folder}/driver", gpus=GPUS)
    start = "from gpuhook.hook import main; raise SystemExit(main())"
    done = run([sys.executable, "-c", start, "launchers", folder], cwd=_project())
    if done.status:
        raise RuntimeError(f"no launcher was written: {done.stderr}")
    return Node(folder, f"{folder}/gpuhook", driver)


def _project() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'
