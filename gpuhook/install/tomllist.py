"""Single elements of a list of texts in TOML, put in or taken out; its comments and the other elements stay."""

from __future__ import annotations

from gpuhook.install.tomledit import Toml, written
from gpuhook.settings.tokens import BETWEEN, Cursor
from gpuhook.value import Value


class Item(Value):
    """An element. end: behind its comma, if it has one."""

    text: str
    start: int
    end: int
    comma: bool


def with_item(toml: Toml, name: str, item: str) -> str | None:
    """The text with one more element at the end of this list of the root; None where it is no list of texts."""
    found = _items(toml, name)
    if found is None:
        return None
    start, items = found
    text, last = toml.text, items[-1] if items else None
    at = last.end if last else start + 1
    line = text.rfind("\n", 0, last.start) if last else -1
    if last and line >= start:  # on lines of their own
        indent = text[line : last.start] if not text[line : last.start].strip() else "\n  "
        added = f"{'' if last.comma else ','}{indent}{written(item)}{',' if last.comma else ''}"
    else:
        added = f"{', ' if last and not last.comma else ' ' if last else ''}{written(item)}"
    return text[:at] + added + text[at:]


def without_item(toml: Toml, name: str, item: str) -> str | None:
    """The text without this element, and without the line that held nothing else; None where it is no such list."""
    found = _items(toml, name)
    if found is None:
        return None
    _, items = found
    text = toml.text
    for number, one in reversed(list(enumerate(items))):
        if one.text != item:
            continue
        start, end = one.start, one.end
        if not one.comma and number:  # the comma before it is one too many
            start = items[number - 1].end - 1 if not text[items[number - 1].end : start].strip() else start
        while text[start - 1] in " \t":
            start -= 1
        if text[start - 1] == "\n" and text[end : end + 1] == "\n":
            end += 1
        elif text[start - 1] == "[":
            end += len(text[end:]) - len(text[end:].lstrip(" \t"))
        text = text[:start] + text[end:]
    return text


def _items(toml: Toml, name: str) -> tuple[int, list[Item]] | None:
    """Where the list begins, and its elements; None where there is no such list, or not of texts alone."""
    value = toml.at(name)
    spot = next((spot for spot in toml.spots if spot.path == (name,) and not spot.header), None)
    if spot is None or not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    cursor, items = Cursor(toml.text), list[Item]()
    cursor.at = spot.value_start + 1
    while cursor.take(BETWEEN) and not cursor.eat("]"):
        start = cursor.at
        text = cursor.string()
        end = cursor.at
        cursor.take(BETWEEN)
        comma = cursor.eat(",")
        items.append(Item(text=text, start=start, end=cursor.at if comma else end, comma=comma))
    return spot.value_start, items
