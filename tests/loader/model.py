"""How ld.so searches its cache, told in plain steps over the raw bytes: what the tests hold our files against.

Two generations: up to glibc 2.32 (hwcap bits, OS versions) and since 2.33 (glibc-hwcaps folders).
"""

from __future__ import annotations

from struct import unpack_from


def _int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _is_digit(c: int) -> bool:
    return 0x30 <= c <= 0x39


def _number(text: bytes, at: int) -> tuple[int, int]:
    value = 0
    while _is_digit(text[at]):
        value = _int32(value * 10 + text[at] - 0x30)
        at += 1
    return value, at


def compare(first: bytes, second: bytes, *, signed: bool = True) -> int:
    """The comparison that ld.so and ldconfig use, character by character; < 0, 0 or > 0."""
    a, b, i, j = first + b"\0", second + b"\0", 0, 0

    def char(c: int) -> int:
        return c - 256 if signed and c >= 128 else c

    while a[i]:
        if _is_digit(a[i]) != _is_digit(b[j]):
            return 1 if _is_digit(a[i]) else -1
        if _is_digit(a[i]):
            left, i = _number(a, i)
            right, j = _number(b, j)
            if left != right:
                return _int32(left - right)
        elif a[i] != b[j]:
            return char(a[i]) - char(b[j])
        else:
            i, j = i + 1, j + 1
    return char(a[i]) - char(b[j])


def _text(data: bytes, offset: int) -> bytes:
    return data[offset : data.index(b"\0", offset)]


def _equal_entries(data: bytes, name: bytes) -> list[tuple[int, bytes, int, int]]:
    """(flags, path, OS version, hwcap) of the entries that a search by halves finds for the name, in order."""
    (count,) = unpack_from("<I", data, 20)
    rows = [unpack_from("<iIIIQ", data, 48 + 24 * n) for n in range(count)]
    left, right = 0, count - 1
    while left <= right:
        middle = (left + right) // 2
        verdict = compare(name, _text(data, rows[middle][1]))
        if verdict == 0:
            while middle and compare(name, _text(data, rows[middle - 1][1])) == 0:
                middle -= 1
            found = []
            while middle < count and compare(name, _text(data, rows[middle][1])) == 0:
                flags, _, path, version, hwcap = rows[middle]
                found.append((flags, _text(data, path), version, hwcap))
                middle += 1
            return found
        if verdict < 0:
            left = middle + 1
        else:
            right = middle - 1
    return []


def old_loader(data: bytes, name: bytes, *, flags: int, hwcaps: int, kernel: int = 0x060000) -> bytes | None:
    """What glibc up to 2.32 takes. hwcaps: the bits that the CPU has; kernel: its version."""
    for its_flags, path, version, hwcap in _equal_entries(data, name):
        if its_flags == flags and not hwcap & ~hwcaps and version <= kernel:
            return path
    return None


def hwcaps_of(data: bytes) -> list[bytes]:
    """The names of glibc-hwcaps folders in the extension part of a file in the new format alone."""
    (start,) = unpack_from("<I", data, 32)
    if not start:
        return []
    magic, count = unpack_from("<II", data, start)
    assert magic == 0xEAA42174
    for n in range(count):
        tag, _, offset, size = unpack_from("<IIII", data, start + 8 + 16 * n)
        if tag == 1:
            assert offset % 4 == 0
            return [_text(data, place) for place in unpack_from(f"<{size // 4}I", data, offset)]
    return []


def new_loader(data: bytes, name: bytes, *, flags: int, cpu: list[bytes]) -> bytes | None:
    """What glibc since 2.33 takes. cpu: the glibc-hwcaps folders for it, best first."""
    names = hwcaps_of(data)
    best, best_rank = None, len(cpu)
    for its_flags, path, _, hwcap in _equal_entries(data, name):
        if its_flags != flags:
            continue
        named = (hwcap >> 32) & ~0x3FF == 1 << 30
        if not named:
            if best is not None:
                break
            if hwcap:
                continue
            return path
        index = hwcap & 0xFFFFFFFF
        folder = names[index] if index < len(names) else b""
        if folder in cpu and cpu.index(folder) < best_rank:
            best, best_rank = path, cpu.index(folder)
    return best
