"""The dynamic loader's cache, /etc/ld.so.cache: its bytes, read with every offset checked.

The file may come from an image, so that nothing in it is believed: not its counts, not its offsets, not its texts.
Format: glibc, sysdeps/generic/dl-cache.h and dl-cache.c; the reference's account is engine.md 2.5.
"""

from __future__ import annotations

from struct import Struct

from gpuhook.loader.order import ARCHITECTURE, MACHINE, flags_of
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Entry = tuple[str, str, int, int, int]

LIMIT = 16 << 20  # bytes of a file; a large desktop has 300 KiB
MOST_ENTRIES = 1 << 16
MOST_TEXT = 4 << 20  # characters of all texts, counted at each use: entries share one text, or overlap, to exhaust us
LONGEST = 4096  # bytes of a text with its NUL (PATH_MAX)
LONGEST_FOLDER = 255  # characters of the name of a glibc-hwcaps folder (NAME_MAX)

OLD_MAGIC, NEW_MAGIC = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
OLD_HEADER = Struct("<11sxI")  # magic, count
OLD_ENTRY_SIZE = 12
HEADER = Struct("<20sIIB3xI12x")  # magic, count, size of the texts, byte order, offset of the extensions
ENTRY = Struct("<iIIIQ")  # flags, name, path, OS version, hwcap; texts are offsets from the new header
UNKNOWN_ORDER, LITTLE = 0, 2  # the byte order was not written before glibc 2.33

EXTENSION = Struct("<II")  # magic, count
EXTENSION_MAGIC = 0xEAA42174
SECTION = Struct("<IIII")  # tag, flags, offset from the file's start, size
GENERATOR, HWCAPS = 0, 1  # tags: who wrote the file; offsets of the names of glibc-hwcaps folders
MOST_SECTIONS = 64

NAMED = 1 << 30  # in the upper half of hwcap: the lower half is an index into the glibc-hwcaps names
ISA_LEVEL = 0x3FF  # the upper half may hold an x86 ISA level as well

_CONTROL = bytes(c for c in range(1, 256) if c < 0x20 or c == 0x7F)


class BadCache(ValueError):
    """The bytes are no cache that we can trust; the message says why."""


class Cache(Value):
    """What a cache says.

    entries: (name, path, flags, OS version, hwcap) in the file's order, texts decoded with surrogateescape;
    hwcaps: the names of glibc-hwcaps folders that entries refer to by index; odd: how many entries were left out,
    since their path is not absolute, has `..` in it, or one of the texts has control characters.
    """

    entries: tuple[Entry, ...] = ()
    hwcaps: tuple[str, ...] = ()
    odd: int = 0


def parse(data: bytes) -> Cache:
    """The cache in these bytes: the new format, alone or behind the old header, little-endian.

    Raises BadCache, and nothing else, whatever the bytes.
    """
    if len(data) > LIMIT:
        raise BadCache(f"it is larger than {LIMIT >> 20} MiB")
    start = _start(data)
    body = data[start:] if start else data
    if len(body) < HEADER.size:
        raise BadCache(f"it ends in its header, after {len(data)} bytes")
    _, count, size, byte_order, extensions = HEADER.unpack_from(body)
    if byte_order & 3 not in (UNKNOWN_ORDER, LITTLE):
        raise BadCache("it is of another byte order")
    table = HEADER.size + count * ENTRY.size
    if count > MOST_ENTRIES or table + size > len(body):
        raise BadCache(f"{count} entries and {size} bytes of text do not fit into its {len(body)} bytes")
    text = _reader(body, table, table + size)
    entries, odd = _entries(body, table, text, suspicious=_is_suspicious(body[table : table + size]))
    return Cache(entries=entries, hwcaps=_hwcaps(data, extensions, text), odd=odd)


def _start(data: bytes) -> int:
    """Where the new header is."""
    start = 0
    if data.startswith(OLD_MAGIC):
        if len(data) < OLD_HEADER.size:
            raise BadCache(f"it ends in its header, after {len(data)} bytes")
        count = OLD_HEADER.unpack_from(data)[1]
        start = (OLD_HEADER.size + count * OLD_ENTRY_SIZE + 7) & ~7
        if not data.startswith(NEW_MAGIC, start):
            raise BadCache("it is of the old format only")
    elif not data.startswith(NEW_MAGIC):
        raise BadCache("it does not begin as a cache does")
    return start


def _reader(body: bytes, first: int, end: int) -> Callable[[int], str]:
    """A function from an offset to the text there, which ends with a NUL before `end`."""
    known: dict[int, str] = {}
    left = MOST_TEXT

    def text(offset: int) -> str:
        nonlocal left
        found = known.get(offset)
        if found is None:
            known[offset] = found = _text(body, offset, first, end)
        left -= len(found)
        if left < 0:
            raise BadCache(f"its texts are longer than {MOST_TEXT >> 20} MiB together")
        return found

    return text


