"""What a person may want to know of a run that succeeds: warnings always, notes when debugging.

Both go to stderr, one line each, written at once; there is no logging module on the hot path. Where a log is kept
(backend/log.py), it gets both as well, the notes whether or not we are debugging.
"""

from __future__ import annotations

from posix import environ, write

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

debug = bool(environ.get(b"GPUHOOK_DEBUG"))
log: Callable[[str, str], None] | None = None  # takes the level ("I", "W", "E") and the text of every line


def warn(reference: str, text: str) -> None:
    """Say something that is wrong with the node or the container, with its slug; the run goes on."""
    if log is not None:
        log("W", f"{reference}: {text}")
    _say(f"gpuhook: warning: {reference}: {printable(text)}")


def note(text: str, in_log: str = "", level: str = "I") -> None:
    """Say what was decided or tolerated; only seen with --debug or GPUHOOK_DEBUG=1.

    in_log: the log's own words for it; level: in the log.
    """
    if log is not None:
        log(level, in_log or text)
    if debug:
        _say(f"gpuhook: note: {printable(text)}")


def _say(line: str) -> None:
    try:
        write(2, f"{line}\n".encode("utf-8", "backslashreplace"))
    except OSError:  # stderr is closed: nobody listens, and that must not stop a container
        return
