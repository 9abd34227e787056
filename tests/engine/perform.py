"""Operations done in a container's namespace by the engine's own parts, in a process that may lose itself in there.

As a program (python -m tests.engine.perform): a pickled Job on stdin, a JSON list on stdout with an entry a round,
which is "" or the rendered error.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from dataclasses import dataclass

from gpuhook.backend.apply import Worker
from gpuhook.backend.container import Container
from gpuhook.backend.image import read_cache
from gpuhook.backend.sources import open_sources
from gpuhook.backend.tree import Tree
from gpuhook.errors import GpuhookError
from gpuhook.kernel import libc
from gpuhook.kernel.child import run_in_child
from gpuhook.plan.ops import Op, Plan
from tests.rig.init import Init
from tests.rig.process import run

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ARGV = (sys.executable, "-m", "tests.engine.perform")


@dataclass(frozen=True)
class Job:
    """What to do. takes_back: undo it after success too; hangs: stop for ever after the work; deadline: seconds."""

    pid: int
    rootfs: str
    ops: tuple[Op, ...]
    driver_root: str
    write_into_volumes: bool = False
    rounds: int = 1
    takes_back: bool = False
    hangs: bool = False
    deadline: float = 10.0


@dataclass(frozen=True)
class Outcome:
    """errors: a rendered error each round, "" for success; notes: what was said meanwhile; seconds: wall time."""

    errors: tuple[str, ...]
    notes: str
    seconds: float

    @property
    def error(self) -> str:
        """The error of the last round."""
        return self.errors[-1]

    @property
    def slug(self) -> str:
        """The error's reference, "" for success."""
        return self.error.split(": ")[1] if self.error else ""


def perform(init: Init, driver_root: str, *ops: Op, rootfs: str = "", **options: bool | float) -> Outcome:
    """Does these operations in the container of this process. rootfs: another than its own."""
    job = Job(init.pid, rootfs or init.rootfs, ops, driver_root, **options)  # type: ignore[arg-type]
    env = {**os.environ, "GPUHOOK_DEBUG": "1"}
    done = run(ARGV, stdin=pickle.dumps(job), env=env, cwd=PROJECT)
    if done.status:
        raise RuntimeError(done.stderr)
    return Outcome(tuple(json.loads(done.stdout)), done.stderr, done.seconds)


def _do(job: Job) -> str:
    """One round."""
    try:
        container = Container(job.pid, job.rootfs)
        sources = open_sources(Plan(ops=job.ops), job.driver_root)

        def work() -> bytes:
            libc.setns(container.pidfd, libc.CLONE_NEWNS)
            libc.make_files_as(*container.owner)
            tree = Tree(container, write_into_volumes=job.write_into_volumes)
            Worker(tree, sources, *read_cache(tree.root)).apply(Plan(ops=job.ops))
            if job.takes_back:
                tree.undo()
            if job.hangs:
                os.kill(os.getpid(), signal.SIGSTOP)
            return b""

        run_in_child(work, job.deadline, "configuring the container")
    except GpuhookError as error:
        return error.render()
    finally:
        os.closerange(3, 256)
    return ""


if __name__ == "__main__":
    the_job = pickle.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps([_do(the_job) for _ in range(the_job.rounds)]))
