"""Changes in a TOML text that keep its comments, its order and every key that we do not know.

Read by our own scan of TOML 1.0 (settings/grammar.py), which knows where each statement stands. Changes are lines
put in, replaced or taken out; the result is read again, and if it does not mean exactly what was meant, it is not
used: a table may be written in a way to which nothing can be added from outside, as inline tables are.
"""

from __future__ import annotations

import json
from copy import deepcopy

from gpuhook.install.lines import with_ends
from gpuhook.settings.grammar import OTHER, Path, Scan
from gpuhook.settings.tokens import BARE
from gpuhook.value import Value

Table = dict[str, object]


class Raw(Value):
    """A number or a date, as it is written."""

    text: str


class Spot(Value):
    """A statement: a table's header, or a key with its value (then value_start is where that begins)."""

    path: Path
    start: int
    end: int
    header: bool
    value_start: int = 0


class _Located(Scan):
    """A scan that keeps where everything stands."""

    def __init__(self, text: str) -> None:
        self.spots: list[Spot] = []
        self._depth = 0
        self._value_start = 0
        super().__init__(text)

    def _header(self) -> None:
        start = self._cursor.at
        super()._header()
        self.spots.append(Spot(path=self._path, start=start, end=self._cursor.at, header=True))

    def _assign(self, table, path) -> None:  # type: ignore[no-untyped-def]  # as in the class above
        start, top = self._cursor.at, self._depth == 0
        self._depth += 1
        super()._assign(table, path)
        self._depth -= 1
        if top:
            self.spots.append(
                Spot(path=self._last, start=start, end=self._cursor.at, header=False, value_start=self._value_start)
            )

    def _value(self, path: Path) -> object:
        start = self._cursor.at
        if self._depth == 1:
            self._last, self._value_start = path, start
        self._depth += 1
        value = super()._value(path)
        self._depth -= 1
        return Raw(text=self._cursor.text[start : self._cursor.at]) if value is OTHER else value


class Toml:
    """A TOML text. Raises NotToml (settings/tokens.py) where it is none.

    text: with Unix line ends; table: what it means, numbers and dates as Raw; spots: its statements in order.
    """

    def __init__(self, text: str) -> None:
        self._given = text
        scan = _Located(text)
        self.text, self.spots, self.lines = scan.text, scan.spots, scan.lines
        self.table = scan.table()

    def at(self, *path: str) -> object:
        """The value at this path, None for none."""
        return at(self.table, path)

    def whole(self, text: str) -> str:
        """A text made from ours, with the line ends that the file had; new lines have those of its first one."""
        windows = self._given.count("\r\n")
        if windows in (0, self._given.count("\n")):
            return text.replace("\n", "\r\n") if windows else text
        return with_ends(self._given, text)


def at(table: object, path: tuple[str, ...]) -> object:
    """The value at this path of nested tables, None for none."""
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    return table


def table_at(table: object, path: tuple[str, ...]) -> Table:
    """The table at this path, empty for none."""
    found = at(table, path)
    return found if isinstance(found, dict) else {}


def nested(path: tuple[str, ...], value: object) -> Table:
    """A table in which this value stands at this path, which has one part at least."""
    table: Table = {path[-1]: value}
    for part in reversed(path[:-1]):
        table = {part: table}
    return table


def written(value: object) -> str:
    """A value as TOML has it. Raises TypeError for what no configuration of an engine holds."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list):
        return f"[{', '.join(written(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key_text(name)} = {written(item)}' for name, item in value.items())} }}"
    raise TypeError(f"{type(value).__name__} cannot be written")


def key_text(part: str, quote: str = '"') -> str:
    """A part of a key, in quotes where it needs them."""
    if BARE.fullmatch(part):
        return part
    return f"'{part}'" if quote == "'" and part.isprintable() and "'" not in part else written(part)


def header(path: tuple[str, ...], quote: str = '"') -> str:
    """A table's header."""
    return f"[{'.'.join(key_text(part, quote) for part in path)}]"


