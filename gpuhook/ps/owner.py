"""Whose container a process is in, from the names that engines give their cgroups. Text in, text out."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEX = "([0-9a-f]{64})"
# One component of a cgroup's path, and the engine that names it so (with cgroupfs or systemd as the manager).
PATTERNS = tuple(
    (re.compile(pattern), engine)
    for pattern, engine in (
        (rf"docker-{HEX}\.scope", "docker"),
        (rf"libpod-{HEX}(?:\.scope)?", "podman"),
        (rf"crio-{HEX}(?:\.scope)?", "cri-o"),
        (rf"cri-containerd-{HEX}\.scope", "containerd"),
        (rf"nerdctl-{HEX}\.scope", "containerd"),
        # The runtime was told a path of systemd's form and manages cgroups itself.
        (rf"[^:]*:docker:{HEX}", "docker"),
        (rf"[^:]*:libpod:{HEX}", "podman"),
        (rf"[^:]*:crio:{HEX}", "cri-o"),
        (rf"[^:]*:(?:cri-containerd|nerdctl):{HEX}", "containerd"),
    )
)
BARE = re.compile(HEX)
UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
POD = re.compile(rf"(?:^|-)pod({UID}|[0-9a-f]{{32}})(?:\.slice|$)")


@dataclass(frozen=True)
class Owner:
    """A container. engine: "unknown" where its name says nothing; pod: the uid, "" outside of Kubernetes."""

    engine: str
    id: str
    pod: str = ""


def paths(text: str) -> list[str]:
    """The cgroups of a process, from /proc/PID/cgroup (cgroups(7)): longest first, as some hierarchies are unused."""
    found = (line.split(":", 2) for line in text.splitlines())
    return sorted({parts[2] for parts in found if len(parts) == 3}, key=lambda path: (-len(path), path))


def owner_of(text: str) -> Owner | None:
    """The container of a process, the innermost one where they are nested, or None."""
    for path in paths(text):
        parts = [part for part in path.split("/") if part]
        for at in reversed(range(len(parts))):
            if found := _container(parts, at):
                return Owner(*found, pod=_pod(parts[: at + 1]))
    return None


def last_name(text: str) -> str:
    """A name for a container of nobody we know: the last component of its cgroup."""
    return next((path.rpartition("/")[2] for path in paths(text) if path != "/"), "")


def _container(parts: list[str], at: int) -> tuple[str, str] | None:
    for pattern, engine in PATTERNS:
        if match := pattern.fullmatch(parts[at]):
            return engine, match[1]
    if not BARE.fullmatch(parts[at]):
        return None
    above = parts[:at]
    if above[-1:] == ["docker"]:
        return "docker", parts[at]
    return "containerd" if any("kubepods" in part for part in above) else "unknown", parts[at]


def _pod(parts: list[str]) -> str:
    for part in reversed(parts):
        for piece in part.split(":"):
            if match := POD.search(piece):
                return match[1].replace("_", "-")
    return ""
