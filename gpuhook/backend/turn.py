"""One hook at a time works in a tree: containers may share one, and start together (AC-65).

What a hook makes and takes back after a failure could have become another container's mount points meanwhile, and who
removes a mount point removes what is mounted on it, in every mount namespace (unlink(2)).
"""

from __future__ import annotations

import posix
from time import monotonic, sleep

from gpuhook.kernel import libc
from gpuhook.note import note
from gpuhook.refusals import ApplyFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.beneath import Root

FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC
PAUSE = 0.002  # seconds
EAGAIN = 11


def wait_for_turn(root: Root, seconds: float) -> None:
    """Lock the tree for this process until it ends (flock(2)), as soon as no other has it locked.

    Goes on where a file system has no locks. Raises ApplyFailed when it is not our turn within these seconds.
    """
    give_up = monotonic() + seconds
    try:
        fd = posix.open(".", FOLDER, dir_fd=root.fd)
        while not _lock(fd):
            if monotonic() > give_up:
                raise ApplyFailed(
                    f"another process has kept the container's root folder locked for {round(seconds, 1):g} s",
                    where="/",
                    hint="another container of this folder is being started, or lslocks(8) tells who has it locked",
                )
            sleep(PAUSE)
    except OSError as error:
        note(f"the container's root folder cannot be locked: {error.strerror}")


def _lock(fd: int) -> bool:
    try:
        libc.lock(fd)
    except OSError as error:
        if error.errno == EAGAIN:
            return False
        raise
    return True
