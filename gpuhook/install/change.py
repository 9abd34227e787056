"""Changes of files: described as values first, then all of them written, or none.

A new content goes to a file beside the old one, to the disk, and then takes its place at once. The old file itself,
with its owner, mode and times, stays beside it under another name, so that taking it back restores every byte.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from os import stat_result

from gpuhook.errors import GpuhookError
from gpuhook.install.errors import FileBusy, FileProtected
from gpuhook.install.fixed import require_changeable
from gpuhook.install.host import Host, Seen
from gpuhook.kernel.files import fault_of, identity, trusted_owners
from gpuhook.kernel.xattrs import copy_attributes
from gpuhook.note import warn
from gpuhook.value import Value

ASIDE = ".before-gpuhook"
READ_ONLY = 0o222
HINTS = {
    errno.EPERM: "lsattr shows whether the file or its folder is immutable (i) or can only grow (a)",
    errno.EROFS: "its file system is read-only: mount it writable, or name another place (--config, --bin)",
}


class Change(Value):
    """One file's new content.

    seen: the file as it was read; after: its new content, None to remove it; kind: who can undo it in an edited
    file (see journal.py); about: what it does, for people; previous: what of the old content an undo needs;
    backups: the folder for the old file, "" for the same one; program: an executable, a link at its name is replaced
    itself and not its target; mode: of a file that is new.
    """

    engine: str
    kind: str
    seen: Seen
    after: bytes | None
    about: str
    runtime: str = ""
    previous: str = ""
    backups: str = ""
    program: bool = False
    mode: int = 0o644

    @property
    def path(self) -> str:
        """The file as its machine names it."""
        return self.seen.path

    @property
    def is_none(self) -> bool:
        """Whether the file already is as it should be."""
        return self.seen.data == self.after


def diff(change: Change) -> str:
    """The change as a unified diff, "" for none."""
    return text_diff(change.path, change.seen.data, change.after)


def text_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """A unified diff of one file's contents; None: there is no file."""
    old_name, new_name = (path if data is not None else "/dev/null" for data in (before, after))
    lines = unified_diff(_lines(before), _lines(after), old_name, new_name)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_END}" for line in lines)


_NO_END = "\\ No newline at end of file\n"


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "backslashreplace").splitlines(keepends=True)


def require_ours(change: Change, *, force: bool) -> None:
    """Refuse to replace or to make a file that somebody protected or that somebody else owns.

    Root may write where no mode bit says so, hence a mode protects only what a link leads to: there something else
    manages the target (decisions.md 26). force: not even then. Raises FileProtected.
    """
    seen = change.seen
    require_changeable(seen.path, seen.real)
    if seen.status is None:
        return
    if seen.status.st_uid not in trusted_owners():
        raise FileProtected(
            f"{seen.path} belongs to uid {seen.status.st_uid}, who could change what root does",
            where=seen.path,
            hint=f"chown root {seen.path}",
        )
    if not change.program:
        _require_writable(seen, force=force)
    if fault := fault_of(seen.status, trusted_owners()):
        warn("unsafe-config", f"{seen.path} decides what root does, and {fault}")


def _require_writable(seen: Seen, *, force: bool) -> None:
    mode = stat.S_IMODE(seen.status.st_mode) if seen.status else READ_ONLY
    leads = "" if seen.is_itself else f", which leads to {seen.real},"
    if not os.access(seen.real, os.W_OK):  # a mount over the file, or the mode for who is not root
        hint = "run it as root" if os.geteuid() else "findmnt shows whether something is mounted over it"
        raise FileProtected(f"{seen.path}{leads} is read-only", where=seen.path, hint=hint)
    if not mode & READ_ONLY and leads and not force:
        raise FileProtected(
            f"{seen.path}{leads} is read-only (mode {mode:04o}), so something else manages it",
            where=seen.path,
            hint=f"replace the link {seen.path} by a file of its own, or --force",
        )


