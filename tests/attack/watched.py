"""A helper program: runs a hook as a runtime does and writes down what came of it.

    python -I -S watched.py [--private] REPORT HOOK [ARGUMENT...]

With --private in a mount namespace of its own, in which nobody else changes the mount table. It passes stdin,
environment, stderr and exit status on. REPORT becomes JSON: status, seconds, memory (KiB of the largest process), left
(children that outlived the hook), mounts (lines of our mount table that came or went), said (the hook's stderr).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.rig import kernel

PR_SET_CHILD_SUBREAPER = 36


def mounts() -> list[str]:
    """Our mount table."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return file.read().split("\n")


def children() -> list[int]:
    """Our living children, adopted ones included."""
    with open("/proc/thread-self/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def left_behind() -> int:
    """How many processes of the hook are still there; dead ones are reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return len(children())


def main(report: str, argv: list[str]) -> int:
    """Runs the hook; its exit status."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, begun = mounts(), monotonic()
    with open(f"{report}.stderr", "w+b") as said:
        status = subprocess.call(argv, stderr=said, close_fds=False)
        seconds = monotonic() - begun
        said.seek(0)
        text = said.read()
    left = left_behind()
    if left:  # one that is just ending is none
        sleep(0.2)
        left = left_behind()
    after = mounts()
    answer = {
        "status": status,
        "seconds": seconds,
        "memory": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
        "left": left,
        "mounts": sorted(set(before) ^ set(after)) or (["order"] if before != after else []),
        "said": text.decode("utf-8", "backslashreplace"),
    }
    with open(report, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(answer, file)
    os.write(2, text)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "--private":
        del words[0]
        kernel.private_mounts()
    raise SystemExit(main(words[0], words[1:]))
