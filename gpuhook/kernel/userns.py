"""An ordinary user's hook enters the container's user namespace, where an engine's own hooks are from the start.

Podman and rootless Docker start hooks inside a user namespace of theirs. runc that an ordinary user runs starts them
as that user, outside of all that it has made.
"""

from __future__ import annotations

import posix

from gpuhook.kernel import libc
from gpuhook.kernel.beneath import same_file
from gpuhook.note import note


def enter_user_namespace(pid: int) -> None:
    """Enter the user namespace of this process, if it has another than ours, with every right in it.

    Those are its maker's (user_namespaces(7)). A copy of our mount table belongs to it as well, so that what is
    mounted here can be given to the container. Best effort: a note says why it did not work, and whatever needs the
    rights will say that it lacks them.
    """
    # A container that shares the namespace has rights over us there, but none over what cannot be traced.
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    try:
        if is_in_ours(pid):
            return
        libc.setns(posix.pidfd_open(pid), libc.CLONE_NEWUSER)
        libc.unshare(libc.CLONE_NEWNS)
    except OSError as error:
        note(f"the user namespace of the container is closed to us: {error.strerror}")


def is_in_ours(pid: int) -> bool:
    """Whether this process is in our user namespace. Raises OSError."""
    return same_file(posix.stat(f"/proc/{pid}/ns/user"), posix.stat("/proc/self/ns/user"))
