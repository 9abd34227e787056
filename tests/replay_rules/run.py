"""Runs one case against the program under test, in a folder of its own, and tells what it did.

Two ways: `Spawn` starts the command as a runtime would. `Fork` calls a console script's entry in a forked child of an
interpreter that has the slow packages loaded already: the same arguments, stdin, folder, environment and exec, at a
tenth of the time.
"""

from __future__ import annotations

import fcntl
import json
import os
import posix
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Protocol

from tests.replay_rules.case import Case, Places, lay_out
from tests.replay_rules.outcome import Outcome

F_SETPIPE_SZ = 1031
TIMEOUT = 30.0  # seconds
# Variables that a Python program under test may need in order to start; they never count as a difference.
KEPT = ("PYTHON", "PYENV", "COVERAGE", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Run:
    """How to start the program: arguments, stdin, working folder, whole environment, and a folder for its output."""

    args: list[str]
    stdin: bytes
    cwd: str
    env: dict[str, str]
    output: str


class Runner(Protocol):
    """A way to start the program under test."""

    def __call__(self, run: Run) -> int | None:
        """Its exit status, None where it did not end in time; `stdout` and `stderr` are left in run.output."""


@dataclass(frozen=True)
class Spawn:
    """Starts a command as it is."""

    command: list[str]

    def __call__(self, run: Run) -> int | None:
        """Start it in a process of its own."""
        env = {os.fsencode(name): value.encode("utf-8", "surrogateescape") for name, value in run.env.items()}
        words = [*self.command, *run.args]
        with Path(run.output, "stdout").open("wb") as out, Path(run.output, "stderr").open("wb") as err:
            try:
                done = subprocess.run(
                    [word.encode("utf-8", "surrogateescape") for word in words],
                    input=run.stdin,
                    cwd=run.cwd,
                    env=env,
                    stdout=out,
                    stderr=err,
                    timeout=TIMEOUT,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None
        return done.returncode


@dataclass(frozen=True)
class Fork:
    """Calls `MODULE:FUNCTION`, which takes the arguments and returns the status, in a forked child."""

    entry: str
    preload: tuple[str, ...] = ()
    main: Callable[[list[str]], int] = field(init=False)

    def __post_init__(self) -> None:
        """Load the entry and what it would load each time."""
        for name in self.preload:
            import_module(name)
        module, _, function = self.entry.partition(":")
        object.__setattr__(self, "main", getattr(import_module(module), function))

    def __call__(self, run: Run) -> int | None:
        """Fork, become what a runtime would have started, and wait for the end."""
        sys.stdout.flush()
        sys.stderr.flush()
        stdin = _filled_pipe(run.stdin)
        child = os.fork()
        if child == 0:
            self._become(run, stdin)
        os.close(stdin)
        return _wait(child)

    def _become(self, run: Run, stdin: int) -> NoReturn:
        status = 1
        try:
            os.dup2(stdin, 0)
            for number, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(f"{run.output}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), number)
            os.chdir(run.cwd)
            # os.environ is a copy of this table, made when the interpreter starts; the program may use either.
            posix.environ.clear()
            posix.environ.update({k.encode(): v.encode("utf-8", "surrogateescape") for k, v in run.env.items()})
            os.environ.clear()
            os.environ.update(run.env)
            status = self.main(run.args)
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001  # the interpreter would print it and end with 1
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)


def _filled_pipe(data: bytes) -> int:
    """The reading end of a pipe that holds the data and has no writer left."""
    reader, writer = os.pipe()
    if len(data) > 1 << 16:
        fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)
    os.write(writer, data)
    os.close(writer)
    return reader


def _wait(child: int) -> int | None:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def run_case(case: Case, runner: Runner, base: str) -> Outcome:
    """Lay the case out in the folder `base`, run the program, and return what it did."""
    places = Places(base)
    try:
        stdin = lay_out(case, places)
        env = case.environment(places)
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT) and name not in env}
        before = _read(f"{base}/bundle/config.json")
        status = runner(Run(case.args(places), stdin, case.cwd(places), {**env, **kept}, places.record))
        return _observed(case, places, env, status, before)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _observed(case: Case, places: Places, env: dict[str, str], status: int | None, before: bytes | None) -> Outcome:
    argv, changes = None, None
    if os.path.exists(f"{places.record}/argv"):
        # The first word is the interpreter of the recorder.
        argv = tuple(_ldconfig(places.blank(word)) for word in _strings(f"{places.record}/argv")[1:])
        changes = places.blank_all(environment_changes(env, _strings(f"{places.record}/env")))
    after = _read(f"{places.dir}/bundle/config.json")
    return Outcome(
        exit=status,
        argv=argv,
        env=changes,
        spec="unchanged" if case.kind != "runtime" or after == before else _spec(after, places),
        stdout=places.blank(_text(f"{places.record}/stdout")),
        stderr=places.blank(_text(f"{places.record}/stderr")),
    )


def host_ldconfig() -> str:
    """The host's own ldconfig, as the reference names it."""
    return "@/sbin/ldconfig.real" if os.path.exists("/sbin/ldconfig.real") else "@/sbin/ldconfig"


def _ldconfig(word: str) -> str:
    return "--ldconfig={host_ldconfig}" if word == f"--ldconfig={host_ldconfig()}" else word


def environment_changes(given: dict[str, str], seen: list[str]) -> dict[str, str | None]:
    """The variables that getenv(), which takes the first entry, finds changed; None for one that is gone."""
    found: dict[str, str] = {}
    for entry in seen:
        name, equals, value = entry.partition("=")
        if equals and (name in given or not name.startswith(KEPT)):
            found.setdefault(name, value)
    changes: dict[str, str | None] = {name: value for name, value in found.items() if given.get(name) != value}
    return {**changes, **{name: None for name in given if name not in found}}


def _spec(data: bytes | None, places: Places) -> Any:
    try:
        return places.blank_all(json.loads((data or b"").decode()))
    except ValueError as error:
        return f"not JSON: {error}"


def _strings(path: str) -> list[str]:
    data = Path(path).read_bytes().removesuffix(b"\0")
    return [item.decode("utf-8", "surrogateescape") for item in data.split(b"\0")]


def _read(path: str) -> bytes | None:
    return Path(path).read_bytes() if os.path.isfile(path) else None


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace") if os.path.exists(path) else ""
