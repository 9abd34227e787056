"""The outcome of a process, and running one with everything captured."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from tests.rig.probe import Seen, seen

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Result:
    """How a process ended. status: negative for a signal, as in subprocess; seconds: wall time."""

    status: int
    stdout: str
    stderr: str
    seconds: float = 0.0
    mounts_before: bytes = b""
    mounts_after: bytes = b""

    @property
    def seen(self) -> Seen:
        """The probe's answers in stdout."""
        return seen(self.stdout)

    @property
    def mounts_leaked(self) -> bool:
        """Whether the mount table of the runtime's (and the hook's) namespace changed."""
        return self.mounts_before != self.mounts_after


def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    cwd: str = "/",
) -> Result:
    """Runs a program to its end in a session of its own, which is killed at the timeout (status -9)."""
    begun = monotonic()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": PATH} if env is None else dict(env),
        cwd=cwd,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"(killed after {timeout:g} s)\n".encode()
    texts = (out.decode(errors="replace"), err.decode(errors="replace"))
    return Result(process.returncode, *texts, monotonic() - begun)
