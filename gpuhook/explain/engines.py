"""What an engine says of a container, asked by its own command; nothing is changed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from gpuhook.errors import BadBundle, Usage
from gpuhook.explain.subject import Subject, from_bundle, from_inspect

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT = 20  # seconds for an engine's answer
TASKS = Path("/run/containerd/io.containerd.runtime.v2.task")


def inspected(engine: str, name: str) -> list[Subject]:
    """A container of Docker or Podman by its name or id. Raises Usage and BadBundle."""
    program = shutil.which(engine, path=PATH)
    if program is None:
        raise Usage(f"{engine} is not installed here", hint=f"searched in {PATH}")
    if name.startswith("-"):
        raise Usage(f"{name!r} is no name of a container")
    command = [program, "inspect", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as late:
        raise BadBundle(f"{engine} did not answer within {LIMIT} s", where=" ".join(command)) from late
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise BadBundle(f"{engine} says: {reason[0]}", where=" ".join(command))
    return from_inspect(done.stdout, f"{engine} inspect {name}")


def of_containerd(name: str) -> Subject:
    """The bundle of a running container of containerd, by its id. Raises BadBundle."""
    if "/" in name or name in ("", ".", ".."):
        raise Usage(f"{name!r} is no id of a container")
    try:
        found = sorted(TASKS.glob(f"*/{name}*/config.json"))
    except OSError as error:
        raise BadBundle(f"cannot look for it: {error.strerror}", where=str(TASKS)) from error
    if len(found) != 1:
        problem = "no such running container" if not found else f"{len(found)} containers begin so"
        raise BadBundle(f"{name}: {problem}", where=str(TASKS), hint="as root: ctr -n NAMESPACE tasks list")
    return from_bundle(str(found[0].parent))
