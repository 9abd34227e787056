"""What dockerd gets as options: from its unit, and from the files that distributions let the unit read."""

from __future__ import annotations

import os
import re

from gpuhook.install.host import Host

CONFIG = "/etc/docker/daemon.json"
CONFIG_OPTION = re.compile(r"--config-file[= ][\"']?(/[^\s\"']+)")
ENVIRONMENT = ("/etc/default/docker", "/etc/sysconfig/docker")
NAME = "docker.service"
# Where systemd looks for units (systemd.unit(5)), the first one winning; of drop-ins, each name counts once.
FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
Line = tuple[str, int, str]  # file, number, text


def option_lines(host: Host) -> list[Line]:
    """The lines that may hold options of dockerd, comments left out."""
    return [line for path in ENVIRONMENT for line in _lines(host, path)] + _unit(host)


def config_path(host: Host) -> str:
    """The daemon.json that this machine's dockerd reads."""
    named = [found[1] for _, _, line in option_lines(host) if (found := CONFIG_OPTION.search(line))]
    return named[-1] if named else CONFIG


def _unit(host: Host) -> list[Line]:
    """The lines of the unit and its drop-ins; an empty ExecStart= takes back what comes before it."""
    units = [f"{folder}/{NAME}" for folder in FOLDERS if host.is_entry(f"{folder}/{NAME}")]
    drop_ins = {
        os.path.basename(path): path for folder in reversed(FOLDERS) for path in host.glob(f"{folder}/{NAME}.d/*.conf")
    }
    lines: list[Line] = []
    for path in (*units[:1], *(drop_ins[name] for name in sorted(drop_ins))):
        for line in _lines(host, path):
            lines = [] if re.fullmatch(r"\s*ExecStart\s*=\s*", line[2]) else [*lines, line]
    return lines


def _lines(host: Host, path: str) -> list[Line]:
    if path not in host.files(path):  # absent, or switched off by a link to /dev/null
        return []
    text = (host.read(path).data or b"").decode("utf-8", "replace")
    lines = enumerate(text.splitlines(), 1)
    return [(path, number, line) for number, line in lines if not line.lstrip().startswith(("#", ";"))]
