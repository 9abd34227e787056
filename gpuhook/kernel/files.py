"""Files of the host, read with care: no blocking open, no device, no link, bounded size, known owner."""

from __future__ import annotations

import posix

from gpuhook.errors import GpuhookError, UnsafeConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

FORMAT = 0o170000
REGULAR, FOLDER, LINK, CHAR = 0o100000, 0o040000, 0o120000, 0o020000
STICKY, WRITABLE_BY_OTHERS = 0o1000, 0o022
READ = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOCTTY

KINDS = {
    REGULAR: "a regular file",
    FOLDER: "a folder",
    LINK: "a link",
    CHAR: "a character device",
    0o060000: "a block device",
    0o010000: "a FIFO",
    0o140000: "a socket",
}


def kind(mode: int) -> str:
    """What a file of this st_mode is, in words."""
    return KINDS.get(mode & FORMAT, "of an unknown kind")


def is_regular(mode: int) -> bool:
    """Whether this st_mode is a regular file's."""
    return mode & FORMAT == REGULAR


def is_folder(mode: int) -> bool:
    """Whether this st_mode is a folder's."""
    return mode & FORMAT == FOLDER


def identity(status: stat_result) -> tuple[int, int, int, int, int]:
    """What changes whenever a file's content does: device, inode, mtime and ctime in ns, size."""
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read_fd(fd: int, limit: int) -> bytes:
    """Up to `limit` + 1 bytes of an open file; more than `limit` means: too large."""
    parts: list[bytes] = []
    left = limit + 1
    while left > 0 and (part := posix.read(fd, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def read_file(path: str, limit: int, *, links: bool = False, dir_fd: int | None = None) -> tuple[bytes, stat_result]:
    """The content of a regular file and its status, taken from one open file.

    links: whether the last component may be a link. Raises OSError, also EFBIG (more than `limit` bytes) and
    EINVAL (no regular file); a FIFO or a device is not waited for.
    """
    fd = posix.open(path, READ if links else READ | posix.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        status = posix.fstat(fd)
        if not is_regular(status.st_mode):
            raise OSError(22, f"it is {kind(status.st_mode)}, not a regular file", path)
        data = read_fd(fd, limit)
    finally:
        posix.close(fd)
    if len(data) > limit:
        raise OSError(27, f"it is larger than {limit >> 10} KiB", path)
    return data, status


def trusted_owners() -> tuple[int, ...]:
    """Who may own what we obey: root, ourselves, and inside a user namespace the overflow id (root's files there).

    decisions.md 8.
    """
    owners = (0, posix.geteuid())
    if in_user_namespace():
        return (*owners, _overflow_uid())
    return owners


def in_user_namespace() -> bool:
    """Whether this process lives in a user namespace that is not the initial one (user_namespaces(7))."""
    try:
        fields = read_file("/proc/self/uid_map", 4096)[0].split()
    except OSError:  # no procfs, or a kernel without user namespaces
        return False
    return fields != [b"0", b"0", b"4294967295"]


def _overflow_uid() -> int:
    try:
        return int(read_file("/proc/sys/kernel/overflowuid", 32)[0])
    except (OSError, ValueError):
        return 65534


def fault_of(status: stat_result, owners: tuple[int, ...]) -> str:
    """Why a file or folder of this status cannot be obeyed, or "" where it can."""
    if status.st_uid not in owners:
        return f"it belongs to uid {status.st_uid}, not to root"
    sticky_folder = is_folder(status.st_mode) and status.st_mode & STICKY
    if status.st_mode & WRITABLE_BY_OTHERS and not sticky_folder:
        return f"others can write it (mode {status.st_mode & 0o7777:04o})"
    return ""


def require_trusted(path: str, error: type[GpuhookError] = UnsafeConfig) -> None:
    """Refuse a file that others could have written, or could replace through one of the folders above it.

    path: absolute. Links on the way are followed and their targets' folders checked as well. Raises `error`,
    and OSError where something is missing.
    """
    owners = trusted_owners()
    for place in _chain(path):
        status = posix.stat(place)
        fault = fault_of(status, owners)
        if fault:
            raise error(
                f"{path} decides what root does, but {'it' if place == path else place} is not safe: {fault}",
                where=place,
                hint=f"chown root {place}; chmod go-w {place}",
            )


def _chain(path: str, depth: int = 0) -> list[str]:
    """The path, every folder above it, and the same for each link's target, nearest first."""
    if depth > 40:
        raise OSError(40, "too many links", path)
    places: list[str] = []
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for length in range(len(parts) + 1):
        place = "/" + "/".join(parts[:length])
        if posix.lstat(place).st_mode & FORMAT == LINK:
            target = posix.readlink(place)
            base = target if target.startswith("/") else f"{'/' + '/'.join(parts[: length - 1])}/{target}"
            places.extend(_chain(base, depth + 1))
        places.append(place)
    return places[::-1]
