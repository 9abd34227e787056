"""The command line under test, started as a program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from tempfile import TemporaryFile

from gpuhook.engine_cli import main
from tests.rig.needs import need
from tests.rig.process import PATH, Result, run


@dataclass(frozen=True)
class Cli:
    """program: its path; root: of the driver, "" for the machine's own."""

    program: str
    root: str = ""

    def __call__(self, *words: str, top: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> Result:
        """Runs a command. top: global options; env: added to an ordinary environment."""
        root = (f"--root={self.root}",) if self.root else ()
        return run([self.program, *root, *top, *words], env={"PATH": PATH, **(env or {})})

    def lines(self, *words: str, **options: object) -> list[str]:
        """What a command that must succeed prints; stderr must be empty."""
        done = self(*words, **options)  # type: ignore[arg-type]
        assert (done.status, done.stderr) == (0, ""), done
        return done.stdout.splitlines()

    def refusal(self, *words: str, top: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> str:
        """The first line on stderr of a command that must fail with status 1 and print nothing, without its name."""
        done = self(*words, top=top, env=env)
        assert (done.status, done.stdout) == (1, ""), done
        first = done.stderr.splitlines()[0]
        assert first.startswith("nvidia-container-cli: "), done.stderr
        return first.removeprefix("nvidia-container-cli: ")


def as_nobody(root: str, *words: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command line in a process that has dropped root. root: of the driver.

    It is a fork of this one with all imports done, as interpreter and package may be in a folder of root's alone.
    """
    need()
    for name in (
        "resource",
        "json.encoder",
        *(f"gpuhook.engine_cli.{name}" for name in ("show", "dryrun", "failures")),
    ):
        import_module(name)
    for name in ("container", "image", "kmods", "survey", "engine", "log"):
        import_module(f"gpuhook.backend.{name}")
    open_folders(root)
    with TemporaryFile() as out, TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            status = 111
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                status = main([f"--root={root}", *words])
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return status, texts[0], texts[1]


def open_folders(path: str) -> None:
    """Let everybody search the folders above a path, which pytest makes for root alone."""
    while path != "/":
        os.chmod(path, os.stat(path).st_mode | 0o011)
        path = os.path.dirname(path)
