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
from gpuhook.driver.tables import STEMS
from gpuhook.errors import UnsafeConfig, escaped
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
        fd = posix.dup(STREAMS[path]) if path in STREAMS else open_log(path)
    except (OSError, UnsafeConfig) as error:
        why = error.text if isinstance(error, UnsafeConfig) else error.strerror
        note.warn(UnsafeConfig.reference, f"no debug log is written to {path}: {why}")
        return
    log = Log(fd)
    log.write(HEAD)
    note.log = log


def open_log(path: str) -> int:
    """The file, made if need be. Raises OSError or UnsafeConfig where it is no file that only we and root change."""
    folder, _, name = path.rpartition("/")
    if not path.startswith("/") or not name:
        raise OSError(22, "it is no absolute path of a file")
    require_trusted(folder or "/")
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
        self.write(f"{level}{stamp} {get_native_id()} {place}] {in_a_line(text)}\n")

    def write(self, text: str) -> None:
        """Append text; a log that cannot be written any more is given up."""
        try:
            posix.write(self.fd, text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            note.log = None
            note.warn(UnsafeConfig.reference, f"the debug log ends here: {error.strerror}")


def in_a_line(text: str) -> str:
    """The text without what could forge a line or steer a terminal, and no longer than a log's message may be."""
    return escaped(text[:LONGEST])


def tell_inventory(inventory: Inventory) -> None:
    """Note what is not given of the driver; in the log also what is, in the words that people look for."""
    for text in inventory.missing:
        note.note(text, absence(text), "W")
    if note.log is None:
        return
    there = {library.stem for library in inventory.libraries if library.bits == 32}
    for stem in STEMS:
        if stem not in there:
            note.log("W", f"missing compat32 library {stem}")
    found = [library.path for library in inventory.libraries]
    for path in (*found, *inventory.binaries, *inventory.firmware, *inventory.sockets):
        note.log("I", f"selecting {path}")


def absence(text: str) -> str:
    """The log's words for a line of an inventory's `missing`."""
    what, _, why = text.partition(": ")
    kind_of, _, name = what.partition(" ")
    if why == "not installed" and kind_of in ("library", "program"):
        return f"missing {'library' if kind_of == 'library' else 'binary'} {name}"
    if text.startswith("/dev/") and text.endswith(" does not exist"):
        return f"missing device {kind_of}"
    if why.startswith("No such file"):
        return f"missing firmware path {name}" if kind_of == "firmware" else f"missing path {what}"
    return f"skipping {text}"


def tell_gpus(gpus: tuple[Gpu, ...]) -> None:
    """Note the GPUs that were selected."""
    if note.log is not None:
        for gpu in gpus:
            note.log("I", f"listing device /dev/nvidia{gpu.minor} ({gpu.uuid} at {gpu.bus_id})")
