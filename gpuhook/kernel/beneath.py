"""A folder as a world of its own: every path is resolved inside it, links and `..` included (openat2(2), Linux 5.6).

What lies in the folder may be hostile and may change while we look. So a path is resolved once and from then on only
its descriptor counts; type and identity are judged on the descriptor. Nothing here decides what is acceptable.
"""

from __future__ import annotations

import ctypes
import posix
import sys

from gpuhook.kernel.files import READ, is_regular, kind, read_fd
from gpuhook.refusals import KernelTooOld

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

    from typing_extensions import Self

O_PATH: int = posix.O_PATH
_SYS_OPENAT2 = 437  # the same on every machine
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_EAGAIN, _EINVAL, _ENOENT, _EFBIG, _ENOSYS, _ESTALE = 11, 22, 2, 27, 38, 116
_TRIES = 64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def encode(path: str) -> bytes:
    """The bytes of a file name as Python's own calls make them. Raises OSError (EINVAL) for a NUL in it."""
    if "\0" in path:
        raise OSError(_EINVAL, "a NUL in a path", path)
    return path.encode(sys.getfilesystemencoding(), "surrogateescape")


class Root:
    """A folder held open, in which paths are resolved as if it were `/`.

    where: its path (links on the way to it are followed), or a descriptor of it, which is duplicated.
    proc: a descriptor of a procfs that shows this process, "/proc" as seen now by default; it is needed to reopen
    and to name what was opened, so make the Root before entering a namespace whose /proc is somebody else's.
    Paths are text in the file system's encoding, with or without a leading `/`; `..` at the root stays there.
    All methods raise OSError with the path as it was given, and KernelTooOld where openat2 is missing.
    """

    def __init__(self, where: str | int, *, proc: int | None = None) -> None:
        flags = O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC
        self.fd = posix.open(where if isinstance(where, str) else ".", flags, dir_fd=_folder_fd(where))
        try:
            self._proc = posix.open("/proc" if proc is None else ".", flags, dir_fd=proc)
        except OSError:
            posix.close(self.fd)
            raise

    def close(self) -> None:
        """Let the descriptors go; a second time does nothing."""
        for fd in (self.fd, self._proc):
            if fd >= 0:
                posix.close(fd)
        self.fd = self._proc = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def open(self, path: str, flags: int = O_PATH, *, follow: bool = True, mode: int = 0) -> int:
        """A new descriptor of `path`, close-on-exec.

        flags: of open(2); follow: whether a link as the last component is followed (with O_PATH and without
        follow, the link itself is opened; otherwise ELOOP); mode: of a file that O_CREAT makes.
        """
        wanted = flags | posix.O_CLOEXEC | (0 if follow else posix.O_NOFOLLOW)
        how = _OpenHow(wanted, mode, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        name = encode(path)
        for _ in range(_TRIES):  # EAGAIN: something was renamed or mounted while a `..` was resolved
            fd = int(_libc.syscall(_SYS_OPENAT2, self.fd, name, ctypes.addressof(how), ctypes.sizeof(how)))
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code != _EAGAIN:
                break
        if code == _ENOSYS:
            raise KernelTooOld(
                f"Linux {posix.uname().release} lacks openat2 (there since 5.6), and the embedded engine needs 5.12",
                hint='install nvidia-container-cli and set `backend = "nvidia-container-cli"` under [gpuhook]',
            )
        raise OSError(code, posix.strerror(code), path)

    def stat(self, path: str, *, follow: bool = True) -> stat_result:
        """The status of `path`; follow: of what a link leads to, not of the link."""
        fd = self.open(path, follow=follow)
        try:
            return posix.fstat(fd)
        finally:
            posix.close(fd)

    def reopen(self, fd: int, flags: int = READ) -> int:
        """A descriptor for reading of exactly the file that `fd` (perhaps O_PATH) holds; ESTALE if it is not.

        The caller has judged the type: opening a device or a FIFO has effects. flags: of open(2).
        """
        again = posix.open(f"self/fd/{fd}", flags | posix.O_CLOEXEC, dir_fd=self._proc)
        if same_file(posix.fstat(again), posix.fstat(fd)):
            return again
        posix.close(again)
        raise OSError(_ESTALE, "it was exchanged while it was opened")

    def open_regular(self, path: str) -> int:
        """A descriptor for reading of a regular file; anything else is not opened at all (EINVAL)."""
        fd = self.open(path)
        try:
            mode = posix.fstat(fd).st_mode
            if not is_regular(mode):
                raise OSError(_EINVAL, f"it is {kind(mode)}, not a regular file", path)
            return self.reopen(fd)
        finally:
            posix.close(fd)

    def read(self, path: str, limit: int) -> tuple[bytes, stat_result]:
        """The content of a regular file and its status, of one and the same file; EFBIG above `limit` bytes."""
        fd = self.open_regular(path)
        try:
            status = posix.fstat(fd)
            data = read_fd(fd, limit)
        finally:
            posix.close(fd)
        if len(data) > limit:
            raise OSError(_EFBIG, f"it is larger than {limit} bytes", path)
        return data, status

    def listdir(self, path: str, limit: int) -> list[str]:
        """The names in a folder, sorted; EFBIG above `limit` of them."""
        fd = self.open(path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NONBLOCK)
        try:
            names: list[str] = []
            with posix.scandir(fd) as entries:
                for entry in entries:
                    if len(names) >= limit:
                        raise OSError(_EFBIG, f"it holds more than {limit} entries", path)
                    names.append(entry.name)
        finally:
            posix.close(fd)
        return sorted(names)

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """The path that `path` leads to inside this root, without links, with a leading `/`."""
        fd = self.open(path, follow=follow)
        try:
            return self.path_of(fd)
        finally:
            posix.close(fd)

    def path_of(self, fd: int) -> str:
        """Where in this root an open file lies, as `/path`; ENOENT where it lies elsewhere or has no name any more.

        The kernel's word for it (proc_pid_fd(5)) is taken as a hint only and proven by opening it again.
        """
        base = self._name_of(self.fd).rstrip("/")
        name = self._name_of(fd)
        inside = name[len(base) :]
        if not name.startswith(base) or (inside and not inside.startswith("/")):
            raise OSError(_ENOENT, "it lies outside of its root", name)
        if not same_file(self.stat(inside or "/", follow=False), posix.fstat(fd)):
            raise OSError(_ENOENT, "it has no name any more", name)
        return inside or "/"

    def _name_of(self, fd: int) -> str:
        return posix.readlink(f"self/fd/{fd}", dir_fd=self._proc)


def same_file(one: stat_result, other: stat_result) -> bool:
    """Whether two statuses are of one and the same inode."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _folder_fd(where: str | int) -> int | None:
    return None if isinstance(where, str) else where
