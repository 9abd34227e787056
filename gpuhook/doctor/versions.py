"""The versions of everything that takes part in giving a container its GPUs."""

from __future__ import annotations

from gpuhook import __version__
from gpuhook.doctor.node import Node, Unreadable

COMMANDS = {
    "docker": ("docker", "--version"),
    "containerd": ("containerd", "--version"),
    "podman": ("podman", "--version"),
    "crio": ("crio", "--version"),
    "runc": ("runc", "--version"),
    "crun": ("crun", "--version"),
    "nvidia-container-cli": ("nvidia-container-cli", "--version"),
    "nvidia-container-runtime-hook": ("nvidia-container-runtime-hook", "-version"),
}


def versions(node: Node) -> dict[str, str]:
    """Name and version of what is there; the first line of what each program says."""
    found = {"gpuhook": __version__}
    for name, command in COMMANDS.items():
        said = node.run(*command)
        if said is not None and said[1].strip():
            found[name] = said[1].strip().splitlines()[0][:100]
    for name, path in (("kernel", "/proc/sys/kernel/osrelease"), ("NVIDIA driver", "/proc/driver/nvidia/version")):
        try:
            text = node.read(path, "").strip()
        except Unreadable:
            continue
        if text:
            found[name] = text.splitlines()[0][:160]
    return found
