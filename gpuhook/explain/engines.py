"""What an engine says of a container, asked by its own command; nothing is changed."""

from __future__ import annotations

import os
import shutil
import subprocess

from gpuhook.errors import BadBundle, Usage
from gpuhook.explain.inspected import from_inspect
from gpuhook.explain.subject import Subject, from_bundle

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT = 10  # seconds for an engine's answer
TASKS = "/run/containerd/io.containerd.runtime.v2.task"
CTR = "as root: ctr namespaces list, ctr -n NAMESPACE tasks list"


def inspected(engine: str, name: str) -> list[Subject]:
    """A container of Docker or Podman by its name or id. Raises Usage and BadBundle."""
    program = shutil.which(engine, path=PATH)
    if program is None:
        raise Usage(f"{engine} is not installed here", hint=f"searched in {PATH}")
    if name.startswith("-"):
        raise Usage(f"{name!r} is no name of a container")
    command = [program, "inspect", "--type", "container", name]
    where = f"{engine} inspect {name}"
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as late:
        hint = f"is it alive? {engine} version asks it too"
        raise BadBundle(f"{engine} did not answer within {LIMIT} s", where=where, hint=hint) from late
    except (OSError, ValueError) as error:
        raise BadBundle(f"{engine} cannot be asked: {error}", where=where) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")
        raise BadBundle(f"{engine} says: {reason(said)}", where=where, hint=_way_out(engine, said))
    return from_inspect(done.stdout.decode("utf-8", "replace"), where)


def reason(stderr: str) -> str:
    """The line in which a command says what went wrong: the first that names an error, else the last one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = (line for line in lines if line.lower().startswith(("error", "cannot", "permission denied")))
    return next(told, lines[-1] if lines else "no reason given")


def _way_out(engine: str, said: str) -> str:
    text = said.lower()
    if "no such" in text or "no container" in text:
        return f"{engine} ps --all lists containers; for an image: {engine} image inspect IMAGE | gpuhook explain \
--image-json -"
    return "ask as root" if "permission denied" in text and os.geteuid() else ""


def of_containerd(name: str) -> Subject:
    """The bundle of a running container of containerd, by its id or the beginning of it. Raises BadBundle."""
    if "/" in name or name in ("", ".", ".."):
        raise Usage(f"{name!r} is no id of a container")
    try:
        found = [
            entry.path
            for namespace in sorted(os.listdir(TASKS))
            for entry in os.scandir(f"{TASKS}/{namespace}")
            if entry.name.startswith(name)
        ]
    except FileNotFoundError:
        found = []
    except OSError as error:
        hint = "explain it as root" if os.geteuid() else ""
        raise BadBundle(
            f"cannot look for it: {error.strerror}", where=str(error.filename or TASKS), hint=hint
        ) from error
    whole = [path for path in found if os.path.basename(path) == name]
    if len(whole or found) != 1:
        problem = "no such running container" if not found else f"{len(found)} containers begin so"
        raise BadBundle(f"{name}: {problem}", where=TASKS, hint=CTR)
    return from_bundle((whole or found)[0])
