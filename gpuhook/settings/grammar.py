"""What TOML 1.0 allows, and on which line each key stands.

The package `toml` accepts broken files and forgets where values came from. This scan refuses what is no TOML, with
the line, and keeps the line of every key. It also reads strings, booleans, lists and tables, so that the package's
reading can be compared with a second one (settings/reader.py). It reads no number and no date: those are OTHER.
"""

from __future__ import annotations

from gpuhook.settings.tokens import (
    BARE,
    BETWEEN,
    BLANK,
    CONTROL,
    DATE,
    FLOAT,
    INTEGER,
    REST_OF_LINE,
    SCALAR,
    Cursor,
    NotToml,
)

DEEPEST = 32  # parts of a key and levels of lists, together
LONGEST = 64 << 10  # of one statement, in characters: the package's time grows with the square of it

OTHER = object()  # a number, a date or a time
Path = tuple[str | int, ...]


class _Table:
    """A table under construction. `made_by` tells who may still add to it (TOML 1.0, "Table" and "Inline Table").

    header: its own [header]; above: a [header] below it; dots: a dotted key; braces: nobody may.
    """

    __slots__ = ("children", "made_by")

    def __init__(self, made_by: str) -> None:
        self.made_by = made_by
        self.children: dict[str, object] = {}


class _Rows(list[_Table]):
    """An array of tables, which further [[headers]] extend; a list that was written as a value is closed."""


