"""A machine's tree below a folder, and gpuhook's commands run on it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuhook.hook import main

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/install"
MERGING = Path(__file__).with_name("merging_containerd.py")
SHIM, HOOK = "/usr/local/bin/gpuhook-runtime", "/usr/local/bin/gpuhook"


class Machine:
    """A tree and what happened to it. The last command's output is in `out` and `err`."""

    def __init__(self, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.root, self._capfd = root, capfd
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        """Run `gpuhook WORDS --root …`; the exit status."""
        self._capfd.readouterr()
        status = main([*words, "--root", str(self.root)])
        self.out, self.err = self._capfd.readouterr()
        return status

    def path(self, name: str) -> Path:
        """A file of the tree."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """Its content."""
        return self.path(name).read_text()

    def put(self, files: Mapping[str, str]) -> None:
        """Write these files, with their folders."""
        for name, text in files.items():
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).write_bytes(text.encode())

    def tree(self) -> dict[str, object]:
        """Everything that is there: contents, modes, times, links and owners."""
        return {str(path.relative_to(self.root)): _facts(path) for path in sorted(self.root.rglob("*"))}


def _facts(path: Path) -> object:
    status = path.lstat()
    if path.is_symlink():
        return os.readlink(path)
    if path.is_dir():
        return status.st_mode
    return path.read_bytes(), status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_nlink


@pytest.fixture
def machine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Machine:
    """An empty machine."""
    (tmp_path / "root").mkdir()
    return Machine(tmp_path / "root", capfd)


@pytest.fixture
def merging(tmp_path: Path) -> str:
    """A containerd that merges imported files key by key."""
    program = tmp_path / "containerd"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {MERGING} "$@"\n')
    program.chmod(0o755)
    return str(program)


def case_machine(machine: Machine, name: str, tree: str = "before") -> Machine:
    """The machine with the files of a case."""
    shutil.copytree(FIXTURES / name / tree, machine.root, dirs_exist_ok=True)
    return machine
