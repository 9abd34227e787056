"""Messages: one line that stands alone, escaped, and where the input is."""

from __future__ import annotations

import inspect

import pytest

from gpuhook import errors, refusals
from gpuhook.errors import GpuhookError, UnknownDevice, printable

CLASSES = sorted(
    {
        kind
        for module in (errors, refusals)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, GpuhookError)
    },
    key=lambda kind: kind.__name__,
)


def test_a_message_is_a_line_a_place_and_a_hint() -> None:
    """The first line names the cause; where and hint follow, each on its own line."""
    error = UnknownDevice("no GPU 7", where="NVIDIA_VISIBLE_DEVICES", hint="there is GPU 0")
    lines = ["gpuhook: unknown-device: no GPU 7", "  in NVIDIA_VISIBLE_DEVICES", "  hint: there is GPU 0"]
    assert error.render().splitlines() == lines


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_has_a_reference_a_status_and_a_reason(kind: type[GpuhookError]) -> None:
    """A reference is a slug that can be looked up; the status is never 0."""
    assert kind.reference
    assert kind.reference.replace("-", "").isalnum()
    assert kind.reference == kind.reference.lower()
    assert kind.exit_status in (1, 2, 126, 127)
    assert kind.__doc__


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\x1b[31m", "\0", "\u2028", "\u202e", "\ud800", "a\tb"])
def test_nothing_of_an_image_can_forge_a_line(text: str) -> None:
    """Control characters, line separators, overrides and surrogates come out as escapes."""
    shown = printable(text)
    assert shown.isprintable()
    assert "\\" in shown
    assert len(GpuhookError(text).render().splitlines()) == 1


def test_long_texts_are_cut() -> None:
    """A megabyte from an image does not fill the log."""
    assert len(printable("x" * 1_000_000)) < 330
