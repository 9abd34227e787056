"""What a person may want to know of a run that succeeds: warnings always, notes when debugging.

Both go to stderr, one line each, written at once; there is no logging module on the hot path.
"""

from __future__ import annotations

from posix import environ, write

from gpuhook.errors import printable

debug = bool(environ.get(b"GPUHOOK_DEBUG"))


def warn(reference: str, text: str) -> None:
    """Say something that is wrong with the node or the container, with its slug; the run goes on."""
    _say(f"gpuhook: warning: {reference}: {printable(text)}")


def note(text: str) -> None:
    """Say what was decided or tolerated; only seen with --debug or GPUHOOK_DEBUG=1."""
    if debug:
        _say(f"gpuhook: note: {printable(text)}")


def _say(line: str) -> None:
    try:
        write(2, f"{line}\n".encode("utf-8", "backslashreplace"))
    except OSError:  # stderr is closed: nobody listens, and that must not stop a container
        return