class Scan:
    """One pass over a text. Raises NotToml.

    text: what was read, with Unix line ends; lines: the line of each key, table and list element;
    statements: line and text of each header and each key with its value.
    """

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.lines: dict[Path, int] = {}
        self.statements: list[tuple[int, str]] = []
        self._cursor = Cursor(self.text)
        self._root = self._table = _Table("header")
        self._path: Path = ()
        self._refuse_control_characters()
        self._read()

    def table(self) -> dict[str, object]:
        """What was read, with OTHER for what this scan does not read."""
        return _plain_table(self._root)

    def _refuse_control_characters(self) -> None:
        if self.text.startswith("\ufeff"):
            raise NotToml("the file begins with a byte order mark", 1)
        found = CONTROL.search(self.text)
        if found:
            raise self._cursor.fault(f"the character U+{ord(found[0]):04X} is not allowed", found.start())

    def _read(self) -> None:
        cursor = self._cursor
        while cursor.take(BETWEEN) and cursor.at < len(self.text):
            start = cursor.at
            line = cursor.line(start)
            if self.text[start] == "[":
                self._header()
            else:
                self._assign(self._table, self._path)
            text = self.text[start : cursor.at]
            if not cursor.take(REST_OF_LINE):
                raise cursor.fault(f"{cursor.ahead()} follows where the line should end")
            if len(text) > LONGEST:
                raise NotToml(f"this statement is longer than {LONGEST >> 10} KiB", line)
            self.statements.append((line, text))

    # Keys and headers

    def _key(self, above: Path) -> tuple[str, ...]:
        parts = [self._part()]
        while self._cursor.eat("."):
            parts.append(self._part())
        if len(above) + len(parts) > DEEPEST:
            raise self._cursor.fault(f"keys and lists are nested more than {DEEPEST} deep")
        return tuple(parts)

    def _part(self) -> str:
        cursor = self._cursor
        cursor.take(BLANK)
        bare = cursor.take(BARE)
        if not bare and not cursor.text.startswith(('"', "'"), cursor.at):
            raise cursor.fault(f"a key was expected and {cursor.ahead()} found")
        if cursor.text.startswith(('"""', "'''"), cursor.at):
            raise cursor.fault("a key cannot be a text of several lines")
        part = bare[0] if bare else cursor.string()
        cursor.take(BLANK)
        return part

    def _header(self) -> None:
        cursor, start = self._cursor, self._cursor.at
        end = "]]" if cursor.eat("[[") else "]" * cursor.eat("[")
        key = self._key(())
        if not cursor.eat(end):
            raise cursor.fault(f"the table's name does not end with {end}")
        table, path = self._root, Path()
        for part in key[:-1]:
            table, path = self._step(table, path, part, start)
        open_one = self._open_row if end == "]]" else self._open_table
        self._table, self._path = open_one(table, (*path, key[-1]), key[-1], start)
        self.lines[self._path] = cursor.line(start)

    def _step(self, table: _Table, path: Path, part: str, start: int) -> tuple[_Table, Path]:
        child, path = table.children.setdefault(part, _Table("above")), (*path, part)
        if isinstance(child, _Rows):
            return child[-1], (*path, len(child) - 1)
        if not isinstance(child, _Table) or child.made_by == "braces":
            raise self._cursor.fault(f"{dotted(path)} has a value already and cannot be a table", start)
        self.lines.setdefault(path, self._cursor.line(start))
        return child, path

    def _open_table(self, above: _Table, path: Path, name: str, start: int) -> tuple[_Table, Path]:
        child = above.children.setdefault(name, _Table("above"))
        if not isinstance(child, _Table) or child.made_by != "above":
            raise self._cursor.fault(f"{dotted(path)} is defined twice", start)
        child.made_by = "header"
        return child, path

    def _open_row(self, above: _Table, path: Path, name: str, start: int) -> tuple[_Table, Path]:
        rows = above.children.setdefault(name, _Rows())
        if not isinstance(rows, _Rows):
            raise self._cursor.fault(f"{dotted(path)} is defined twice", start)
        rows.append(_Table("header"))
        self.lines.setdefault(path, self._cursor.line(start))
        return rows[-1], (*path, len(rows) - 1)

    # Values

    def _assign(self, table: _Table, path: Path) -> None:
        cursor, start = self._cursor, self._cursor.at
        key = self._key(path)
        if not cursor.eat("="):
            raise cursor.fault(f"after {dotted(key)} a = was expected and {cursor.ahead()} found")
        cursor.take(BLANK)
        line = cursor.line(start)
        for part in key[:-1]:
            child, path = table.children.setdefault(part, _Table("dots")), (*path, part)
            if not isinstance(child, _Table) or child.made_by != "dots":
                raise NotToml(f"{dotted(path)} is defined elsewhere and cannot be added to here", line)
            self.lines.setdefault(path, line)
            table = child
        path = (*path, key[-1])
        if key[-1] in table.children:
            raise NotToml(f"{dotted(path)} is given twice", line)
        self.lines[path] = line
        table.children[key[-1]] = self._value(path)

    def _value(self, path: Path) -> object:
        cursor = self._cursor
        if len(path) > DEEPEST:
            raise cursor.fault(f"keys and lists are nested more than {DEEPEST} deep")
        if cursor.text.startswith(('"', "'"), cursor.at):
            return cursor.string()
        if cursor.eat("["):
            return self._list(path)
        if cursor.eat("{"):
            return self._braces(path)
        return self._scalar(path)

    def _list(self, path: Path) -> list[object]:
        cursor, start, found = self._cursor, self._cursor.at, list[object]()
        while True:
            cursor.take(BETWEEN)
            if cursor.eat("]"):
                return found
            if cursor.at == len(cursor.text):
                raise cursor.fault(f"the list {dotted(path)} has no end", start)
            here = (*path, len(found))
            self.lines[here] = cursor.line(cursor.at)
            found.append(self._value(here))
            cursor.take(BETWEEN)
            if not cursor.eat(",") and not cursor.text.startswith("]", cursor.at):
                raise cursor.fault(f"the list {dotted(path)} lacks a comma before {cursor.ahead()}, or its ]", start)

    def _braces(self, path: Path) -> _Table:
        cursor, table = self._cursor, _Table("dots")
        cursor.take(BLANK)
        more = not cursor.eat("}")
        while more:
            self._assign(table, path)
            cursor.take(BLANK)
            more = not cursor.eat("}")
            if more and not cursor.eat(","):
                raise cursor.fault(f"the table {dotted(path)} has no end on its line, or lacks a comma")
        _close(table)
        return table

    def _scalar(self, path: Path) -> object:
        word = self._cursor.take(SCALAR)
        if not word:
            raise self._cursor.fault(f"{dotted(path)} has no value")
        if word[0] in ("true", "false"):
            return word[0] == "true"
        if INTEGER.fullmatch(word[0]):
            if len(word[0]) > 80 or not -(1 << 63) <= int(word[0], 0) < 1 << 63:
                raise self._cursor.fault(f"{dotted(path)} is an integer of more than 64 bits", word.start())
        elif not FLOAT.fullmatch(word[0]) and not DATE.fullmatch(word[0]):
            why = f"{dotted(path)} has the value {word[0][:40]}, which is nothing; a text needs quotes around it"
            raise self._cursor.fault(why, word.start())
        return OTHER


def dotted(path: Path) -> str:
    """A key as people write it."""
    return ".".join(str(part) for part in path)


def _close(table: _Table) -> None:
    table.made_by = "braces"
    for child in table.children.values():
        if isinstance(child, _Table):
            _close(child)


def _plain_table(table: _Table) -> dict[str, object]:
    return {name: _plain(child) for name, child in table.children.items()}


def _plain(value: object) -> object:
    if isinstance(value, _Table):
        return _plain_table(value)
    return [_plain(child) for child in value] if isinstance(value, list) else value
