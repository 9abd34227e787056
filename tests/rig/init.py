"""A container's first process without a runtime, and hooks run on it: for tests of the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Any

from tests.rig.needs import need
from tests.rig.process import Result, run

if TYPE_CHECKING:
    from typing_extensions import Self

PAUSE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pause.py")
DEVICES = "/sys/fs/cgroup/devices"
GROUP = "gpuhook-rig-init"
_numbers = count(1)


@dataclass
class Init:
    """A sleeping process with mount and pid namespaces of its own over this rootfs. Use it with `with`.

    rootfs: absolute; user_from: first host id of a user namespace, 0 for none; binds: (source, target below the
    rootfs); tmpfs: targets; proc, dev: whether procfs and a tmpfs for /dev are mounted; group: a devices cgroup (v1)
    that denies everything but mknod; shared: the rootfs mount is shared; readonly: it is read-only.
    """

    rootfs: str
    user_from: int = 0
    binds: Sequence[tuple[str, str]] = ()
    tmpfs: Sequence[str] = ()
    proc: bool = True
    dev: bool = True
    group: bool = False
    shared: bool = False
    readonly: bool = False
    pid: int = 0
    group_path: str = ""
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        need()
        if self.group:
            self.group_path = _make_group()
        job = {
            "rootfs": self.rootfs,
            "user_from": self.user_from,
            "binds": [list(bind) for bind in self.binds],
            "tmpfs": list(self.tmpfs),
            "proc": self.proc,
            "dev": self.dev,
            "group": self.group_path,
            "shared": self.shared,
            "readonly": self.readonly,
        }
        argv = [sys.executable, "-I", "-S", PAUSE, json.dumps(job)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        answer = _pipe(self._process.stdout).readline().decode().strip()
        if not answer.isdigit():
            self.__exit__()
            raise RuntimeError(f"the container's first process did not start: {answer}")
        self.pid = int(answer)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process:
            _pipe(self._process.stdin).close()
            self._process.wait(30)
            _pipe(self._process.stdout).close()
            self._process = None
        if self.group_path:
            _remove_group(self.group_path)

    def kill(self) -> None:
        """Ends the container's first process now, as if it had crashed."""
        os.kill(self.pid, signal.SIGKILL)

    def path(self, name: str) -> str:
        """A path of the container, as this process can open it. Links on the way lead into the host's tree: beware."""
        return f"/proc/{self.pid}/root{self.rootfs}{name}"

    @property
    def mounts(self) -> list[str]:
        """The lines of its mountinfo that are below the rootfs, the rootfs itself included."""
        with open(f"/proc/{self.pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
        inside = (self.rootfs, f"{self.rootfs}/")
        return [line for line in lines if line.split(" ")[4] == inside[0] or line.split(" ")[4].startswith(inside[1])]

    @property
    def mount_points(self) -> dict[str, str]:
        """Mount point as the container will see it → its options; of stacked mounts the uppermost."""
        fields = [line.split(" ") for line in self.mounts]
        return {field[4][len(self.rootfs) :] or "/": field[5] for field in fields}

    @property
    def rules(self) -> list[str]:
        """The lines of devices.list of its cgroup."""
        with open(f"{self.group_path}/devices.list", encoding="ascii") as file:
            return file.read().splitlines()

    def run(self, *argv: str, timeout: float = 60) -> Result:
        """Runs a program of the container's tree inside: its mount, pid and user namespaces, its cgroup, its root."""
        user = ["--user", "--setuid", "0", "--setgid", "0"] if self.user_from else []
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--pid", *user, "chroot", self.rootfs, *argv]
        if not self.group_path:
            return run(inside, timeout=timeout)
        joined = ["busybox", "sh", "-c", 'echo $$ > "$0"; exec "$@"', f"{self.group_path}/tasks", *inside]
        return run(joined, timeout=timeout)

    def state(self, bundle: str, **changes: Any) -> bytes:
        """The OCI state that a runtime would write for it; a change to None leaves the key out."""
        state = {"ociVersion": "1.0.2", "id": f"init-{self.pid}", "status": "creating", "pid": self.pid}
        state |= {"bundle": bundle, **changes}
        return json.dumps({key: value for key, value in state.items() if value is not None}).encode()


def run_hook(
    argv: Sequence[str],
    state: bytes | Mapping[str, Any],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 30,
) -> Result:
    """Runs a hook as a runtime does, with this state on stdin."""
    return run(argv, stdin=state if isinstance(state, bytes) else json.dumps(state).encode(), env=env, timeout=timeout)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream


def _make_group() -> str:
    path = f"{DEVICES}/{GROUP}-{os.getpid()}-{next(_numbers)}"
    os.mkdir(path)
    for name, rule in (("deny", "a"), ("allow", "c *:* m"), ("allow", "c 1:3 rwm"), ("allow", "c 1:5 rwm")):
        with open(f"{path}/devices.{name}", "w", encoding="ascii") as file:
            file.write(rule)
    return path


def _remove_group(path: str) -> None:
    """Removes it once its last process is gone from it, which takes the kernel a moment."""
    give_up = monotonic() + 5
    while os.path.exists(path) and monotonic() < give_up:
        with suppress(OSError):
            os.rmdir(path)
        sleep(0.01)
