"""What comes of an attacked run, and what a hook may say meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from tests.rig.process import Result

STARTS = ("gpuhook: ", "  in ", "  hint: ", "  ")


@dataclass(frozen=True)
class Report:
    """What the watcher of a hook wrote down; see watched.py."""

    status: int
    seconds: float
    memory: int
    left: int
    mounts: list[str]
    said: str


@dataclass(frozen=True)
class Run:
    """An attacked run that broke no oracle.

    result: the runtime's, or the hook's; changes: paths in the container's tree that came, went or changed, with a
    leading /; log: what was added to the debug log.
    """

    result: Result
    report: Report
    changes: tuple[str, ...] = ()
    log: str = ""

    def __repr__(self) -> str:
        return f"Run(status {self.result.status}, hook {self.report.status}: {self.error or self.result.stderr!r})"

    @property
    def started(self) -> bool:
        """SAFE: the hook succeeded, and the container started."""
        return self.report.status == 0 and self.result.status == 0

    @property
    def said(self) -> str:
        """The hook's stderr."""
        return self.report.said

    @property
    def error(self) -> str:
        """The error's first line, "" for success."""
        lines = [line for line in self.said.splitlines() if line.startswith("gpuhook: ")]
        errors = [line for line in lines if not line.startswith(("gpuhook: note: ", "gpuhook: warning: "))]
        return errors[0] if errors and self.report.status else ""

    @property
    def slug(self) -> str:
        """The error's reference, "" for success."""
        return self.error.split(": ")[1] if self.error else ""

    @property
    def warnings(self) -> list[str]:
        """The slugs of the warnings."""
        lines = [line for line in self.said.splitlines() if line.startswith("gpuhook: warning: ")]
        return [line.split(": ")[2] for line in lines]


def read_report(path: str, result: Result) -> Report:
    """The watcher's report. Raises AssertionError where the hook was never run."""
    assert os.path.exists(path), f"the runtime did not run the hook: {result.stderr}"
    with open(path, encoding="utf-8") as file:
        return Report(**json.load(file))


def without_notes(said: str) -> list[str]:
    """What a person reads without --debug."""
    return [line for line in said.splitlines() if not line.startswith("gpuhook: note: ")]


def descriptors(result: Result) -> list[str]:
    """O-FD: the entry point has its three descriptors only."""
    return [f"O-FD: {fd} leads to {target}" for fd, target in result.seen.fds.items() if fd > 2]


def is_log_line(line: str) -> bool:
    """Whether this is a line as we write them, all of it printable."""
    return line.isprintable() and line.startswith(STARTS)


def is_error(line: str) -> bool:
    """Whether this is the first line of an error."""
    return line.startswith("gpuhook: ") and not line.startswith(("gpuhook: note: ", "gpuhook: warning: "))
