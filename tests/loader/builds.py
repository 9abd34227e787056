"""Small real things for the loader's tests: ELF files made byte by byte, folder trees, caches made by ldconfig."""

from __future__ import annotations

import subprocess
from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LDCONFIG = "/sbin/ldconfig"


def tiny_elf(
    soname: bytes = b"",
    *,
    needed: Sequence[bytes] = (),
    interpreter: bytes = b"",
    abi: tuple[int, int, int] | None = None,
    bits: int = 64,
    machine: int | None = None,
    little: bool = True,
) -> bytes:
    """A shared library without code: headers, a dynamic section and its names."""
    order = "<" if little else ">"
    word = "Q" if bits == 64 else "I"
    machine = machine or (62 if bits == 64 else 3)
    texts = b"\0"
    tags: list[tuple[int, int]] = []
    for tag, name in [*((1, name) for name in needed), *([(14, soname)] if soname else [])]:
        tags.append((tag, len(texts)))
        texts += name + b"\0"
    note = pack(order + "III4sIIII", 4, 16, 1, b"GNU\0", 0, *abi) if abi else b""
    inside = interpreter + b"\0" if interpreter else b""
    header, row = (64, 56) if bits == 64 else (52, 32)
    count = 2 + bool(note) + bool(inside)
    dynamic = header + row * count
    entry = 16 if bits == 64 else 8
    table = dynamic + entry * (len(tags) + 3)
    notes = table + len(texts) + -(table + len(texts)) % 8
    path = notes + len(note)
    total = path + len(inside)
    rows = [(1, 0, total), (2, dynamic, table - dynamic)]
    if note:
        rows.append((4, notes, len(note)))
    if inside:
        rows.append((3, path, len(inside)))
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if little else 2, 1]) + bytes(9)
    out = ident + pack(
        order + "HHI" + word * 3 + "IHHHHHH", 3, machine, 1, 0, header, 0, 0, header, row, count, 0, 0, 0
    )
    for kind, offset, size in rows:
        if bits == 64:
            out += pack(order + "IIQQQQQQ", kind, 4, offset, offset, offset, size, size, 8)
        else:
            out += pack(order + "IIIIIIII", kind, offset, offset, offset, size, size, 4, 8)
    for tag, value in [*tags, (5, table), (10, len(texts)), (0, 0)]:
        out += pack(order + word * 2, tag, value)
    return (out + texts).ljust(notes, b"\0") + note + inside


def make_root(root: Path, libraries: Sequence[tuple[str, bytes, int]], folders: Sequence[str]) -> Path:
    """A root filesystem with these libraries, (path, SONAME, bits), and an ld.so.conf that lists the folders."""
    for folder in ("etc", "var/cache/ldconfig", "lib", "usr/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, soname, bits in libraries:
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(tiny_elf(soname, bits=bits))
    (root / "etc/ld.so.conf").write_text("".join(f"{folder}\n" for folder in folders))
    return root


def ldconfig_cache(root: Path, form: str = "new") -> bytes:
    """The cache that this machine's ldconfig makes of a root filesystem. form: new, old or compat."""
    subprocess.run([LDCONFIG, "-X", "-r", str(root), "-c", form], check=True, capture_output=True, timeout=30)
    return (root / "etc/ld.so.cache").read_bytes()


def listed(cache: bytes, place: Path) -> list[str]:
    """What `ldconfig -p` says of a cache, a line for each entry."""
    place.write_bytes(cache)
    said = subprocess.run([LDCONFIG, "-p", "-C", str(place)], check=True, capture_output=True, text=True, timeout=30)
    return [line.strip() for line in said.stdout.splitlines() if "=>" in line]
