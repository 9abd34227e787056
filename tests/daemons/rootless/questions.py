"""What a rootless container has to have, asked from inside of it."""

from __future__ import annotations

from tests.daemons.inside import nodes
from tests.daemons.rootless.user import User
from tests.rig.process import Result

LIB = "/usr/lib/x86_64-linux-gnu"
QUESTIONS = (
    "devices",
    "dlopen:libcuda.so.1",
    "dlopen:libnvidia-ml.so.1",
    "mounts",
    "id",
    "stat:/etc/ld.so.cache",
    "list:/usr/bin",
)
# A folder in the cache's place: the last thing that is made cannot be, and all the others are taken back.
LATE: dict[str, str | None] = {"etc/ld.so.cache": None, "etc/ld.so.cache/x": ""}
BIND = {"ro", "nosuid", "noexec"}  # of a device node's mount, at least


def has(result: Result, *gpus: int) -> None:
    """The container has these GPUs' nodes, each a mount that may be opened, the libraries and the programs.

    A node of a number of the container's own cannot be made in a user namespace; what counts is that opening the bound
    one is allowed: ENXIO, since there is no driver behind it.
    """
    assert result.status == 0, result.stderr
    seen = result.seen
    assert sorted(seen.devices) == nodes(*gpus)
    assert set(seen.devices.values()) <= {"ENXIO"}
    assert all(set(seen.mount_points[path].split(",")) >= BIND for path in seen.devices)
    assert bool(gpus) == ("cuda" in seen.library("libcuda.so.1"))
    assert bool(gpus) == ("error" not in seen.library("libnvidia-ml.so.1"))
    assert bool(gpus) == ("nvidia-smi" in (seen.names("/usr/bin") or []))


def lists_both(user: User, listed: Result) -> None:
    """`ldconfig -p` lists the driver's library and the image's own."""
    assert listed.status == 0, listed.stderr
    places = [line.split() for line in listed.stdout.splitlines() if " => " in line]
    found = {words[0]: words[-1] for words in places}
    assert found["libcuda.so.1"] == f"{LIB}/libcuda.so.{user.site.driver.version}"
    assert found["libc.so.6"] == f"{LIB}/libc.so.6"


def one_message(text: str, slug: str) -> str:
    """The hook's one message in what an engine prints: the first line of it. No traceback, no second one."""
    found = [line for line in text.splitlines() if f"gpuhook: {slug}: " in line]
    assert len(found) == 1, text
    assert "Traceback" not in text
    return found[0]
