"""The hook started directly on a waiting process, with whatever stdin, surroundings and bundle an attack needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.attack.rig import Lab, Run, read_report
from tests.rig.init import Init
from tests.rig.process import PATH, Result
from tests.rig.spec import base_spec

ALL_GPUS = "NVIDIA_VISIBLE_DEVICES=all"
# Run by the interpreter in front of the hook: opens descriptors 3 to 200, the first of them the host's root.
MANY_FILES = """
import os, sys
root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
for fd in range(3, 201):
    if fd != root:
        os.dup2(root, fd)
    os.set_inheritable(fd, True)
os.execv(sys.argv[1], sys.argv[1:])
"""


def python(code: str) -> tuple[str, ...]:
    """Words that go in front of a command and run this code first, which becomes the command by itself."""
    return sys.executable, "-I", "-S", "-c", code


def shell(script: str, *words: str) -> tuple[str, ...]:
    """The same with a shell script in a mount namespace of its own. words: its $1 and so on, taken off first."""
    taken = "".join(f'word{number}="$1"; shift; ' for number in range(1, len(words) + 1))
    return "unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{taken}{script}; exec "$@"', "sh", *words


@dataclass(frozen=True)
class Scene:
    """A process that hooks run on, whose root filesystem lies in its bundle as `rootfs`."""

    lab: Lab
    init: Init
    bundle: str

    def write(self, edit: Callable[[dict[str, Any]], object] | None = None, *env: str, gpus: bool = True) -> None:
        """Writes config.json: it asks for all GPUs, has these variables, and is changed by `edit` at last."""
        spec = base_spec()
        spec["process"]["env"] += [*([ALL_GPUS] if gpus else []), *env]
        if edit is not None:
            edit(spec)
        self.write_bytes(json.dumps(spec).encode())

    def write_bytes(self, data: bytes) -> None:
        """Writes these bytes as config.json."""
        Path(self.bundle, "config.json").write_bytes(data)

    def text(self) -> bytes:
        """What stands in config.json."""
        return Path(self.bundle, "config.json").read_bytes()

    def state(self, **changes: Any) -> bytes:
        """The state in order but for these changes; None removes."""
        return self.init.state(**{"bundle": self.bundle, **changes})

    def start(
        self, stdin: bytes | int | None = None, *, config: str = "", before: Sequence[str] = (),
        env: Mapping[str, str] | None = None, cwd: str = "/", **changes: Any,
    ) -> Run:  # fmt: skip
        """Runs the hook and holds the oracles of one run against it; those about the host are the fixture's.

        stdin: bytes or a descriptor, the state by default; before: words in front of the hook's, which run it;
        env: the hook's whole environment; changes: of the state.
        """
        lab, rootfs = self.lab, self.init.rootfs
        hook, path = lab.hook_of(config or lab.config(**{"no-cgroups": True}), private=True)
        argv = [hook.path, *hook.args]
        given = env if env is not None else {"PATH": PATH}
        place = argv.index(lab.node.launcher)
        argv[place:place] = ["env", "-i", "-C", cwd, *(f"{key}={value}" for key, value in given.items()), *before]
        world, mounts = lab.before(rootfs, light=True), self.init.mounts
        result = run_with(argv, self.state(**changes) if stdin is None else stdin)
        report = read_report(path, result)
        broken = lab.broken(world, rootfs, report, light=True)
        if report.status and lab.looks_at_tree and self.init.mounts != mounts:
            broken.append(f"O-ATOM: mounts stay in the container: {set(self.init.mounts) ^ set(mounts)}")
        return lab.ended(world, rootfs, result, report, broken)


def run_with(argv: Sequence[str], stdin: bytes | int) -> Result:
    """Runs a program with these bytes, or this descriptor, as its stdin."""
    with subprocess.Popen(
        argv, stdin=stdin if isinstance(stdin, int) else subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={"PATH": PATH}, cwd="/",
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(None if isinstance(stdin, int) else stdin, 30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Result(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
