"""The container's tree as the worker sees it: folders, mount points and links are made in it and nowhere else.

Every byte and every name in it is the image author's, and it may change while we look. A path is resolved once, inside
the root; what comes back is a descriptor, and all that follows happens on it or on a single name below it.
"""

from __future__ import annotations

import posix

from gpuhook.backend.sources import CHANGED
from gpuhook.kernel import libc
from gpuhook.kernel.beneath import Root, same_file
from gpuhook.kernel.files import is_regular, kind
from gpuhook.note import note, warn
from gpuhook.refusals import ApplyFailed, BadContainer, RootfsReadOnly, TargetRefused, VolumeInTheWay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

    from gpuhook.backend.container import Container
    from gpuhook.kernel.mounts import MountPoint

O_PATH, O_NOFOLLOW = posix.O_PATH, posix.O_NOFOLLOW
FOLDER = O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC
NEW_FILE = posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY | O_NOFOLLOW | posix.O_CLOEXEC
ENOENT, EEXIST, EROFS = 2, 17, 30


class Tree:
    """The root filesystem of the container whose mount namespace this process has entered.

    write_into_volumes: whether mount points may be made in a user's volume. Raises BadContainer where the root is not
    the one that the host saw under the bundle's path.
    """

    def __init__(self, container: Container, *, write_into_volumes: bool) -> None:
        self.container = container
        self.write_into_volumes = write_into_volumes
        self.root = self._open_root()
        self.root_mount = libc.mount_id(self.root.fd)
        self._made: list[tuple[int, str, bool]] = []
        self._mounts: list[int] = []
        self._attached: set[int] = set()  # the ids of those

    def _open_root(self) -> Root:
        """The root by its path, or, where the runtime has already pivoted, `/`.

        In the container's namespace it is a mount (pivot_root(2) wants one). In another container's it may well be
        visible under its path, among the host's files, and is none.
        """
        for path in (self.container.rootfs, "/"):
            try:
                root = Root(path, proc=self.container.proc)
            except OSError:
                continue
            if same_file(posix.fstat(root.fd), self.container.root_status) and libc.is_mount_root(root.fd):
                return root
            root.close()
        raise BadContainer(
            f"process {self.container.pid} does not have the bundle's root filesystem",
            where=self.container.rootfs,
            hint="the state's pid and its bundle belong to different containers",
        )

    def folder(self, path: str) -> int:
        """A descriptor of this folder, made with its parents where it does not exist.

        Raises TargetRefused, VolumeInTheWay or RootfsReadOnly.
        """
        try:
            fd = self.root.open(path, FOLDER)
        except FileNotFoundError:
            fd = self._make_folder(path)
        except OSError as error:
            raise TargetRefused(
                f"{path} in the container cannot be used as a folder: {error.strerror}",
                where=path,
                hint="the image has something else there; remove it from the image",
            ) from error
        return fd

    def _make_folder(self, path: str) -> int:
        above, _, name = path.rstrip("/").rpartition("/")
        parent = self.folder(above or "/")
        self.require_own(parent, above or "/")
        try:
            posix.mkdir(name, 0o755, dir_fd=parent)
            self._made.append((parent, name, True))
            fd = posix.open(name, FOLDER | O_NOFOLLOW, dir_fd=parent)
            libc.fchown(fd, *self.container.owner)
        except FileExistsError as error:
            found = self._made_meanwhile(parent, name, FOLDER)
            if found is None:
                raise self.refusal(error, path, "a folder") from error
            return found
        except OSError as error:
            raise self.refusal(error, path, "a folder") from error
        return fd

    @staticmethod
    def _made_meanwhile(parent: int, name: str, flags: int) -> int | None:
        """A descriptor of what has come to stand here since we looked: containers may share a tree (AC-65).

        None where it is of another kind, such as a link to nothing, which was there before.
        """
        try:
            return posix.open(name, flags | O_NOFOLLOW, dir_fd=parent)
        except OSError:
            return None

    def place(self, path: str, kind_wanted: str, source: stat_result) -> int | None:
        """A descriptor of the file, or of the folder, that a mount from `source` may cover; None: it is there already.

        Made empty where nothing stands; a regular file may be covered, anything else may not. Raises TargetRefused,
        VolumeInTheWay or RootfsReadOnly.
        """
        above, _, name = path.rpartition("/")
        if kind_wanted == "folder":
            return self._folder_place(path, source)
        parent = self.folder(above or "/")
        try:
            fd = posix.open(name, O_PATH | O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=parent)
        except FileNotFoundError:
            self.require_own(parent, above or "/")
            fd = self._make_file(parent, name, path)
        status = posix.fstat(fd)
        if self._is_in_place(path, status, source):
            return None
        if not is_regular(status.st_mode):
            raise TargetRefused(
                f"{path} in the container is {kind(status.st_mode)}; a driver file can only cover a regular file",
                where=path,
                hint=f"remove {path} from the image (a driver package was installed in it)",
            )
        self.require_own(parent, above or "/")
        self.refuse_shared(fd, path)  # the target itself may be a volume
        return fd

    def _folder_place(self, path: str, source: stat_result) -> int | None:
        fd = self.folder(path)
        if same_file(posix.fstat(fd), source):
            return None
        self.require_own(fd, path)
        return fd

    @staticmethod
    def _is_in_place(path: str, status: stat_result, source: stat_result) -> bool:
        """Whether a former run or the runtime has put the same file, or a node of the same device, there."""
        same_device = source.st_rdev and source.st_rdev == status.st_rdev
        same = same_device and status.st_mode >> 12 == source.st_mode >> 12
        if same or same_file(status, source):
            note(f"already in place: {path}")
            return True
        return False

    def _make_file(self, parent: int, name: str, path: str) -> int:
        try:
            made = posix.open(name, NEW_FILE, 0o644, dir_fd=parent)
            self._made.append((parent, name, False))
            posix.fchown(made, *self.container.owner)
            posix.close(made)
            return posix.open(name, O_PATH | O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=parent)
        except OSError as error:
            fd = self._made_meanwhile(parent, name, O_PATH | posix.O_CLOEXEC) if error.errno == EEXIST else None
            if fd is None:
                raise self.refusal(error, path, "a mount point") from error
            return fd

    def link(self, path: str, to: str) -> None:
        """Make a link where nothing stands; what stands there stays, and is named if it leads elsewhere."""
        above, _, name = path.rpartition("/")
        parent = self.folder(above or "/")
        if self._exists(parent, name, path, to):
            return
        self.require_own(parent, above or "/")
        try:
            posix.symlink(to, name, dir_fd=parent)
            self._made.append((parent, name, False))
            posix.chown(name, *self.container.owner, dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno != EEXIST or not self._exists(parent, name, path, to):
                raise self.refusal(error, path, "a link") from error

    @staticmethod
    def _exists(parent: int, name: str, path: str, to: str) -> bool:
        try:
            says = posix.readlink(name, dir_fd=parent)
        except FileNotFoundError:
            return False
        except OSError:
            says = "something else"
        if says not in (to, path.rpartition("/")[0] + "/" + to):
            warn(
                "image-has-driver-files",
                f"{path} of the image is {says}; the loader is led to the host's {to} instead",
            )
        return True

    def require_own(self, fd: int, path: str) -> None:
        """Refuse to make or mount anything in a folder that is not the container's own: a volume, a shared mount."""
        point = self.refuse_shared(fd, path)
        if libc.mount_id(fd) == self.root_mount or self.write_into_volumes:
            return
        if self._device(fd, point) in self.container.host_devices:
            volume = point.point.removeprefix(self.container.rootfs) if point is not None else path
            raise VolumeInTheWay(
                f"driver files belong into {path}, but the volume {volume} of the host covers it",
                where=path,
                hint="mount the volume elsewhere, or set write-into-volumes = true under [gpuhook] in config.toml",
            )

    @staticmethod
    def _device(fd: int, point: MountPoint | None) -> str:
        """The filesystem that an open file is on, as the mount table calls it; btrfs gives files other numbers."""
        if point is not None:
            return point.device
        device = posix.fstat(fd).st_dev
        return f"{posix.major(device)}:{posix.minor(device)}"

    def refuse_shared(self, fd: int, path: str) -> MountPoint | None:
        """The mount that an open file is on, None for one of ours. Raises VolumeInTheWay where it spreads mounts."""
        number = libc.mount_id(fd)
        point = None if number in self._attached else self.container.point_of(number)
        if point is not None and point.shared:
            raise VolumeInTheWay(
                f"{path} is on a shared mount ({point.point}): what is mounted there would appear on the host",
                where=path,
                hint="use rprivate or rslave propagation for this volume, or for the root filesystem",
            )
        return point

    def refusal(self, error: OSError, path: str, what: str) -> Exception:
        """The error for something that could not be made at this path."""
        if error.errno == EROFS:
            return RootfsReadOnly(
                f"{what} must be made at {path}, and the container's root filesystem is read-only",
                where=path,
                hint="start the container with a writable root filesystem, or add the empty file to the image",
            )
        if error.errno in (EEXIST, ENOENT):
            return TargetRefused(
                f"{path} in the container is a link that leads nowhere, or is being exchanged",
                where=path,
                hint="remove it from the image",
            )
        return ApplyFailed(f"cannot make {what} at {path} in the container: {error.strerror}", where=path)

    def attach(self, mount: int, target: int, path: str) -> None:
        """Put a detached mount on this open file or folder, which is closed; path: of it, for messages.

        Raises ApplyFailed.
        """
        try:
            libc.move_mount(mount, target, path)
        except OSError as error:
            if error.errno == ENOENT and not posix.fstat(mount).st_nlink:
                text = f"what belongs at {path} in the container was removed from the host meanwhile"
                raise ApplyFailed(text, where=path, hint=CHANGED) from error
            raise ApplyFailed(f"cannot mount at {path} in the container: {error.strerror}", where=path) from error
        finally:
            posix.close(target)
        self._mounts.append(mount)
        self._attached.add(libc.mount_id(mount))

    def undo(self) -> None:
        """Take away everything that was mounted and made here, last first.

        Mounts go by their descriptors. Names are removed from the host's mount namespace, in which none of them is a
        mount point whatever somebody has put on it meanwhile (unlink(2), since Linux 3.18).
        """
        posix.fchdir(self.container.proc)
        for mount in reversed(self._mounts):
            _detach(mount)
        libc.setns(self.container.host_namespace, libc.CLONE_NEWNS)
        for parent, name, is_a_folder in reversed(self._made):
            _remove(parent, name, is_a_folder=is_a_folder)
        self._mounts.clear()
        self._made.clear()


def _detach(mount: int) -> None:
    """Take off an attached mount; the current folder is the host's procfs, which names our descriptors."""
    try:
        libc.umount2(f"self/fd/{mount}")
    except OSError as error:  # somebody was faster
        note(f"left mounted in the container: {error.strerror}")


def _remove(parent: int, name: str, *, is_a_folder: bool) -> None:
    try:
        if is_a_folder:
            posix.rmdir(name, dir_fd=parent)
        else:
            posix.unlink(name, dir_fd=parent)
    except OSError as error:  # somebody was faster, or has put something in: theirs to keep
        note(f"left behind in the container: {name}: {error.strerror}")
