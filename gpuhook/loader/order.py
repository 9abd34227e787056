"""The order of names in the loader's cache, and the flags by which it tells architectures apart.

ld.so searches the cache by halves, with a comparison of its own in which runs of digits count as numbers
(glibc, `_dl_cache_libcmp`). What it calls equal need not be the same text: `libx.so.01` is `libx.so.1`.
"""

from __future__ import annotations

import posix

from gpuhook.refusals import NotCovered

MACHINE = posix.uname().machine
ARCHITECTURE = 0xFF00  # the bits of an entry's flags that name the architecture; the low ones say "ELF, libc6"
FLAGS = {
    ("x86_64", 64): 0x0303,
    ("x86_64", 32): 0x0003,
    ("aarch64", 64): 0x0A03,
    ("aarch64", 32): 0x0903,
    ("ppc64le", 64): 0x0503,
}

DIGITS = b"0123456789"
_NUMBERS = bytes(c if c in DIGITS else 0x20 for c in range(256))
# Keys compare as plain bytes. Characters keep their rank; each text ends with a byte for the name's end or with
# NUMBER where digits follow, which are greater than any character. Digits become NUL, to split at. On x86 a C char
# has a sign, so that bytes from 0x80 on are less than the end. Names hold no control characters: that leaves room.
_SIGNED = bytes(0 if c in DIGITS else c - 0x7F if c >= 0x80 else c + 0x80 for c in range(256))
_UNSIGNED = bytes(0 if c in DIGITS or c == 0 else c - 1 for c in range(256))
_SIGNED_END, _UNSIGNED_END, _NUMBER = b"\x81", b"\x01", b"\xff"


def flags_of(machine: str, bits: int) -> int:
    """The flags of a library's entry. machine: as uname says; bits: 64 or 32. Raises NotCovered."""
    flags = FLAGS.get((machine, bits))
    if flags is None:
        raise NotCovered(f"no {bits}-bit libraries of {machine} are known to the loader's cache")
    return flags


def order(name: str, machine: str = MACHINE) -> bytes:
    """A key for a name: greater, equal and less as the loader of this machine compares names.

    The loader counts in 32 bits without looking at overflow; so do we, and equal names always have equal keys. Its
    less and greater go in circles among long numbers (see may_overflow). The name holds no control character.
    """
    raw = name.encode("utf-8", "surrogateescape")
    signed = machine.startswith(("x86", "i"))
    texts = raw.translate(_SIGNED if signed else _UNSIGNED).split(b"\0")
    end = _SIGNED_END if signed else _UNSIGNED_END
    if len(texts) == 1:
        return texts[0] + end
    return _join(texts, raw.translate(_NUMBERS).split()) + end


def _join(texts: list[bytes], numbers: list[bytes]) -> bytes:
    # Between the digits of one number there are empty texts; those at both ends count.
    parts = [texts[0]]
    waiting = iter(numbers)
    for text in texts[1:-1]:
        if text:
            parts += (_NUMBER, _wrapped(next(waiting)), text)
    parts += (_NUMBER, _wrapped(next(waiting)), texts[-1])
    return b"".join(parts)


def _wrapped(digits: bytes) -> bytes:
    return (int(digits) & 0xFFFFFFFF).to_bytes(4, "big")


def may_overflow(names: list[str]) -> bool:
    """Whether one of the names has a number of so many digits that 32 bits may not hold it.

    The loader subtracts such numbers with overflow too, and then `less` is no order any more: 0 > 4294967295 >
    2147483648 > 2147483647 > 0. What ldconfig made of them must stay as it is.
    """
    numbers = "/".join(names).encode("utf-8", "surrogateescape").translate(_NUMBERS).split()
    return max(map(len, numbers), default=0) >= 10
