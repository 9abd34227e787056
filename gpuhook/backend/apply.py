"""A plan is carried out inside the container: each operation by one function, all of them or none."""

from __future__ import annotations

import posix

from gpuhook.backend.image import CACHE
from gpuhook.backend.sources import attributes
from gpuhook.backend.tree import NEW_FILE, Tree
from gpuhook.kernel import libc
from gpuhook.kernel.child import RIGHTS, take_the_time
from gpuhook.kernel.files import is_regular
from gpuhook.loader.merge import merge
from gpuhook.note import note
from gpuhook.plan.ops import Bind, Link, MergeCache, Plan, Tmpfs
from gpuhook.refusals import ApplyFailed, RootfsReadOnly, TargetRefused, VolumeInTheWay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.backend.sources import Sources
    from gpuhook.loader.cache import Cache
    from gpuhook.plan.ops import Op

TMPFS_SIZE = "1m"  # plenty for the driver's parameters
EBUSY, EROFS = 16, 30


class Worker:
    """What the operations share. tree: the container; sources: by host path; cache and cache_bytes: of its loader."""

    def __init__(self, tree: Tree, sources: Sources, cache: Cache | None, cache_bytes: bytes) -> None:
        self.tree, self.sources = tree, sources
        self.cache, self.cache_bytes = cache, cache_bytes

    def apply(self, plan: Plan) -> None:
        """Do every operation of the plan in its order; after a failure nothing that was made stays.

        Raises GpuhookError.
        """
        try:
            for op in plan.ops:
                note(op.describe(), op.trace(self.tree.container.rootfs))
                self._do(op)
        except BaseException:
            take_the_time()
            self.tree.undo()
            raise

    def _do(self, op: Op) -> None:
        """One operation. What the kernel refuses and nobody foresaw is told with what was to be done."""
        try:
            if isinstance(op, (Bind, Link)):
                self.put(op)
            elif isinstance(op, Tmpfs):
                self.cover(op)
            elif isinstance(op, MergeCache):
                self.merge_cache(op)
        except OSError as error:
            raise ApplyFailed(f"cannot do in the container: {op.describe()}: {error.strerror}", hint=RIGHTS) from error

    def put(self, op: Bind | Link) -> None:
        """Bind or link, unless it is dispensable and the container has no place for it."""
        try:
            if isinstance(op, Bind):
                self.bind(op)
            else:
                self.tree.link(op.target, op.to)
        except (TargetRefused, VolumeInTheWay, RootfsReadOnly) as error:
            if not op.dispensable:
                raise
            note(f"left out: {error.text}")

    def bind(self, op: Bind) -> None:
        """Attach a source at its target, unless the same thing is there already."""
        sources = self.sources.get(op.source)
        if not sources:  # optional, and open_sources has said so
            return
        source = sources.pop()
        if (op.optional or op.dispensable) and not posix.fstat(source.mount).st_nlink:
            note(f"left out, removed from the host meanwhile: {op.source}")
            return
        if op.target.startswith("/proc/") and not self._is_covered(op.target.rpartition("/")[0]):
            note(f"left out, the container's procfs is not covered there: {op.target}")
            return
        target = self.tree.place(op.target, op.kind, source.status)
        if target is None:
            return
        self.tree.attach(source.mount, target, op.target)

    def _is_covered(self, path: str) -> bool:
        try:
            fd = self.tree.root.open(path)
        except OSError:
            return False
        try:
            return libc.filesystem_of(fd) == libc.TMPFS_MAGIC
        finally:
            posix.close(fd)

    def cover(self, op: Tmpfs) -> None:
        """Cover a folder by a tmpfs that was filled before anybody could see it."""
        target = self._procfs_folder(op) if op.filesystem == "proc" else self.tree.folder(op.target)
        if target is None:
            return
        if op.filesystem != "proc":
            self.tree.require_own(target, op.target)
        self.tree.attach(self._filled(op), target, op.target)

    def _procfs_folder(self, op: Tmpfs) -> int | None:
        """The folder of the container's own procfs, or None where there is none to cover (decisions.md 19)."""
        try:
            fd = self.tree.root.open(op.target, posix.O_PATH | posix.O_DIRECTORY)
        except OSError as error:
            note(f"not covered, the container has no {op.target}: {error.strerror}")
            return None
        if libc.filesystem_of(fd) == libc.PROC_SUPER_MAGIC:
            self.tree.refuse_shared(fd, op.target)
            return fd
        note(f"not covered, {op.target} is not on procfs (or is covered already)")
        posix.close(fd)
        return None

    def _filled(self, op: Tmpfs) -> int:
        """A detached tmpfs with the operation's files and folders, read-only if it says so."""
        uid, gid = self.tree.container.owner
        later = libc.MOUNT_ATTR_RDONLY
        bits = attributes(op.flags)
        mount = libc.new_mount("tmpfs", bits & ~later, mode="0555", size=TMPFS_SIZE, uid=f"{uid}", gid=f"{gid}")
        for name in op.folders:
            posix.mkdir(name, 0o555, dir_fd=mount)
            posix.chown(name, uid, gid, dir_fd=mount, follow_symlinks=False)
        for name, content, mode in op.files:
            self._write(mount, name, content, mode)
        if bits & later:
            libc.mount_setattr(mount, bits, op.target)
        return mount

    def _write(self, folder: int, name: str, content: bytes, mode: int) -> None:
        """A new file of the container's root in this folder."""
        fd = posix.open(name, NEW_FILE, mode, dir_fd=folder)
        try:
            view = memoryview(content)
            while view:
                view = view[posix.write(fd, view) :]
            posix.fchmod(fd, mode)
            posix.fchown(fd, *self.tree.container.owner)
        finally:
            posix.close(fd)

    def merge_cache(self, op: MergeCache) -> None:
        """Replace the loader's cache by one that leads to the driver: a new file under the old name."""
        merged = merge(self.cache, [(entry.soname, entry.path, entry.bits) for entry in op.entries])
        if merged == self.cache_bytes:
            note("the loader's cache is right already")
            return
        folder = self.tree.folder("/etc")
        try:
            self.tree.require_own(folder, "/etc")
        except VolumeInTheWay as error:  # somebody else's /etc is left as it is (decisions.md 22)
            note(f"the loader's cache is not updated: {error.text}")
            return
        self._replace(folder, merged)

    def _replace(self, folder: int, content: bytes) -> None:
        name = CACHE.rpartition("/")[2]
        new = f".{name}.gpuhook-{posix.getpid()}"
        try:
            self._write(folder, new, content, 0o644)
        except OSError as error:
            if error.errno == EROFS:
                self._cover_cache(folder, name, content, error)
                return
            self._drop(folder, new)
            raise self.tree.refusal(error, CACHE, "the loader's cache") from error
        try:
            posix.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            self._drop(folder, new)
            if error.errno == EBUSY:  # a volume of this very file: as a foreign /etc, it is left as it is
                note(f"the loader's cache is not updated: something is mounted at {CACHE}")
                return
            text = f"cannot replace {CACHE} in the container: {error.strerror}"
            raise ApplyFailed(text, where=CACHE, hint="it must be a file: remove what the image has there") from error

    @staticmethod
    def _drop(folder: int, name: str) -> None:
        try:
            posix.unlink(name, dir_fd=folder)
        except OSError as error:
            note(f"{name}: {error.strerror}")

    def _cover_cache(self, folder: int, name: str, content: bytes, fault: OSError) -> None:
        """On a read-only root the old file, if there is one, is covered by the new one on a tmpfs."""
        try:
            target = posix.open(name, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            raise self.tree.refusal(fault, CACHE, "the loader's cache") from error
        if not is_regular(posix.fstat(target).st_mode):
            raise self.tree.refusal(fault, CACHE, "the loader's cache") from fault
        self.tree.refuse_shared(target, CACHE)
        bits = attributes(("nosuid", "nodev", "noexec"))
        size = f"{(len(content) >> 10) + 64}k"
        mount = libc.new_mount("tmpfs", bits, mode="0555", size=size)
        self._write(mount, name, content, 0o644)
        held = posix.open(name, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=mount)
        alone = libc.open_tree(held, CACHE)
        libc.mount_setattr(alone, bits | libc.MOUNT_ATTR_RDONLY, CACHE)
        self.tree.attach(alone, target, CACHE)
