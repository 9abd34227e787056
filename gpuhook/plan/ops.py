"""The operations that a plan is made of. Each is a plain value; backend/engine.py knows how to do them."""

from __future__ import annotations

from gpuhook.value import Value

# The bits of mount(2) by which nvidia-container-cli's log names these flags.
MS_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8}


class Op(Value):
    """One step. `describe` says it in a line for a person, `trace` in the words of nvidia-container-cli's log."""

    def describe(self) -> str:
        """The step in one line."""
        raise NotImplementedError

    def trace(self, _rootfs: str) -> str:
        """The step as the log has it (engine.md 1.7); rootfs: the container's, as the host calls it."""
        return self.describe()


class Bind(Op):
    """Bind a file, folder, socket or device of the host into the container.

    source: absolute host path, driver root included; target: absolute path in the container; kind: "file",
    "folder", "socket" or "device"; flags: of "ro", "nosuid", "nodev", "noexec"; device: the number that the
    source must have, for a device; optional: leave it out with a note where the source is not there any more;
    dispensable: leave it out with a note where the container cannot take it, or the host has lost it.
    """

    source: str
    target: str
    kind: str = "file"
    flags: tuple[str, ...] = ("ro", "nosuid", "nodev")
    device: tuple[int, int] | None = None
    optional: bool = False
    dispensable: bool = False

    def describe(self) -> str:
        """The step in one line."""
        return f"bind {self.kind} {self.source} at {self.target} ({','.join(self.flags)})"

    def trace(self, rootfs: str) -> str:
        """The step as the log has it."""
        return f"mounting {self.source} at {rootfs}{self.target} with flags {_bits(self.flags):#x}"


class Link(Op):
    """Make a symbolic link at `target` that says `to`, where nothing stands yet. dispensable: as for Bind."""

    target: str
    to: str
    dispensable: bool = False

    def describe(self) -> str:
        """The step in one line."""
        return f"link {self.target} -> {self.to}"

    def trace(self, rootfs: str) -> str:
        """The step as the log has it."""
        return f"creating symlink {rootfs}{self.target} -> {self.to}"


class Tmpfs(Op):
    """Cover a folder of the container with a small tmpfs that holds these files.

    files: (name, content, mode); folders: relative paths to make for later binds; filesystem: what must be
    there now ("proc" for the driver's folder in procfs), "" for anything; a folder that is absent is skipped with a
    note when `optional`.
    """

    target: str
    files: tuple[tuple[str, bytes, int], ...] = ()
    folders: tuple[str, ...] = ()
    flags: tuple[str, ...] = ("nosuid", "nodev", "noexec")
    filesystem: str = ""
    optional: bool = False

    def describe(self) -> str:
        """The step in one line."""
        return f"tmpfs at {self.target} with {', '.join(name for name, _, _ in self.files) or 'nothing'}"

    def trace(self, rootfs: str) -> str:
        """The step as the log has it."""
        return f"mounting tmpfs at {rootfs}{self.target} with flags {_bits(self.flags):#x}"


def _bits(flags: tuple[str, ...]) -> int:
    return sum(MS_FLAGS[flag] for flag in flags)


class Allow(Op):
    """Let the container read and write a character device of this number (never make one: no mknod)."""

    major: int
    minor: int

    def describe(self) -> str:
        """The step in one line."""
        return f"allow c {self.major}:{self.minor} rw"


class CacheEntry(Value):
    """A line for the loader's cache: SONAME, absolute path in the container, 64 or 32 bits."""

    soname: str
    path: str
    bits: int


class MergeCache(Op):
    """Put these libraries into the container's /etc/ld.so.cache, before what it holds for the same names."""

    entries: tuple[CacheEntry, ...]

    def describe(self) -> str:
        """The step in one line."""
        return f"merge {len(self.entries)} libraries into /etc/ld.so.cache"


class Image(Value):
    """What a plan must know of the container: where its loader looks for libraries of each kind.

    lib32: "" where there is no place for 32-bit libraries; compat: the image's own CUDA driver libraries, for use
    where they are newer than the host's driver, and their version.
    """

    lib64: str = "/usr/lib/x86_64-linux-gnu"
    lib32: str = "/usr/lib/i386-linux-gnu"
    compat: tuple[CacheEntry, ...] = ()
    compat_version: str = ""


class Omit(Value):
    """What the caller wants left out: a daemon's socket, the GSP firmware, the nodes (not their device rules)."""

    persistenced: bool = False
    fabricmanager: bool = False
    gsp_firmware: bool = False
    nodes: bool = False


class Plan(Value):
    """The complete list of operations in the order of their doing, and what a person should know about it."""

    ops: tuple[Op, ...]
    warnings: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