def _text(body: bytes, offset: int, first: int, end: int) -> str:
    if not first <= offset < end:
        raise BadCache(f"a text at {offset} is outside of its table, {first} to {end}")
    stop = body.find(b"\0", offset, min(offset + LONGEST, end))
    if stop < 0:
        raise BadCache(f"the text at {offset} does not end")
    return body[offset:stop].decode("utf-8", "surrogateescape")


def _entries(body: bytes, end: int, text: Callable[[int], str], *, suspicious: bool) -> tuple[tuple[Entry, ...], int]:
    entries: list[Entry] = []
    odd = 0
    for flags, key, value, version, hwcap in ENTRY.iter_unpack(memoryview(body)[HEADER.size : end]):
        if flags < 0:
            raise BadCache(f"an entry has the flags {flags:#x}")
        name, path = text(key), text(value)
        if path[:1] != "/" or (suspicious and not (is_plain(name) and is_plain(path))):
            odd += 1
        else:
            entries.append((name, path, flags, version, hwcap))
    return tuple(entries), odd


def _is_suspicious(texts: bytes) -> bool:
    return b"/.." in texts or len(texts.translate(None, _CONTROL)) != len(texts)


def is_plain(text: str) -> bool:
    """Whether a text of the cache has neither a control character nor the component `..`."""
    return not any(c < " " or c == "\x7f" for c in text) and ".." not in text.split("/")


def _hwcaps(data: bytes, start: int, text: Callable[[int], str]) -> tuple[str, ...]:
    for tag, offset, size in _sections(data, start):
        if tag == HWCAPS:
            if size % 4 or size > 4 * MOST_ENTRIES:
                raise BadCache(f"the list of its glibc-hwcaps has {size} bytes")
            names = tuple(text(place) for (place,) in Struct("<I").iter_unpack(data[offset : offset + size]))
            if max(map(len, names), default=0) > LONGEST_FOLDER:
                raise BadCache("the name of a glibc-hwcaps folder is longer than a file name can be")
            return names
    return ()


def _sections(data: bytes, start: int) -> list[tuple[int, int, int]]:
    """(tag, offset, size) of each extension, within the file."""
    if not start:
        return []
    if start % 4 or start + EXTENSION.size > len(data):
        raise BadCache(f"its extensions are said to be at {start} of {len(data)}")
    magic, count = EXTENSION.unpack_from(data, start)
    first = start + EXTENSION.size
    if magic != EXTENSION_MAGIC or count > MOST_SECTIONS or first + count * SECTION.size > len(data):
        raise BadCache(f"its extensions at {start} do not begin as extensions do")
    sections = [SECTION.unpack_from(data, first + n * SECTION.size) for n in range(count)]
    for tag, _, offset, size in sections:
        if offset + size > len(data):
            raise BadCache(f"its extension {tag} is outside of the file, {offset} and {size} bytes")
    return [(tag, offset, size) for tag, _, offset, size in sections]


def _is_of(flags: int, wanted: int) -> bool:
    """Whether an entry is an ELF library of the wanted architecture.

    ldconfig knows a 32-bit library for libc6's by its need of libc.so.6; one without it has another type.
    """
    return flags & 1 == 1 and (flags ^ wanted) & ARCHITECTURE == 0


def lookup(cache: Cache, name: str, bits: int, machine: str = MACHINE) -> str | None:
    """The path that the loader takes for a name on a plain CPU: the first entry that asks for no hwcap, else any.

    bits: 64 or 32. None where the cache has nothing. Raises NotCovered for an unknown machine.
    """
    flags = flags_of(machine, bits)
    found = [entry for entry in cache.entries if entry[0] == name and _is_of(entry[2], flags)]
    for _, path, _, _, hwcap in found:
        if not hwcap:
            return path
    return found[0][1] if found else None


def folders(cache: Cache, bits: int, machine: str = MACHINE) -> list[str]:
    """The folders of libraries of this kind, the one that holds most first; those for special CPUs do not count.

    Folders of equal count are in alphabetical order. Raises NotCovered for an unknown machine.
    """
    flags = flags_of(machine, bits)
    counts: dict[str, int] = {}
    for _, path, its_flags, _, hwcap in cache.entries:
        if _is_of(its_flags, flags) and not hwcap:
            folder = path.rpartition("/")[0] or "/"
            counts[folder] = counts.get(folder, 0) + 1
    return sorted(counts, key=lambda folder: (-counts[folder], folder))
