"""A helper program: runs one command line in a mount namespace of its own, and what cleans up after it.

    python -I -S launch.py FOLDER

FOLDER/job.json says what to do; stdout, stderr, the mount tables and the status are left beside it. It is a program
and no function because namespaces must not be changed in the process that runs the tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.rig import kernel


def main(folder: str) -> int:
    """Does the job in this folder."""
    with open(f"{folder}/job.json", encoding="utf-8") as file:
        job = json.load(file)
    kernel.die_with_parent()
    if job["private"]:
        kernel.private_mounts()
        kernel.show_cgroups(job["cgroup"])
    for argv in job["setup"]:
        subprocess.run(argv, check=True, env={"PATH": os.environ["PATH"]})
    keep_mounts(f"{folder}/mounts.before")
    try:
        status = run(job, folder)
    finally:
        subprocess.run(job["cleanup"], check=False, capture_output=True, timeout=60)
        keep_mounts(f"{folder}/mounts.after")
        remove_groups(job["group"])
    with open(f"{folder}/status", "w", encoding="ascii") as file:
        file.write(str(status))
    return 0


def keep_mounts(path: str) -> None:
    """Leaves our mount table in a file."""
    with open("/proc/self/mountinfo", "rb") as table, open(path, "wb") as file:
        file.write(table.read())


def run(job: dict[str, Any], folder: str) -> int:
    """The command line's status; negative for a signal, as the time limit sends one."""
    with open(f"{folder}/stdout", "wb") as out, open(f"{folder}/stderr", "wb") as err:
        process = subprocess.Popen(
            job["argv"], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=job["env"], cwd=job["cwd"],
            start_new_session=True, umask=job["umask"],
        )  # fmt: skip
        try:
            return process.wait(job["timeout"])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            err.write(f"(killed after {job['timeout']:g} s)\n".encode())
            return process.wait()


def remove_groups(group: str) -> None:
    """Removes a cgroup that the runtime left behind, in every hierarchy."""
    for base in ("", *os.listdir("/sys/fs/cgroup")):
        path = os.path.normpath(f"/sys/fs/cgroup/{base}/{group}")
        with suppress(OSError):
            os.rmdir(path)
        with suppress(OSError):  # others may run at the same time
            os.rmdir(os.path.dirname(path))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
