"""What must be restarted before a change counts: said always, done only with --restart."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from gpuhook.install.errors import RestartFailed
from gpuhook.install.host import Host

LONGEST = 300  # seconds


def restart(host: Host, commands: list[tuple[str, ...]], *, wanted: bool) -> None:
    """Restart what these commands restart, or say them. Raises RestartFailed."""
    for command in dict.fromkeys(commands):
        line = shlex.join(command)
        if not wanted:
            sys.stdout.write(f"to make it count: {line}\n")
            continue
        if not host.is_this:
            raise RestartFailed("another machine's tree has nothing that runs", hint=f"on that machine: {line}")
        _run(command, line)


def _run(command: tuple[str, ...], line: str) -> None:
    if not shutil.which(command[0]) or (command[0] == "systemctl" and not os.path.isdir("/run/systemd/system")):
        raise RestartFailed(
            f"everything is installed, but nothing was restarted: no {command[0]} that works is here",
            hint=f"restart it as this machine does; elsewhere it is: {line}",
        )
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    try:
        done = subprocess.run(command, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise RestartFailed(f"{line} did not end within {LONGEST} s") from None
    if done.returncode:
        raise RestartFailed(f"{line} ended with status {done.returncode}", hint="journalctl -xe tells why")
