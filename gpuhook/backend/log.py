"""The debug log (`--debug FILE`, `[nvidia-container-cli] debug`) in the form of nvidia-container-cli's.

Reference: engine.md 1.7. A file that others could have put there is not written to (AC-75): then there is no log, a
warning on stderr, and the work goes on.
"""

from __future__ import annotations

import posix
import sys
from _thread import get_native_id
from time import gmtime, time

from gpuhook import note
from gpuhook.driver.tables import PROGRAMS, STEMS
from gpuhook.kernel.files import fault_of, is_regular, kind, require_trusted, trusted_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.driver.model import Gpu, Inventory

STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
APPEND = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK
LARGEST = 256 << 20  # bytes of a log that is still written to
LONGEST = 4000  # characters of a message
HEAD = "\n-- WARNING, the following logs are for debugging purposes only --\n\n"


def start_log(path: str) -> None:
    """Append what is noted from now on to this file (absolute), /dev/stderr or /dev/stdout; "" for no log."""
    if path in ("", "/dev/null"):
        return
    try:
        fd = posix.dup(STREAMS[path]) if path in STREAMS else _open(path)
    except OSError as error:
        note.warn("unsafe-config", f"no debug log is written to {path}: {error.strerror}")
        return
    log = Log(fd)
    log.write(HEAD)
    note.log = log


def _open(path: str) -> int:
    """The file, made if need be. Raises OSError where it is not a regular file that only we and root can change."""
    folder, _, name = path.rpartition("/")
    if not path.startswith("/") or not name:
        raise OSError(22, "it is no absolute path of a file")
    require_trusted(folder or "/", _Unsafe)
    fd = posix.open(path, APPEND, 0o644)
    status = posix.fstat(fd)
    fault = fault_of(status, trusted_owners())
    if not is_regular(status.st_mode):
        fault = f"it is {kind(status.st_mode)}, not a regular file"
    elif status.st_nlink != 1:
        fault = "it has several names"
    elif status.st_size > LARGEST:
        fault = f"it is larger than {LARGEST >> 20} MiB"
    if fault:
        posix.close(fd)
        raise OSError(22, fault)
    return fd


class _Unsafe(OSError):
    """A folder of the log that somebody else can write, with what `require_trusted` says of it."""

    def __init__(self, text: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(13, text, where)
        self.hint = hint


class Log:
    """An open log; called with a level ("I", "W", "E") and a message, it writes a line."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __call__(self, level: str, text: str) -> None:
        """Write one line: level, date and time (UTC), thread, place in the program, message."""
        now = time()
        _, month, day, hour, minute, second, *_ = gmtime(now)
        frame = sys._getframe(2)  # noqa: SLF001  # of whoever noted it; its documented name
        place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        stamp = f"{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{int(now % 1 * 1_000_000):06}"
        self.write(f"{level}{stamp} {get_native_id()} {place}] {escaped(text)}\n")

    def write(self, text: str) -> None:
        """Append text; a log that cannot be written any more is given up."""
        try:
            posix.write(self.fd, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            note.log = None
            note.warn("unsafe-config", f"the debug log ends here: {error.strerror}")


def escaped(text: str) -> str:
    """The text in one line: what could forge a line or steer a terminal comes out as a backslash escape."""
    text = text[:LONGEST]
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def tell_inventory(inventory: Inventory) -> None:
    """Note what was found of the driver, in the words that people look for."""
    if note.log is None:
        return
    for library in inventory.libraries:
        note.log("I", f"selecting {library.path}")
    for path in (*inventory.binaries, *inventory.firmware, *inventory.sockets):
        note.log("I", f"selecting {path}")
    for bits, words in ((64, "library"), (32, "compat32 library")):
        there = {library.stem for library in inventory.libraries if library.bits == bits}
        for stem in STEMS:
            if stem not in there:
                note.log("W", f"missing {words} {stem}")
    names = [path.rpartition("/")[2] for path in inventory.binaries]
    for name in PROGRAMS:
        if name not in names:
            note.log("W", f"missing binary {name}")
    for text in inventory.missing:
        if not text.startswith(("library ", "program ")):
            note.log("W", _absent(text))


def _absent(text: str) -> str:
    """A line about something that is not given."""
    what, _, why = text.removeprefix("firmware ").partition(": ")
    if text.startswith("/dev/") and text.endswith(" does not exist"):
        return f"missing device {text.partition(' ')[0]}"
    if text.startswith("firmware "):
        return f"missing firmware path {what} ({why})"
    if why.startswith("No such file"):
        return f"missing ipc path {what}" if not what.startswith("/proc/") else f"missing {what}"
    return f"skipping {text}"


def tell_gpus(gpus: tuple[Gpu, ...]) -> None:
    """Note the GPUs that were selected."""
    if note.log is not None:
        for gpu in gpus:
            note.log("I", f"listing device /dev/nvidia{gpu.minor} ({gpu.uuid} at {gpu.bus_id})")
