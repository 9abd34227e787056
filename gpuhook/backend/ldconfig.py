"""The loader's cache of a container made anew by the host's ldconfig, where the old one is damaged.

The image's tree is hostile, and ldconfig follows what it finds there. So a sealed copy of it runs in namespaces of its
own, with a read-only copy of the root's own mount as `/`: without the container's volumes, its /proc, /sys and /dev,
without rights, within limits. What it writes lands on a tmpfs that only we see, and is parsed like any other cache.
"""

from __future__ import annotations

import posix
import sys

from gpuhook.backend.cli import resolve_ldconfig
from gpuhook.backend.image import CACHE_LIMIT
from gpuhook.backend.tree import Tree
from gpuhook.errors import GpuhookError
from gpuhook.kernel import confine, libc
from gpuhook.kernel.child import run_in_child
from gpuhook.kernel.files import READ, fault_of, is_regular, kind, read_fd, trusted_owners
from gpuhook.loader.cache import BadCache, Cache, parse
from gpuhook.loader.elf import BadElf, host_machine, read_elf
from gpuhook.note import note, warn
from gpuhook.refusals import ApplyFailed, LdconfigMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.backend.container import Container
    from gpuhook.settings.values import Settings

DEADLINE = 4.0  # seconds
PROGRAM_LIMIT = 64 << 20  # bytes of ldconfig itself
COVERED = ("dev", "proc", "sys")  # runtimes make these folders in every image
OUTPUT = "ld.so.cache"
LIMITS = {
    confine.RLIMIT_CPU: 4,  # seconds
    confine.RLIMIT_AS: 4 << 30,  # it maps each library as a whole; some have more than a gigabyte
    confine.RLIMIT_DATA: 256 << 20,
    confine.RLIMIT_FSIZE: CACHE_LIMIT,
    confine.RLIMIT_NOFILE: 64,  # includes of includes end here
    confine.RLIMIT_CORE: 0,
}
UNPRIVILEGED = libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV | libc.MOUNT_ATTR_NOEXEC
STILL = UNPRIVILEGED | libc.MOUNT_ATTR_RDONLY


def rebuild(container: Container, settings: Settings) -> Cache | None:
    """The cache of this container's own libraries as ldconfig sees them; None where that fails, with a warning."""
    try:
        data = run_in_child(lambda: _work(container, settings), DEADLINE, "ldconfig", limit=CACHE_LIMIT)
        cache = parse(data)
    except (GpuhookError, BadCache) as error:
        why = error.text if isinstance(error, GpuhookError) else str(error)
        warn(
            "ldcache-stale",
            f"the container's /etc/ld.so.cache is damaged, and ldconfig could not make a new one ({why}): the new one "
            "holds the driver's libraries alone, and the image's are found in the loader's usual folders only",
        )
        return None
    note(f"ldconfig made a new cache of {len(cache.entries)} entries for the container, whose own is damaged")
    return cache.with_(odd=0)  # those are left out already


def _work(container: Container, settings: Settings) -> bytes:
    """The child's part. Nothing is imported once it has entered the container's mount namespace."""
    program = _program(settings)
    null = posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
    sys.meta_path.clear()
    sys.path.clear()
    libc.setns(container.pidfd, libc.CLONE_NEWNS)
    root = libc.open_tree(Tree(container, write_into_volumes=False).root.fd)  # without what is mounted below it
    libc.mount_setattr(root, STILL)
    uid, gid = container.owner
    options = {"mode": "0700", "uid": f"{uid}", "gid": f"{gid}"}
    output = libc.new_mount("tmpfs", UNPRIVILEGED, size=f"{CACHE_LIMIT + 65536}", **options)
    confine.unshare()
    _enter(root)
    _run(program, null, _cover(output), container.owner)
    return _result(output)


def _program(settings: Settings) -> int:
    """A sealed copy of the host's ldconfig. Raises LdconfigMissing for what is no static program of this machine."""
    path = _path(settings)
    try:
        fd = posix.open(path, READ)
        status = posix.fstat(fd)
        fault = fault_of(status, trusted_owners())
        if not is_regular(status.st_mode) or status.st_size > PROGRAM_LIMIT:
            fault = f"it is {kind(status.st_mode)} of {status.st_size} bytes"
        fault = fault or _no_static_program(fd)
        if fault:
            raise LdconfigMissing(f"{path} on the host cannot be used: {fault}", where=path)
        return confine.sealed_copy(fd, status.st_size)
    except OSError as error:
        raise LdconfigMissing(f"{path} on the host cannot be used: {error.strerror}", where=path) from error


def _path(settings: Settings) -> str:
    """The host's program (decisions.md 6). One inside the image, whoever allows it, is not run."""
    configured = settings.ldconfig
    if configured is not None and not configured.startswith("@"):
        settings = settings.with_(ldconfig=None)
    return resolve_ldconfig(settings)[0].removeprefix("@")


def _no_static_program(fd: int) -> str:
    """Why an open file would need something of the image to run (a shell, the loader), "" where it would not."""
    try:
        facts = read_elf(fd)
        if facts.interpreter:
            return f"it is not static but needs {facts.interpreter}"
        return "" if facts.machine == host_machine() else "it is for another machine"
    except BadElf as error:
        return f"it is no static program: {error}"


def _enter(root: int) -> None:
    """The detached mount becomes our root; it is put on top of the present one, which then goes."""
    here = posix.open("/", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    libc.move_mount(root, here, "/")
    posix.fchdir(root)
    confine.make_root()


def _cover(output: int) -> str:
    """Cover the image's own /dev, /proc and /sys; the first that there is takes the output. Returns its name."""
    place = ""
    for name in COVERED:
        try:
            fd = posix.open(name, posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
        except OSError:  # a link, or not there: then nothing can be hidden in it
            continue
        libc.move_mount(libc.new_mount("tmpfs", STILL, size="4k") if place else output, fd, name)
        place = place or f"/{name}"
        posix.close(fd)
    if not place:
        raise ApplyFailed("the image has none of the folders /dev, /proc and /sys", where="/")
    return place


def _run(program: int, null: int, place: str, owner: tuple[int, int]) -> None:
    """Run ldconfig to its end as the first process of its namespace. Raises ApplyFailed."""
    child = posix.fork()
    if child == 0:
        try:
            _become(program, null, place, owner)
        finally:
            posix._exit(127)  # noqa: SLF001  # that is its name
    status = posix.waitstatus_to_exitcode(posix.waitpid(child, 0)[1])
    if status:
        raise ApplyFailed(f"it ended with {f'status {status}' if status > 0 else f'signal {-status}'}", where="/etc")


def _become(program: int, null: int, place: str, owner: tuple[int, int]) -> None:
    """Become ldconfig: it makes no links, does not read its other cache, and writes to `place` only."""
    for fd in range(3):
        posix.dup2(null, fd)
    for resource, value in LIMITS.items():
        confine.limit(resource, value)
    posix.umask(0o077)
    confine.renounce(*owner)
    libc.prctl(libc.PR_SET_PDEATHSIG, 9)
    confine.filter_calls()
    argv = ["ldconfig", "-X", "-i", "-f", "/etc/ld.so.conf", "-C", f"{place}/{OUTPUT}"]
    posix.execve(program, argv, {})


def _result(output: int) -> bytes:
    try:
        fd = posix.open(OUTPUT, READ | posix.O_NOFOLLOW, dir_fd=output)
    except OSError as error:
        raise ApplyFailed(f"it wrote no cache: {error.strerror}", where="/etc") from error
    return read_fd(fd, CACHE_LIMIT)
