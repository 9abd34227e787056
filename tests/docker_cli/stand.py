"""A place to try `gpuhook-docker` in: its launcher, and a docker that records how it was called."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuhook.launchers import text_for
from tests.rig.process import PATH, Result, run
from tests.shim.stand import RECORDER, write_program


@dataclass
class Stand:
    """folder: of everything; docker: the recorder's path; wrapper: the launcher's."""

    folder: Path
    docker: str = field(init=False)
    wrapper: str = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir()
        self.docker = self.program("docker")
        self.wrapper = write_program(self.folder / "nvidia-docker", text_for("gpuhook-docker"))

    def program(self, name: str, status: int = 0) -> str:
        """A recorder of this name on PATH, which ends with this status; returns its path."""
        return write_program(self.folder / "bin" / name, RECORDER.format(folder=self.folder, status=status))

    def run(self, *args: str, cwd: str = "/", env: Mapping[str, str | None] | None = None) -> Result:
        """Run the wrapper; env: changes of an ordinary environment, None removes."""
        (self.folder / "argv").unlink(missing_ok=True)
        given = {"PATH": f"{self.folder}/bin:{PATH}", **(env or {})}
        return run(
            [self.wrapper, *args], env={key: value for key, value in given.items() if value is not None}, cwd=cwd
        )

    @property
    def argv(self) -> list[str] | None:
        """The words that docker got after its name; None where it was not called."""
        try:
            data = (self.folder / "argv").read_bytes()
        except FileNotFoundError:
            return None
        return [os.fsdecode(word) for word in data.split(b"\0")[1:-1]]


def python() -> Sequence[str]:
    """The wrapper without its launcher."""
    return [sys.executable, "-c", "import sys; from gpuhook.docker_cli import main; sys.exit(main())"]
