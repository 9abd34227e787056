"""Changes in a JSON text that leave every other byte where it was.

Read as RFC 8259 has it, by a reader that knows where everything stands; then single members are put in, replaced or
taken out, in the style of their surroundings.
"""

from __future__ import annotations

import json
import re

from gpuhook.value import Value

BLANK = re.compile(r"[ \t\r\n]*")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
WORDS = ("true", "false", "null")
DEEPEST = 64
INDENT = "    "


class NotJson(ValueError):
    """The text is no JSON. at: the character's place, from 0."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


class Node(Value):
    """A value and where it stands. kind: object, list, string, number or word; members: an object's."""

    kind: str
    start: int
    end: int
    members: tuple[Member, ...] = ()

    def all(self, key: str) -> list[Member]:
        """The members of this name."""
        return [member for member in self.members if member.key == key]


class Member(Value):
    """A member of an object. start: where its name begins."""

    key: str
    start: int
    value: Node


def place(text: str, at: int) -> tuple[int, int]:
    """Line and column, from 1."""
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def read(text: str) -> Node:
    """The one value that the text holds. Raises NotJson."""
    node, at = _value(text, _blank(text, 0), 0)
    at = _blank(text, at)
    if at < len(text):
        raise NotJson("a second document begins here", at)
    return node


def _blank(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> tuple[Node, int]:
    if depth > DEEPEST:
        raise NotJson(f"it is nested more than {DEEPEST} deep", at)
    if text.startswith("{", at):
        return _object(text, at, depth)
    if text.startswith("[", at):
        return _list(text, at, depth)
    if found := STRING.match(text, at):
        return Node(kind="string", start=at, end=found.end()), found.end()
    if found := NUMBER.match(text, at):
        return Node(kind="number", start=at, end=found.end()), found.end()
    for word in WORDS:
        if text.startswith(word, at):
            return Node(kind="word", start=at, end=at + len(word)), at + len(word)
    raise NotJson(f"a value was expected and {_found(text, at)} found", at)


def _found(text: str, at: int) -> str:
    """What stands here, for a message."""
    if at >= len(text):
        return "the end of the file"
    if text.startswith(("//", "/*", "#"), at):
        return "a comment, which JSON does not have, was"
    if text[at] in "\u201c\u201d\u2018\u2019'":
        return f"the quote {text[at]}, where JSON has only the straight double one, was"
    return repr(text[at : at + 20].split("\n")[0])


def _object(text: str, start: int, depth: int) -> tuple[Node, int]:
    members: list[Member] = []
    at = _blank(text, start + 1)
    while not text.startswith("}", at):
        if members:
            at = _comma(text, at, "}")
        member, at = _member(text, at, depth)
        members.append(member)
    return Node(kind="object", start=start, end=at + 1, members=tuple(members)), at + 1


def _member(text: str, at: int, depth: int) -> tuple[Member, int]:
    key = STRING.match(text, at)
    if not key:
        raise NotJson(f"a name in double quotes was expected and {_found(text, at)} found", at)
    colon = _blank(text, key.end())
    if not text.startswith(":", colon):
        raise NotJson(f"a : was expected and {_found(text, colon)} found", colon)
    value, end = _value(text, _blank(text, colon + 1), depth + 1)
    return Member(key=json.loads(key[0]), start=at, value=value), _blank(text, end)


def _list(text: str, start: int, depth: int) -> tuple[Node, int]:
    first = at = _blank(text, start + 1)
    while not text.startswith("]", at):
        if at != first:
            at = _comma(text, at, "]")
        _, end = _value(text, at, depth + 1)
        at = _blank(text, end)
    return Node(kind="list", start=start, end=at + 1), at + 1


def _comma(text: str, at: int, end: str) -> int:
    if not text.startswith(",", at):
        raise NotJson(f"a comma or {end} was expected and {_found(text, at)} found", at)
    after = _blank(text, at + 1)
    if text.startswith(end, after):
        raise NotJson(f"a comma stands before {end}, with nothing between them", at)
    return after


def replaced(text: str, node: Node, value: object) -> str:
    """The text with this value in the node's place."""
    return text[: node.start] + _written(text, value, _indent_at(text, node.start)) + text[node.end :]


def put(text: str, parent: Node, key: str, value: object) -> str:
    """The text with one more member at the end of this object, in the style of those that are there."""
    end = _line_end(text)
    name = f"{json.dumps(key, ensure_ascii=False)}: "
    if not parent.members:
        outer = _indent_at(text, parent.start)
        inner = outer + _unit(text)
        body = f"{end}{inner}{name}{_written(text, value, inner)}{end}{outer}"
        return text[: parent.start + 1] + body + text[parent.end - 1 :]
    last = parent.members[-1]
    if "\n" not in text[parent.start : last.start]:  # all on one line
        body = f", {name}{json.dumps(value, ensure_ascii=False)}"
    else:
        indent = _indent_at(text, last.start)
        body = f",{end}{indent}{name}{_written(text, value, indent)}"
    return text[: last.value.end] + body + text[last.value.end :]


def without(text: str, parent: Node, member: Member) -> str:
    """The text without this member and its comma."""
    at = parent.members.index(member)
    if at:
        return text[: parent.members[at - 1].value.end] + text[member.value.end :]
    if len(parent.members) > 1:
        return text[: member.start] + text[parent.members[1].start :]
    return text[: parent.start + 1] + text[parent.end - 1 :]


def _written(text: str, value: object, indent: str) -> str:
    end = _line_end(text)
    return json.dumps(value, indent=_unit(text), ensure_ascii=False).replace("\n", f"{end}{indent}")


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """One step of indentation: that of the first line which has any."""
    found = re.search(r'\n([ \t]+)"', text)
    return found[1] if found else INDENT