def aside_path(host: Host, change: Change) -> str:
    """A free name for the old file, on this machine."""
    folder, name = os.path.split(change.seen.real)
    if change.backups:
        folder = host.real(change.backups)
    path, number = f"{folder}/{name}{ASIDE}", 1
    while os.path.lexists(path):
        number += 1
        path = f"{folder}/{name}{ASIDE}.{number}"
    return path


def write(change: Change, aside: str) -> None:
    """Put the new content in the file's place. aside: where the old file goes, "" if nowhere.

    Raises FileBusy where the file is no longer what was read, OSError where it cannot be written.
    """
    real = change.seen.real
    new = _beside(real, change) if change.after is not None else ""
    try:
        require_unchanged(change.seen)
        if aside:
            _keep(real, aside)
        if new:
            os.rename(new, real)
        else:
            os.unlink(real)
    except BaseException:
        if new:
            os.unlink(new)
        if aside and os.path.lexists(aside):
            os.unlink(aside)
        raise
    _to_disk(os.path.dirname(real))


def put_back(real: str, aside: str) -> None:
    """Put the old file in its place again, or remove the new one where there was none. Both on this machine."""
    if aside and _same_device(aside, real):
        os.rename(aside, real)
    elif aside:  # the backup is on another filesystem
        status = os.lstat(aside)
        new = f"{os.path.dirname(real)}/.{os.path.basename(real)}.{os.getpid()}"
        shutil.copy2(aside, new, follow_symlinks=False)
        os.chown(new, status.st_uid, status.st_gid, follow_symlinks=False)
        os.rename(new, real)
        os.unlink(aside)
    else:
        os.unlink(real)
    _to_disk(os.path.dirname(real))


def _same_device(one: str, other: str) -> bool:
    return os.lstat(one).st_dev == os.stat(os.path.dirname(other)).st_dev


def _beside(real: str, change: Change) -> str:
    """A new file in the same folder with the content, owner and mode, on the disk."""
    path = f"{os.path.dirname(real)}/.{os.path.basename(real)}.{os.getpid()}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(change.after or b"")
            file.flush()
            _like_the_old(fd, real, change)
            os.fsync(fd)
    except BaseException:
        os.unlink(path)
        raise
    return path


def _like_the_old(fd: int, real: str, change: Change) -> None:
    status = change.seen.status
    if status is None or change.program:
        os.fchmod(fd, change.mode)
        return
    os.fchown(fd, status.st_uid, status.st_gid)
    os.fchmod(fd, stat.S_IMODE(status.st_mode))
    copy_attributes(real, fd, real)


def require_unchanged(seen: Seen) -> None:
    """Raises FileBusy where the file is no longer what was read."""
    now = _status(seen.real)
    same = now is None if seen.status is None else now is not None and identity(now) == identity(seen.status)
    if not same:
        raise FileBusy(
            f"{seen.path} was changed by somebody else while gpuhook worked on it; nothing was written to it",
            where=seen.path,
            hint="run the same command again",
        )


def _status(real: str) -> stat_result | None:
    try:
        return os.lstat(real)
    except FileNotFoundError:
        return None


def _keep(real: str, aside: str) -> None:
    """Give the old file a second name; its first one is about to be taken."""
    try:
        os.link(real, aside, follow_symlinks=False)
    except OSError:  # another filesystem, or one without second names
        status = os.lstat(real)
        shutil.copy2(real, aside, follow_symlinks=False)
        os.chown(aside, status.st_uid, status.st_gid, follow_symlinks=False)


def _to_disk(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def in_words(fault: OSError, path: str) -> GpuhookError:
    """An error of the system as ours."""
    hint = HINTS.get(fault.errno or 0, "")
    if fault.errno in (errno.EACCES, errno.EPERM) and os.geteuid():
        hint = "run it as root"
    return FileProtected(f"{path} cannot be written: {fault.strerror}", where=path, hint=hint)


@contextmanager
def system_errors_in_words() -> Iterator[None]:
    """What the system refuses within is raised as an error of ours."""
    try:
        yield
    except OSError as fault:
        raise in_words(fault, str(fault.filename or "a file")) from fault
