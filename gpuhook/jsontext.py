"""JSON for the hot path: CPython's C scanner without the `json` package, which would cost 10 ms.

It refuses what two readers could understand differently: a key given twice, NaN and infinities by name,
bytes that are not UTF-8. Where the C scanner is absent the `json` package does the same work.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, NoReturn

    Scanner = Callable[[str, int], tuple[object, int]]

BLANKS = " \t\n\r"


class NotJson(ValueError):
    """The text is no JSON document that we accept; the message says why."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotJson(f"the key {twice!r} is given twice")
    return table


def _constant(word: str) -> NoReturn:
    raise NotJson(f"{word} is no JSON value")


class _Rules:
    """What the C scanner asks of its maker (the attributes of json.JSONDecoder)."""

    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_object)
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_constant)
    memo: ClassVar[dict[str, str]] = {}


def _scanner() -> Scanner:
    try:
        from _json import make_scanner
    except ImportError:  # another implementation of Python
        from json import JSONDecoder

        return JSONDecoder(object_pairs_hook=_object, parse_constant=_constant).raw_decode
    return make_scanner(_Rules())  # type: ignore[arg-type]  # any object with these attributes will do


_scan = _scanner()


def first_value(text: str) -> object:
    """The first JSON value of the text; what follows it is not looked at. Raises NotJson."""
    start = len(text) - len(text.lstrip(BLANKS))
    return value_at(text, start)[0]


def document(data: bytes) -> object:
    """The JSON value that the bytes consist of. Raises NotJson, with the byte or character at fault."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise NotJson(f"byte {fault.start} is not UTF-8") from None
    start = len(text) - len(text.lstrip(BLANKS))
    value, end = value_at(text, start)
    if text[end:].strip(BLANKS):
        raise NotJson(f"text follows the first value, at character {end}")
    return value


def _scan_or_explain(text: str, start: int) -> tuple[object, int]:
    try:
        return _scan(text, start)
    except SystemError:
        # To complain, the C scanner wants json.decoder's error class and finds it only once that is imported.
        import json.decoder  # noqa: F401

        return _scan(text, start)


def value_at(text: str, start: int) -> tuple[object, int]:
    """The JSON value that begins at this character, and where it ends. Raises NotJson."""
    try:
        return _scan_or_explain(text, start)
    except StopIteration as stop:
        # The scanner stops at the character at which it wanted a value.
        if stop.value is None or stop.value >= len(text):
            raise NotJson("it is empty" if start == len(text) else "it ends in the middle") from None
        raise NotJson(f"no JSON value at character {stop.value}") from None
    except NotJson:
        raise
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except ValueError as fault:
        place = getattr(fault, "pos", None)
        if place is None:  # an integer of thousands of digits
            raise NotJson(str(fault)) from None
        raise NotJson(f"{getattr(fault, 'msg', 'bad JSON').removesuffix(' at')} at character {place}") from None


# Line and paragraph separators, and what turns the direction of the text that follows.
STEERING = "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_plain(text: str) -> bool:
    """Whether the text can be a path, a name or an argument: no control character, no lone surrogate (AC-39).

    JSON can spell both with escapes; a path that holds them means something else to the kernel or to Go. Line
    separators and bidirectional overrides are no better: they make a text look like another one.
    """
    if text.isascii():
        return text.isprintable()
    return not any(c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff" or c in STEERING for c in text)
