"""The ways in which gpuhook refuses: a class per cause, with a stable reference that a person can look up.

An error is one line that stands on its own, then where the input is, then what to do. The references are the slugs of
the catalogue of diagnoses, so that a line in a daemon's log leads to its entry. Most classes are in refusals.py.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with everything escaped that could forge a line or steer a terminal.

    Image authors choose these strings: control characters, line separators, bidirectional overrides and lone
    surrogates come out as backslash escapes. Long texts are cut to 300 characters.
    """
    if len(text) > 300:
        text = f"{text[:290]}… ({len(text)} characters)"
    return escaped(text)


def escaped(text: str) -> str:
    """The whole text, escaped in the same way."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class GpuhookError(Exception):
    """A failure with a cause that the user can act on.

    text: what failed, why, with the value found and the value needed; where: file and line, variable or key;
    hint: what to do. All three may hold strings from an image; they are escaped when rendered.
    """

    reference = "internal"
    exit_status = 1

    def __init__(self, text: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(text)
        self.text, self.where, self.hint = text, where, hint

    def render(self) -> str:
        """The message for stderr: the first line is complete in itself, without a final newline."""
        lines = [f"gpuhook: {self.reference}: {printable(self.text)}"]
        if self.where:
            lines.append(f"  in {printable(self.where)}")
        if self.hint:
            lines.append(f"  hint: {printable(self.hint)}")
        return "\n".join(lines)


class Usage(GpuhookError):
    """The command line is wrong."""

    reference, exit_status = "usage", 2


class BadState(GpuhookError):
    """The container state on stdin cannot be used."""

    reference = "bad-state"


class BadBundle(GpuhookError):
    """The bundle or its config.json cannot be used."""

    reference = "bad-bundle"


class ConfigBroken(GpuhookError):
    """config.toml cannot be read, is no TOML, or holds a value of the wrong kind."""

    reference = "config-toml-broken"


class UnsafeConfig(GpuhookError):
    """A file that decides what root does can be written by somebody else, or asks for something dangerous."""

    reference = "unsafe-config"


class UnknownDevice(GpuhookError):
    """A GPU was asked for that this node does not have, or in a form that means nothing."""

    reference = "unknown-device"


class DevicesRefused(GpuhookError):
    """The way in which the container asks for devices is not accepted on this node."""

    reference = "strict-mode-mismatch"
