"""Somebody who acts while the hook works: exchanges names, or tries to open what appears."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from fixtures.driver.native_build import compiled

HERE = os.path.dirname(os.path.abspath(__file__))


def program(name: str) -> bytes:
    """A static program of this folder."""
    return compiled(f"{HERE}/{name}.c", ["-O2", "-static"])


def written(folder: str, name: str) -> str:
    """The path of this program, written into a folder."""
    path = f"{folder}/{name}"
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(program(name))
        os.chmod(path, 0o755)
    return path


@contextmanager
def exchanged(folder: str, one: str, other: str) -> Iterator[None]:
    """These two names change places all the time; afterwards they are where they were. folder: for the program."""
    inode = os.lstat(one).st_ino
    with subprocess.Popen([written(folder, "exchange"), one, other], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.kill()
    if os.lstat(one).st_ino != inode:
        os.rename(one, f"{one}.aside")
        os.rename(other, one)
        os.rename(f"{one}.aside", other)
