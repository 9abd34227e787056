"""The machine that is looked at: files below a root, commands, processes. Tests point it at a tree of a fixture.

Whatever cannot be read raises Unreadable, which makes the check "skipped" and never "ok".
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

LARGEST = 16 << 20  # bytes of a file
AT_ONCE = 1 << 20  # bytes of a read; sysctls (/proc/sys) refuse to be asked for more than 4 MiB
PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin")
# Variables that say which daemon a command talks to.
KEPT = ("HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "XDG_RUNTIME_DIR")
PATIENCE = 5.0  # seconds for a command


class Unreadable(Exception):
    """Something exists and cannot be looked at; the text says what and why."""


@dataclass(frozen=True)
class Process:
    """A process of this node.

    exe: "" if unknown; environ: None if it is not ours to see; started: seconds since the epoch, 0 if unknown; uid: of
    its user.
    """

    pid: int
    argv: tuple[str, ...]
    exe: str = ""
    environ: Mapping[str, str] | None = None
    started: float = 0.0
    uid: int = 0

    @property
    def name(self) -> str:
        """The base name of what was started."""
        return os.path.basename(self.exe or (self.argv[0] if self.argv else ""))

    def option(self, name: str) -> str:
        """The value of an option of its command line, as `--name VALUE` or `--name=VALUE`; "" for none."""
        for at, word in enumerate(self.argv):
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
            if word == name and at + 1 < len(self.argv):
                return self.argv[at + 1]
        return ""


@dataclass(frozen=True)
class Node:
    """A machine. root: of its files, "/" for this one.

    A fixture's tree has beside it (`root`/../) commands.json: {"docker info": {"status": 0, "stdout": "…"}} for what
    commands say there, and processes.json: [{"pid": 1, "argv": […], "exe": "…", "environ": {…}, "started": 0}];
    nodes.json: {"/dev/nvidia0": {"major": 195, "minor": 0, "mode": "0666", "uid": 0, "gid": 0, "label": "…"}} for what
    cannot be kept in a repository; clock.json: the time, in seconds. On this machine the real things are asked.
    """

    root: str = "/"

    @property
    def is_real(self) -> bool:
        """Whether this is the machine we run on."""
        return self.root == "/"

    def _beside(self, name: str, default: object) -> object:
        path = Path(self.root).parent / name
        return default if self.is_real or not path.exists() else json.loads(path.read_text(encoding="utf-8"))

    @cached_property
    def _commands(self) -> dict[str, dict[str, object]]:
        found = self._beside("commands.json", {})
        assert isinstance(found, dict)  # noqa: S101  # a fixture's form
        return found

    @cached_property
    def _nodes(self) -> dict[str, dict[str, object]]:
        found = self._beside("nodes.json", {})
        assert isinstance(found, dict)  # noqa: S101  # a fixture's form
        return found

    def place(self, path: str) -> str:
        """Where a path of the node is for us; links of a fixture's tree are followed inside it."""
        if self.is_real:
            return path
        return self.root + self._inside(path, 40)

    def _inside(self, path: str, left: int) -> str:
        """The path without links, as the node's own kernel would resolve it. Raises Unreadable for a loop."""
        done = ""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for number, part in enumerate(parts):
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}"
            if os.path.islink(self.root + here):
                if left == 0:
                    raise Unreadable(f"{path}: too many links")
                target = os.readlink(self.root + here)
                rest = "/".join(parts[number + 1 :])
                base = target if target.startswith("/") else f"{done}/{target}"
                return self._inside(f"{base}/{rest}", left - 1)
            done = here
        return done or "/"

    def read(self, path: str, default: str | None = None) -> str:
        """A file's text. default: what an absent file means, without one FileNotFoundError. Raises Unreadable."""
        try:
            fd = os.open(self.place(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise Unreadable(f"{path} is no regular file")
                return b"".join(_parts(file)).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            if default is None:
                raise
            return default
        except OSError as error:
            raise Unreadable(f"cannot read {path}: {error.strerror}") from error

    def lines(self, path: str) -> list[str]:
        """A file's lines, none where it is absent. Raises Unreadable."""
        return self.read(path, "").splitlines()

    def exists(self, path: str) -> bool:
        """Whether something that is no dangling link stands there. Raises Unreadable."""
        if path in self._nodes:
            return True
        try:
            os.stat(self.place(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise Unreadable(f"cannot look at {path}: {error.strerror}") from error
        return True

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted, none where it is absent. Raises Unreadable."""
        above = path.rstrip("/") + "/"
        made = {name[len(above) :].split("/")[0] for name in self._nodes if name.startswith(above)}
        try:
            return sorted({*os.listdir(self.place(path)), *made})
        except (FileNotFoundError, NotADirectoryError):
            return sorted(made)
        except OSError as error:
            raise Unreadable(f"cannot list {path}: {error.strerror}") from error

    def glob(self, folder: str, pattern: str) -> list[str]:
        """The paths in a folder whose names match, sorted. Raises Unreadable."""
        return [f"{folder.rstrip('/')}/{name}" for name in self.listdir(folder) if fnmatch.fnmatchcase(name, pattern)]

    def device(self, path: str) -> tuple[int, int, int, int, int] | None:
        """Major, minor, mode (permission bits), uid and gid of a character device, or None where there is none."""
        if path in self._nodes:
            made = self._nodes[path]
            numbers = (int(str(made.get(key, 0))) for key in ("major", "minor"))
            owner = (int(str(made.get(key, 0))) for key in ("uid", "gid"))
            return (*numbers, int(str(made.get("mode", "0666")), 8), *owner)  # type: ignore[return-value]  # five numbers
        try:
            status = os.stat(self.place(path))
        except OSError:
            return None
        if not stat.S_ISCHR(status.st_mode):
            return None
        number = (os.major(status.st_rdev), os.minor(status.st_rdev))
        return (*number, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)

    def label(self, path: str) -> str:
        """The SELinux label of a file, "" for none."""
        if path in self._nodes:
            return str(self._nodes[path].get("label", ""))
        try:
            return os.getxattr(self.place(path), "security.selinux").rstrip(b"\0").decode("utf-8", "replace")
        except OSError:
            return ""

    def link(self, path: str) -> str:
        """Where a link points, as it is written; "" for what is no link."""
        try:
            return os.readlink(self.place(os.path.dirname(path)) + "/" + os.path.basename(path))
        except OSError:
            return ""

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return time.time() if self.is_real else float(str(self._beside("clock.json", 0)))

    def status(self, path: str) -> os.stat_result | None:
        """The status of what a path leads to, or None where there is nothing."""
        try:
            return os.stat(self.place(path))
        except OSError:
            return None

    def which(self, program: str) -> str:
        """The path of a program in the usual folders, or ""."""
        if self.is_real:
            return shutil.which(program, path=":".join(PATH)) or ""
        return next((path for folder in PATH if os.path.exists(self.place(path := f"{folder}/{program}"))), "")

    def run(self, *argv: str, seconds: float = PATIENCE) -> tuple[int, str, str] | None:
        """Status, stdout and stderr of a command that only looks; None where the program is not there or hangs."""
        if argv not in self._said:
            self._said[argv] = self._ask(argv, seconds) if self.is_real else self._scripted(argv)
        return self._said[argv]

    @cached_property
    def _said(self) -> dict[tuple[str, ...], tuple[int, str, str] | None]:
        return {}

    def _scripted(self, argv: tuple[str, ...]) -> tuple[int, str, str] | None:
        by_name = " ".join((os.path.basename(argv[0]), *argv[1:]))
        said = self._commands.get(" ".join(argv), self._commands.get(by_name))
        if said is None:
            return None
        return int(str(said.get("status", 0))), str(said.get("stdout", "")), str(said.get("stderr", ""))

    def _ask(self, argv: tuple[str, ...], seconds: float) -> tuple[int, str, str] | None:
        program = self.which(argv[0])
        if not program:
            return None
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        env = {"PATH": ":".join(PATH), "LC_ALL": "C", "HOME": "/", **kept}
        try:
            done = subprocess.run(
                [program, *argv[1:]], capture_output=True, text=True, timeout=seconds, check=False, env=env
            )
        except (subprocess.TimeoutExpired, OSError):
            return None
        return done.returncode, done.stdout, done.stderr

    def processes(self, *names: str) -> list[Process]:
        """The processes whose program has one of these names."""
        return [process for process in self._processes if process.name in names]

    @cached_property
    def _processes(self) -> list[Process]:
        if not self.is_real:
            found = self._beside("processes.json", [])
            assert isinstance(found, list)  # noqa: S101  # a fixture's form
            return [
                Process(
                    int(one.get("pid", 1)),
                    tuple(one["argv"]),
                    one.get("exe", ""),
                    one.get("environ", {}),
                    float(one.get("started", 0)),
                    int(one.get("uid", 0)),
                )
                for one in found
            ]
        return list(_real_processes())


def _parts(file: BinaryIO) -> Iterator[bytes]:
    """A file's beginning in pieces of a size that every file of the kernel accepts."""
    left = LARGEST
    while left > 0 and (part := file.read(min(AT_ONCE, left))):
        left -= len(part)
        yield part


def _real_processes() -> Iterator[Process]:
    import psutil

    for process in psutil.process_iter():
        with process.oneshot():
            try:
                argv, started, uid = tuple(process.cmdline()), process.create_time(), process.uids().real
            except psutil.Error:
                continue
            exe, environ = "", None
            try:
                exe, environ = process.exe(), process.environ()
            except psutil.Error:  # not ours to see
                pass
            yield Process(process.pid, argv, exe, environ, started, uid)