def block(path: tuple[str, ...], table: Table, *, indent: str = "", step: str = "  ", quote: str = '"') -> list[str]:
    """A table as lines: its header, its keys, then the tables in it."""
    plain = {name: value for name, value in table.items() if not isinstance(value, dict)}
    lines = [indent + header(path, quote)]
    lines += [f"{indent}{step}{key_text(name, quote)} = {written(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, dict):
            lines += ["", *block((*path, name), value, indent=indent + step, step=step, quote=quote)]
    return lines


def indent_of(text: str, spot: Spot) -> str:
    """What stands before a statement on its line."""
    return text[text.rfind("\n", 0, spot.start) + 1 : spot.start]


def quote_of(toml: Toml) -> str:
    """The quotes that the file's headers use."""
    heads = [toml.text[spot.start : spot.end] for spot in toml.spots if spot.header]
    return "'" if any("'" in head for head in heads) and not any('"' in head for head in heads) else '"'


def appended(text: str, lines: list[str]) -> str:
    """The text with these lines after an empty one at its end."""
    end = "" if not text or text.endswith("\n") else "\n"
    gap = "\n" if text.strip() and not text.endswith("\n\n") else ""
    return f"{text}{end}{gap}" + "".join(f"{line}\n" for line in lines)


def with_key(text: str, table: tuple[str, ...], key: str, value: object) -> str:
    """The text with this key, replaced where it stands, else after the last one of its table. Raises NotToml."""
    toml, path = Toml(text), (*table, key)
    if spot := _holder(toml, path):
        inside = toml.at(*map(str, spot.path))
        new = merged(inside, nested(path[len(spot.path) :], value)) if isinstance(inside, dict) else value
        return _replaced(toml, spot, value if spot.path == path else new)
    place, above = _last_of(toml, table), table
    if place is None and table and (dotted := _dotted(toml, table)):
        place, above = dotted
    line = f"{'.'.join(key_text(part, quote_of(toml)) for part in path[len(above) :])} = {written(value)}\n"
    if place is None and table:
        return appended(toml.text, [header(table, quote_of(toml)), f"  {line.rstrip()}"])
    at_line = _line_after(toml.text, place.end) if place else _before_first(toml)
    before = toml.text[:at_line]
    before += "" if not before or before.endswith("\n") else "\n"
    return f"{before}{_indent(toml.text, place)}{line}{toml.text[at_line:]}"


def _indent(text: str, place: Spot | None) -> str:
    if place is None:
        return ""
    return indent_of(text, place) + ("  " if place.header else "")


def _holder(toml: Toml, path: tuple[str, ...]) -> Spot | None:
    """The statement that gives this key its value: its own, or that of an inline table around it."""
    for spot in toml.spots:
        if not spot.header and spot.path == path[: len(spot.path)]:
            return spot
    return None


def is_inline(toml: Toml, path: tuple[str, ...]) -> bool:
    """Whether an inline table is, or has room for, what is at this path: a header cannot add to those."""
    return _holder(toml, path) is not None


def _replaced(toml: Toml, spot: Spot, value: object) -> str:
    return toml.text[: spot.value_start] + written(value) + toml.text[spot.end :]


def _dotted(toml: Toml, table: tuple[str, ...]) -> tuple[Spot, tuple[str, ...]] | None:
    """The last dotted key that has made a part of this table, and the section in which it stands."""
    section: Path = ()
    found = None
    for spot in toml.spots:
        if spot.header:
            section = spot.path
        elif spot.path[: len(table)] == table and len(section) < len(table) < len(spot.path):
            found = spot, table[: len(section)]
    return found


def _last_of(toml: Toml, table: tuple[str, ...]) -> Spot | None:
    """The last statement of the section in which the table's own keys stand, its header if that is all."""
    found, inside = None, not table
    for spot in toml.spots:
        if spot.header:
            inside = spot.path == table
        if inside:
            found = spot
    return found


def _line_after(text: str, at_: int) -> int:
    end = text.find("\n", at_)
    return len(text) if end < 0 else end + 1


def _before_first(toml: Toml) -> int:
    """Where a first key of the root goes: before the first header and the comment that belongs to it."""
    if not toml.spots:
        return len(toml.text)
    lines = toml.text[: toml.text.rfind("\n", 0, toml.spots[0].start) + 1].splitlines(keepends=True)
    while lines and lines[-1].strip():
        lines.pop()
    return sum(map(len, lines))


def without(text: str, path: tuple[str, ...]) -> str:
    """The text without this key, or this table and all in it. Raises NotToml."""
    toml = Toml(text)
    spot = _holder(toml, path)
    if spot and len(spot.path) < len(path):
        inside = toml.at(*map(str, spot.path))
        return _replaced(toml, spot, _less(inside, path[len(spot.path) :])) if isinstance(inside, dict) else text
    kept, done = "", 0
    for spot in toml.spots:
        if spot.path[: len(path)] != path:
            continue
        start = toml.text.rfind("\n", 0, spot.start) + 1
        kept += toml.text[done : max(start, done)]
        done = _line_after(toml.text, spot.end)
        if kept.endswith(("\n\n", "\n")) and kept.rstrip(" \t").endswith("\n\n"):
            kept = kept.rstrip(" \t")[:-1]  # the empty line that set it off
    return kept + toml.text[done:]


def _less(table: Table, path: tuple[str, ...]) -> Table:
    """A table without what is at this path."""
    left = {name: value for name, value in table.items() if name != path[0]}
    below = table.get(path[0])
    return {**left, path[0]: _less(below, path[1:])} if len(path) > 1 and isinstance(below, dict) else left


def says_nothing(text: str, *, but: str) -> bool:
    """Whether a text has no comment, and no key but this one of the root. Raises NotToml."""
    keys = [spot for spot in Toml(text).spots if not spot.header and spot.path != (but,)]
    return not keys and not any(line.lstrip().startswith("#") for line in text.splitlines())


def merged(base: Table, over: Table) -> Table:
    """A table with another laid over it, key by key; neither is changed."""
    result = deepcopy(base)
    for name, value in over.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else deepcopy(value)
    return result
