"""The few facts of an ELF file that we need, read from an open file by parts and with bounds.

Program headers alone are used, as the kernel and the loader do; section headers may be stripped or lie.
Format: elf(5).
"""

from __future__ import annotations

import posix
from struct import Struct

from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Segment = tuple[int, int, int, int]

EM_386, EM_PPC64, EM_ARM, EM_X86_64, EM_AARCH64 = 3, 21, 40, 62, 183

MOST_SEGMENTS = 128  # ld.so's own files have about 12
MOST_DYNAMIC = 1 << 16  # bytes of the dynamic section
MOST_NEEDED = 512
MOST_NOTES = 1 << 12  # bytes of a segment of notes
LONGEST_NAME = 256  # bytes with the NUL: a SONAME is a file name
LONGEST_PATH = 4096

_MAGIC = b"\x7fELF"
_EXECUTABLE, _SHARED = 2, 3
_LOAD, _DYNAMIC, _INTERPRETER, _NOTE = 1, 2, 3, 4
_NULL, _NEEDED, _TEXTS, _TEXTS_SIZE, _SONAME = 0, 1, 5, 10, 14
_ABI_TAG = 1


class BadElf(ValueError):
    """The file is no ELF file that we can read; the message says why."""


class Elf(Value):
    """What an ELF file says of itself.

    machine: EM_ number; bits: 64 or 32; little: byte order; soname and interpreter: "" where it has none;
    needed: names of the libraries that it is linked with; abi: the Linux version in its GNU ABI note.
    """

    machine: int
    bits: int
    little: bool
    soname: str = ""
    needed: tuple[str, ...] = ()
    interpreter: str = ""
    abi: tuple[int, int, int] | None = None


def read_elf(fd: int) -> Elf:
    """The facts of the program or shared library that is open as `fd`; its position is neither used nor moved.

    At most some 200 KiB are read whatever the file says. Raises BadElf, also for what cannot be read at all.
    """
    return _File(fd).facts()


def machine_of(fd: int) -> int | None:
    """The EM_ number of the file that is open as `fd`, None where it is no ELF file. Reads 20 bytes."""
    try:
        head = posix.pread(fd, 20, 0)
    except OSError:
        return None
    if len(head) < 20 or head[:4] != _MAGIC or head[5] not in (1, 2):
        return None
    return int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")


