"""The container, held by descriptors from the first look on, and proof that it is the one the bundle describes."""

from __future__ import annotations

import posix
from select import select

from gpuhook.kernel.beneath import same_file
from gpuhook.kernel.files import READ, read_fd, read_file
from gpuhook.kernel.libc import ENOSYS, missing_call
from gpuhook.kernel.mounts import MountPoint, parse_mountinfo
from gpuhook.kernel.userns import is_in_ours
from gpuhook.refusals import BadContainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

TABLE = 64 << 20  # bytes of a mount table; a node with ten thousand mounts has some MiB
HINT = "the state on stdin must be that of a container that is being created, and its bundle the one it names"
HIDDEN = (
    "crun hides the containers of an ordinary user from their hooks: start it with runc, or with Podman and either"
)


class Container:
    """A container that is being created, and the host beside it.

    pidfd: its first process; rootfs: the path; root_status: of that folder as the host sees it; owner: uid and gid on
    the host of the container's root; mounts: the container's mount table by id; host_devices: the filesystems
    ("major:minor") that are mounted on the host; proc: a descriptor of the host's procfs; host_namespace: of our own
    mount namespace, host_table: of its mount table. All close on exec; the process that holds them ends soon.
    """

    def __init__(self, pid: int, rootfs: str) -> None:
        self.pid, self.rootfs = pid, rootfs
        self.pidfd = self._hold()
        self.proc = posix.open("/proc", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
        self.host_namespace = posix.open("/proc/self/ns/mnt", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            self._refuse_other_procfs()
            self._refuse_own_namespace()
            self.host_table = posix.open("/proc/self/mountinfo", READ)
            self._take(_mounts(f"/proc/{pid}/mountinfo"))
            self.owner = (self._outside_id("uid_map"), self._outside_id("gid_map"))
        except (OSError, ValueError) as error:
            raise BadContainer(
                f"cannot read about process {pid}: {getattr(error, 'strerror', error)}",
                where=f"/proc/{pid}",
                hint=HIDDEN if isinstance(error, PermissionError) else HINT,
            ) from error
        self.refuse_dead()
        self.root_status = self._root()

    def _hold(self) -> int:
        try:
            return posix.pidfd_open(self.pid)
        except OSError as error:
            if error.errno == ENOSYS:
                raise missing_call("pidfd_open") from error
            raise BadContainer(
                f"the container's process {self.pid} does not exist: {error.strerror}", where="stdin: pid", hint=HINT
            ) from error

    def _refuse_other_procfs(self) -> None:
        """Refuse a /proc that counts processes otherwise than we do: /proc/PID is somebody else there (AC-59).

        fdinfo shows a pidfd's number as that procfs has it (pidfd_open(2)).
        """
        lines = read_file(f"/proc/self/fdinfo/{self.pidfd}", 4096)[0].split(b"\n")
        number = next((line.split()[1] for line in lines if line.startswith(b"Pid:")), b"")
        if number != str(self.pid).encode():
            raise BadContainer(
                f"/proc shows other processes than ours: {self.pid} is {number.decode() or 'nobody'} there",
                where="stdin: pid",
                hint="register gpuhook as a prestart or createRuntime hook",
            )

    def _refuse_own_namespace(self) -> None:
        if same_file(posix.stat(f"/proc/{self.pid}/ns/mnt"), posix.fstat(self.host_namespace)):
            raise BadContainer(
                f"process {self.pid} is in our own mount namespace: mounting there would change the host",
                where="stdin: pid",
                hint=HINT,
            )

    def refuse_dead(self) -> None:
        """Raise BadContainer if it has ended (a pidfd is readable then).

        What was read under /proc/PID is its own only if it still lives afterwards.
        """
        if select([self.pidfd], [], [], 0)[0]:
            raise BadContainer(f"the container's process {self.pid} has ended", where="stdin: pid", hint=HINT)

    def _take(self, theirs: tuple[MountPoint, ...]) -> None:
        posix.lseek(self.host_table, 0, 0)
        ours = parse_mountinfo(read_fd(self.host_table, TABLE))
        self.mounts = {point.id: point for point in theirs}
        self.host_devices = frozenset(point.device for point in ours)

    def point_of(self, number: int) -> MountPoint | None:
        """The mount of this id in the container's mount namespace, which this process has entered.

        One that the tables lack was mounted since by somebody else and has spread to here: they are read again.
        """
        if number not in self.mounts:
            self._take(_mounts("self/mountinfo", self.proc))
        return self.mounts.get(number)

    def _outside_id(self, table: str) -> int:
        """Whom we see as the container's user 0 (user_namespaces(7): the second column is in the reader's terms)."""
        if is_in_ours(self.pid):
            return 0
        rows = [row.split() for row in read_file(f"/proc/{self.pid}/{table}", 1 << 16)[0].splitlines()]
        for inside, outside, _ in rows:
            if int(inside) == 0:
                return int(outside)
        raise ValueError(f"{table} has no entry for 0")

    def _root(self) -> stat_result:
        try:
            fd = posix.open(self.rootfs, posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
        except OSError as error:
            raise BadContainer(
                f"the root filesystem cannot be opened: {error.strerror}",
                where=f"{self.rootfs} (root.path)",
                hint=HINT,
            ) from error
        status = posix.fstat(fd)
        posix.close(fd)
        if same_file(status, posix.stat("/")):
            raise BadContainer("the root filesystem is the host's root", where=f"{self.rootfs} (root.path)", hint=HINT)
        return status


def _mounts(path: str, dir_fd: int | None = None) -> tuple[MountPoint, ...]:
    return parse_mountinfo(read_file(path, TABLE, dir_fd=dir_fd)[0])
