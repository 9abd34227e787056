"""The machine that is to be configured: this one, or the tree of another below a folder (--root).

Paths are those that the machine itself would use; links are followed as there, never out of the tree.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from os import stat_result

from gpuhook.install.errors import FileProtected
from gpuhook.kernel.files import read_fd
from gpuhook.value import Value

FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
LIMIT = 4 << 20  # bytes of a configuration file
MOST_LINKS = 40
MAGIC = frozenset("*?[")


class Seen(Value):
    """A file as it was read.

    real: where it is on this machine, links followed; data: None where there is no file; is_itself: whether no link
    stood at the path's end.
    """

    path: str
    real: str
    data: bytes | None
    status: stat_result | None = None
    is_itself: bool = True

    @property
    def text(self) -> str:
        """The content as text; "" for no file. Raises UnicodeDecodeError."""
        return (self.data or b"").decode("utf-8")


class Host(Value):
    """root: "/" for this machine."""

    root: str = "/"

    @property
    def is_this(self) -> bool:
        """Whether it is this machine, whose programs may be asked and restarted."""
        return self.root == "/"

    def real(self, path: str, *, last: bool = True) -> str:
        """Where this path is on this machine; last: whether a link at its end is followed. Raises FileProtected."""
        done: list[str] = []
        left = [part for part in path.split("/") if part]
        links = 0
        while left:
            part = left.pop(0)
            if part in (".", ".."):
                done = done[:-1] if part == ".." else done
                continue
            target = self._link([*done, part]) if left or last else None
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MOST_LINKS:
                raise FileProtected(f"{path} leads through too many links, or in a circle", where=path)
            done = [] if target.startswith("/") else done
            left = [*(step for step in target.split("/") if step), *left]
        return os.path.join(self.root, *done)

    def _link(self, parts: list[str]) -> str | None:
        try:
            return os.readlink(os.path.join(self.root, *parts))
        except OSError:  # no link, or nothing there
            return None

    def inside(self, real: str) -> str:
        """The path that the machine itself uses for one of this machine's below the root."""
        return real if self.is_this else real.removeprefix(self.root) or "/"

    def exists(self, path: str) -> bool:
        """Whether something is there, links followed."""
        return os.path.exists(self.real(path))

    def is_entry(self, path: str) -> bool:
        """Whether something of this name is there; a link need not lead anywhere."""
        return os.path.lexists(self.real(path, last=False))

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there, links followed."""
        return os.path.isdir(self.real(path))

    def glob(self, pattern: str) -> list[str]:
        """The machine's paths that match, sorted. Names that begin with a dot match only a pattern that does."""
        place, _, name = pattern.rstrip("/").rpartition("/")
        folders = self.glob(place) if MAGIC & set(place) else [place]
        return sorted(f"{folder}/{found}" for folder in folders for found in self._names(folder or "/", name))

    def _names(self, folder: str, pattern: str) -> list[str]:
        try:
            found = os.listdir(self.real(folder))
        except OSError:  # no folder, or not ours to read
            return []
        dotted = pattern.startswith(".")
        return [name for name in found if fnmatch.fnmatchcase(name, pattern) and name.startswith(".") == dotted]

    def files(self, pattern: str) -> list[str]:
        """Those that match and are regular files. A link to /dev/null, by which people switch a file off, is none."""
        return [path for path in self.glob(pattern) if os.path.isfile(self.real(path))]

    def read(self, path: str) -> Seen:
        """The file at this path, or that there is none. Raises FileProtected where it is none that can be read."""
        try:
            real = self.real(path)
            fd = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return Seen(path=path, real=self.real(path), data=None)
        except OSError as fault:
            raise FileProtected(f"{path} cannot be read: {fault.strerror}", where=path) from None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FileProtected(f"{path} is not a regular file", where=path)
            data = read_fd(fd, LIMIT)
        finally:
            os.close(fd)
        if len(data) > LIMIT:
            raise FileProtected(f"{path} is larger than {LIMIT >> 20} MiB, which no configuration is", where=path)
        is_itself = not os.path.islink(self.real(path, last=False))
        return Seen(path=path, real=real, data=data, status=status, is_itself=is_itself)

    def read_name(self, path: str) -> Seen:
        """What stands at this very name; a link is not followed, its content is where it leads."""
        real = self.real(path, last=False)
        if not os.path.islink(real):
            return self.read(path)
        return Seen(path=path, real=real, data=f"-> {os.readlink(real)}\n".encode(), status=os.lstat(real))

    def make_folder(self, path: str) -> list[str]:
        """Make this folder and those above it, mode 0755; those that are new, the uppermost first. Raises OSError."""
        made: list[str] = []
        parts = path.split("/")
        for number in range(2, len(parts) + 1):
            folder = "/".join(parts[:number])
            if not self.is_folder(folder) and _made(self.real(folder)):
                made.append(folder)
        return made

    def program(self, name: str, folders: tuple[str, ...] = FOLDERS) -> str:
        """The first program of this name in these folders, or ""."""
        for folder in folders:
            real = self.real(f"{folder}/{name}")
            if os.path.isfile(real) and os.access(real, os.X_OK):
                return f"{folder}/{name}"
        return ""


def _made(real: str) -> bool:
    """Whether this folder is new; another program may make the same one. Raises OSError."""
    try:
        os.mkdir(real)
    except FileExistsError:
        if not os.path.isdir(real):
            raise
        return False
    os.chmod(real, 0o755)  # noqa: S103  # whatever the umask: engines read it
    return True