def host_machine() -> int:
    """The EM_ number of the programs of this machine: our own interpreter's. Raises BadElf, OSError."""
    fd = posix.open("/proc/self/exe", posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        machine = machine_of(fd)
    finally:
        posix.close(fd)
    if machine is None:
        raise BadElf("/proc/self/exe is no ELF file")
    return machine


class _File:
    """An ELF file whose header was understood."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        head = self._read(0, 20)
        if head[:4] != _MAGIC or head[4] not in (1, 2) or head[5] not in (1, 2):
            raise BadElf("it does not begin as an ELF file does")
        self.bits = 64 if head[4] == 2 else 32
        self.little = head[5] == 1
        kind, self.machine = self._struct("HH").unpack(head[16:20])
        if kind not in (_EXECUTABLE, _SHARED):
            raise BadElf(f"it is neither a program nor a shared library but of type {kind}")
        self.segments = self._segments()

    def facts(self) -> Elf:
        soname, needed = self._names()
        return Elf(
            machine=self.machine,
            bits=self.bits,
            little=self.little,
            soname=soname,
            needed=needed,
            interpreter=self._interpreter(),
            abi=self._abi(),
        )

    def _struct(self, form: str) -> Struct:
        """A layout in this file's byte order, W being a word of this file's size."""
        return Struct(("<" if self.little else ">") + form.replace("W", "Q" if self.bits == 64 else "I"))

    def _read(self, offset: int, size: int) -> bytes:
        data = self._read_some(offset, size)
        if len(data) < size:
            raise BadElf(f"it ends before byte {offset + size}")
        return data

    def _read_some(self, offset: int, size: int) -> bytes:
        if offset >> 62:
            raise BadElf(f"it points at byte {offset}")
        try:
            return posix.pread(self.fd, size, offset)
        except OSError as error:
            raise BadElf(f"it cannot be read: {error.strerror}") from error

    def _segments(self) -> list[Segment]:
        """(type, offset, address, size in the file) of each program header."""
        form = self._struct("WWW")
        after = 24 + form.size + 6  # entry, program headers, section headers; flags and header size
        (_, table, _) = form.unpack(self._read(24, form.size))
        each, count = self._struct("HH").unpack(self._read(after, 4))
        layout = self._struct("IIWWWWWW" if self.bits == 64 else "IWWWWIIW")
        if not count:
            return []
        if each != layout.size or count > MOST_SEGMENTS:
            raise BadElf(f"it has {count} program headers of {each} bytes")
        rows = layout.iter_unpack(self._read(table, each * count))
        if self.bits == 64:
            return [(kind, offset, address, size) for kind, _, offset, address, _, size, _, _ in rows]
        return [(kind, offset, address, size) for kind, offset, address, _, size, _, _, _ in rows]

    def _names(self) -> tuple[str, tuple[str, ...]]:
        tags = self._dynamic()
        needed = [value for tag, value in tags if tag == _NEEDED]
        sonames = [value for tag, value in tags if tag == _SONAME]
        if not needed and not sonames:
            return "", ()
        if len(needed) > MOST_NEEDED:
            raise BadElf(f"it needs {len(needed)} libraries")
        last = dict(tags)
        if _TEXTS not in last or _TEXTS_SIZE not in last:
            raise BadElf("it has names but no table of names")
        place = self._offset(last[_TEXTS])
        names = [self._name(place, value, last[_TEXTS_SIZE]) for value in (*needed, *sonames[-1:])]
        return (names.pop() if sonames else ""), tuple(names)

    def _dynamic(self) -> list[tuple[int, int]]:
        """(tag, value) pairs of the dynamic section up to its end."""
        layout = self._struct("WW")
        for kind, offset, _, size in self.segments:
            if kind == _DYNAMIC:
                data = self._read_some(offset, min(size, MOST_DYNAMIC))
                pairs = list(layout.iter_unpack(data[: len(data) // layout.size * layout.size]))
                tags = [tag for tag, _ in pairs]
                return pairs[: tags.index(_NULL)] if _NULL in tags else pairs
        return []

    def _offset(self, address: int) -> int:
        """Where in the file the byte is that is loaded at this address."""
        for kind, offset, start, size in self.segments:
            if kind == _LOAD and start <= address < start + size:
                return offset + address - start
        raise BadElf(f"nothing is loaded at the address {address:#x} of its names")

    def _name(self, table: int, index: int, size: int) -> str:
        if index >= size:
            raise BadElf(f"a name at {index} is outside of its table of {size} bytes")
        return self._text(table + index, min(LONGEST_NAME, size - index))

    def _interpreter(self) -> str:
        for kind, offset, _, size in self.segments:
            if kind == _INTERPRETER:
                return self._text(offset, min(LONGEST_PATH, size))
        return ""

    def _text(self, offset: int, limit: int) -> str:
        text, end, _ = self._read_some(offset, limit).partition(b"\0")
        if not end:
            raise BadElf(f"the text at byte {offset} does not end within {limit} bytes")
        return text.decode("utf-8", "surrogateescape")

    def _abi(self) -> tuple[int, int, int] | None:
        for kind, offset, _, size in self.segments:
            if kind == _NOTE:
                for owner, tag, content in self._notes(self._read_some(offset, min(size, MOST_NOTES))):
                    # The first number is the system: 0 is Linux.
                    if owner == b"GNU\0" and tag == _ABI_TAG and len(content) >= 16:
                        system, *version = self._struct("IIII").unpack(content[:16])
                        return (version[0], version[1], version[2]) if system == 0 else None
        return None

    def _notes(self, data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        """(owner, type, content) of each whole note."""
        layout = self._struct("III")
        place = 0
        while place + layout.size <= len(data):
            owner_size, size, tag = layout.unpack_from(data, place)
            owner = place + layout.size
            content = owner + (owner_size + 3 & ~3)
            yield data[owner : owner + owner_size], tag, data[content : content + size]
            place = content + (size + 3 & ~3)
