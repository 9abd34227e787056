"""config.toml → a table and the line of each of its keys: the one place that calls the package `toml`.

toml 0.10.2 accepts some broken files, raises exceptions of every kind and knows no lines for values. So the text
must first pass our own scan of TOML 1.0 (settings/grammar.py); then the package reads it, and where both read a
string, a boolean or a list differently, the file is refused rather than misunderstood.
"""

from __future__ import annotations

import toml

from gpuhook.errors import ConfigBroken
from gpuhook.settings.grammar import OTHER, Path, Scan, dotted
from gpuhook.settings.tokens import NotToml
from gpuhook.value import Value


class Document(Value):
    """A TOML file that was understood. table: its values; lines: the line of each key, by path."""

    table: dict[str, object]
    lines: dict[Path, int]

    def line(self, *path: str | int) -> int:
        """The line on which a key, a table or a list's element stands; for an absent one that of the table above."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_toml(data: bytes | str, path: str) -> Document:
    """The table that the file's content holds; `path` is only for messages. Raises ConfigBroken with the line."""
    text = _text(data, path) if isinstance(data, bytes) else data
    try:
        scan = Scan(text)
    except NotToml as fault:
        raise _broken(str(fault), path, fault.line) from None
    table = _read_with_package(scan, path)
    disputed = _difference(scan.table(), table, ())
    if disputed is not None:
        raise _broken(
            f"{dotted(disputed) or 'the file'} is written in a way that the TOML reader misunderstands",
            path,
            Document(table=table, lines=scan.lines).line(*disputed),
            hint="write the value more plainly: on one line, without escapes",
        )
    return Document(table=table, lines=scan.lines)


def _broken(why: str, path: str, line: int, hint: str = "") -> ConfigBroken:
    return ConfigBroken(f"{path} is no valid TOML: {why}", where=f"{path}:{line}", hint=hint or f"correct line {line}")


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        found = data[fault.start]
        raise _broken(f"the byte 0x{found:02X} is not UTF-8", path, line, "save the file as UTF-8") from None


def _read_with_package(scan: Scan, path: str) -> dict[str, object]:
    try:
        return toml.loads(scan.text)
    except Exception as fault:  # noqa: BLE001  # it raises IndexError, KeyError, TypeError … for what it cannot read
        line = _line_at_fault(scan, fault)
        raise _broken(f"the TOML reader cannot read it ({_reason(fault)})", path, line) from None


def _line_at_fault(scan: Scan, fault: Exception) -> int:
    found = (line for line, statement in scan.statements if not _package_reads(statement))
    return next(found, getattr(fault, "lineno", 1))


def _package_reads(statement: str) -> bool:
    try:
        toml.loads(f"{statement}\n")
    except Exception:  # noqa: BLE001  # whatever it is, the statement causes it
        return False
    return True


def _reason(fault: Exception) -> str:
    return str(getattr(fault, "msg", "")) or str(fault) or type(fault).__name__


def _difference(ours: object, theirs: object, path: Path) -> Path | None:
    """Where the two readings differ first, or None."""
    if isinstance(ours, dict):
        if not isinstance(theirs, dict):
            return path
        for name in [*ours, *theirs]:
            if name not in ours or name not in theirs:
                return (*path, name)
        pairs = [(name, ours[name], theirs[name]) for name in ours]
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            return path
        pairs = [(place, *both) for place, both in enumerate(zip(ours, theirs, strict=True))]
    elif ours is OTHER:
        return path if isinstance(theirs, str | bool | list | dict) else None
    else:
        return None if type(ours) is type(theirs) and ours == theirs else path
    found = (_difference(one, other, (*path, name)) for name, one, other in pairs)
    return next((place for place in found if place is not None), None)
