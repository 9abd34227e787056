"""Many rounds of the engine's own work in a process that may lose itself in a container: for tables and for races.

As a program (python -m tests.attack.rounds): a pickled Job on stdin, on stdout a JSON list with the rendered error of
each round, "" for success.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from gpuhook.backend.engine import prepare
from gpuhook.plan.ops import Op
from gpuhook.request.model import DeviceChoice, Request
from gpuhook.settings.values import CAPABILITIES, Settings
from tests.engine import perform
from tests.rig import kernel
from tests.rig.init import Init
from tests.rig.process import run


def make_socket(path: str, _to: str) -> None:
    """A socket file, bound by a short name: addresses have 108 bytes."""
    folder = os.open(os.path.dirname(path), os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    os.close(folder)


def make_file(path: str, content: str) -> None:
    """A regular file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)


# What can be put in a target's place: form → (path, argument) → done.
FORMS: dict[str, Callable[[str, str], object]] = {
    "link": lambda path, to: os.symlink(to, path),
    "hard link": lambda path, to: os.link(to, path),
    "FIFO": lambda path, _: os.mkfifo(path),
    "socket": make_socket,
    "character device": lambda path, _: os.mknod(path, 0o020666, os.makedev(1, 5)),
    "block device": lambda path, _: os.mknod(path, 0o060666, os.makedev(8, 0)),
    "folder": lambda path, _: os.mkdir(path),
    "file": make_file,
}


@dataclass(frozen=True)
class Plant:
    """Something that stands at a target while a round goes on. to: a link's text, a file's content."""

    target: str
    form: str
    to: str = ""


@dataclass(frozen=True)
class Job:
    """What to do: a round for each plant, or `rounds` rounds. ops: of the plan, each round done and taken back."""

    pid: int
    rootfs: str
    ops: tuple[Op, ...]
    driver_root: str
    plants: tuple[Plant, ...] = ()
    rounds: int = 1
    write_into_volumes: bool = False


def plan_of(driver_root: str, capabilities: tuple[str, ...] = CAPABILITIES) -> tuple[Op, ...]:
    """All operations that give a container everything of this driver."""
    request = Request(
        container="c", pid=1, rootfs="/", devices=DeviceChoice(names=("all",), sources=("x",)),
        capabilities=capabilities,
    )  # fmt: skip
    return prepare(request, Settings(cli_root=driver_root, no_cgroups=True)).plan.ops


def rounds(init: Init, driver_root: str, ops: tuple[Op, ...], timeout: float = 300, **fields: object) -> list[str]:
    """The errors of these rounds in the container of this process."""
    job = Job(init.pid, init.rootfs, ops, driver_root, **fields)  # type: ignore[arg-type]
    argv = [sys.executable, "-m", "tests.attack.rounds"]
    done = run(argv, stdin=pickle.dumps(job), cwd=perform.PROJECT, timeout=timeout)
    if done.status:
        raise RuntimeError(done.stderr)
    errors: list[str] = json.loads(done.stdout)
    return errors


def clear(path: str) -> None:
    """Makes room at a path whose folder is made as well."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)


def identity(path: str) -> tuple[int, int]:
    """Which file stands here."""
    status = os.lstat(path)
    return status.st_mode, status.st_ino


def _planted(job: perform.Job, plant: Plant) -> str:
    place = f"{job.rootfs}{plant.target}"
    clear(place)
    FORMS[plant.form](place, plant.to)
    before = identity(place)
    error = perform._do(job)
    if identity(place) != before:
        error = f"it was replaced: {plant.target}"
    clear(place)
    return error


def _main(job: Job) -> list[str]:
    one = perform.Job(
        job.pid, job.rootfs, job.ops, job.driver_root, takes_back=True, write_into_volumes=job.write_into_volumes
    )
    if job.plants:
        return [_planted(one, plant) for plant in job.plants]
    return [perform._do(one) for _ in range(job.rounds)]


def _mounts() -> str:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="backslashreplace") as file:
        return file.read()


if __name__ == "__main__":
    kernel.private_mounts()
    the_job, the_mounts = pickle.loads(sys.stdin.buffer.read()), _mounts()
    the_errors = _main(the_job)
    if _mounts() != the_mounts:
        raise SystemExit(f"O-MNT: the table was\n{the_mounts}\nand is\n{_mounts()}")
    sys.stdout.write(json.dumps(the_errors))
