"""The probe, compiled, and what it saw, as a record."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fixtures.driver.native_build import compiled

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe.c")


def probe_program(*, static: bool) -> bytes:
    """The probe: static (runs in any image, loads nothing) or dynamic (needs glibc in the image)."""
    return compiled(SOURCE, ["-O1", "-DSTATIC", "-static"] if static else ["-O1"])


def _bytes_as_text(value: Any) -> Any:
    """The probe writes each byte as a character of its own; this makes UTF-8 of it again."""
    if isinstance(value, str):
        return value.encode("latin-1").decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return [_bytes_as_text(item) for item in value]
    return value


@dataclass(frozen=True)
class Seen:
    """The probe's answers, in order."""

    answers: tuple[dict[str, Any], ...]

    def of(self, what: str, **fields: object) -> list[dict[str, Any]]:
        """The answers of one kind with these values."""
        return [
            answer
            for answer in self.answers
            if answer["what"] == what and all(answer.get(key) == value for key, value in fields.items())
        ]

    @property
    def devices(self) -> dict[str, str]:
        """Path of each /dev/nvidia… and the outcome of opening it: ENXIO is allowed, EPERM denied by the cgroup."""
        return {answer["path"]: answer["open"] for answer in self.of("device")}

    @property
    def rules(self) -> dict[tuple[int, int], bool]:
        """Whether the container may open a character device of this number (decisions.md 32)."""
        return {(rule["major"], rule["minor"]): rule["allowed"] for rule in self.of("rule") if "allowed" in rule}

    @property
    def mounts(self) -> list[str]:
        """The lines of mountinfo."""
        return [answer["line"] for answer in self.of("mount")]

    @property
    def mount_points(self) -> dict[str, str]:
        """Mount point → its options; of stacked mounts the uppermost."""
        fields = [line.split(" ") for line in self.mounts]
        return {field[4].replace("\\040", " "): field[5] for field in fields}

    @property
    def env(self) -> list[str]:
        """The environment's entries."""
        return [answer["entry"] for answer in self.of("env")]

    @property
    def fds(self) -> dict[int, str]:
        """Open descriptors and where they lead."""
        return {answer["fd"]: answer["target"] for answer in self.of("fd")}

    def library(self, name: str) -> dict[str, Any]:
        """What came of loading this library: found, file, cuda, or error."""
        return self.of("dlopen", name=name)[0]

    def stat(self, path: str) -> dict[str, Any]:
        """What stands at this path: kind, mode, target…, or error."""
        return self.of("stat", path=path)[0]

    def content(self, path: str) -> str | None:
        """The content of this file; None where it could not be read."""
        content: str | None = self.of("read", path=path)[0].get("content")
        return content

    def names(self, path: str) -> list[str] | None:
        """The names in this folder; None where it could not be listed."""
        names: list[str] | None = self.of("list", path=path)[0].get("names")
        return names


def seen(lines: str | Iterable[str]) -> Seen:
    """The probe's output as a record; lines that are no JSON objects are left out."""
    texts = lines.splitlines() if isinstance(lines, str) else lines
    answers = (json.loads(line) for line in texts if line.startswith('{"what"'))
    return Seen(tuple({key: _bytes_as_text(value) for key, value in answer.items()} for answer in answers))
