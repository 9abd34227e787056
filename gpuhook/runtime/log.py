"""Where gpuhook-runtime says what it does: the configured file, and the low-level runtime's own log (runtime.md 8).

Engines show the last error of the runtime's log to their users, and take stderr for the container's output or, of
`state`, for part of the answer. So stderr gets errors only, and what nobody else can be told.
"""

from __future__ import annotations

import posix
import time

from gpuhook.errors import GpuhookError, printable
from gpuhook.kernel.files import fault_of, is_regular, kind, require_trusted, trusted_owners
from gpuhook.oci.spec import quoted

LEVELS = ("panic", "fatal", "error", "warning", "info", "debug", "trace")
TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.runtime.call import Call
    from gpuhook.settings.values import Settings

OPEN = (
    posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_NOCTTY
    | posix.O_CLOEXEC
)  # fmt: skip
NOWHERE = ("", "/dev/null")


class Log:
    """The log of one call. Files are opened when there is something to say; one that is unsafe is left alone.

    It has none until `use` has said which. Warnings that no file takes go to stderr, where a container is made.
    """

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()
        self.json = self.speaks = False
        self.threshold = LEVELS.index("info")
        self._files: list[int] | None = None

    def use(self, settings: Settings, call: Call) -> None:
        """Take the files, the level and the form that the configuration and the runtime's arguments name."""
        named = (settings.runtime_debug, call.log)
        self.paths = tuple(dict.fromkeys(path for path in named if path not in NOWHERE))
        self.json, self.speaks = call.log_format == "json", call.makes_container
        level = "debug" if call.debug else settings.runtime_log_level
        self.threshold = LEVELS.index({"warn": "warning"}.get(level, level))

    def __call__(self, level: str, text: str) -> None:
        """Write a line to every file, if the level is high enough."""
        if LEVELS.index(level) > self.threshold:
            return
        line = self._line(level, text).encode("utf-8", "backslashreplace")
        taken = [self._write(fd, line) for fd in self._opened()]
        if level == "warning" and self.speaks and not any(taken):
            _say(text)

    def warn(self, reference: str, text: str) -> None:
        """Write a warning with its slug."""
        self("warning", f"{reference}: {text}")

    def fault(self, error: GpuhookError) -> None:
        """Write a warning about something that does not stop this call."""
        place = "" if error.where in error.text else f" (in {error.where})"
        self.warn(error.reference, error.text + place)

    def _line(self, level: str, text: str) -> str:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = "gpuhook: " + printable(text)
        if self.json:
            return f'{{"level":"{level}","msg":{quoted(text)},"time":"{now}"}}\n'
        return f'time="{now}" level={level} msg={quoted(text)}\n'

    def _opened(self) -> list[int]:
        if self._files is None:
            self._files = []
            faults = [fault for path in self.paths if (fault := self._add(path))]
            for fault in faults:
                self("warning", fault)
        return self._files

    def _add(self, path: str) -> str:
        """Open one more file; returns why not, "" where it is open."""
        try:
            self._opened().append(_open(path))
        except (OSError, GpuhookError) as error:
            return f"the log {path} is not written: {_why(error)}"
        return ""

    @staticmethod
    def _write(fd: int, line: bytes) -> bool:
        try:
            return posix.write(fd, line) == len(line)
        except OSError:  # the disk is full
            return False


def _why(error: OSError | GpuhookError) -> str:
    return error.text if isinstance(error, GpuhookError) else error.strerror or str(error)


def _open(path: str) -> int:
    """The file, open for appending and judged: a regular file of ours in folders that nobody else can change.

    Raises OSError and GpuhookError.
    """
    if not path.startswith("/"):
        path = f"{posix.getcwd()}/{path}"
    folder = path.rpartition("/")[0]
    _make_folders(folder)
    require_trusted(folder or "/")
    fd = posix.open(path, OPEN, 0o644)
    status = posix.fstat(fd)
    fault = fault_of(status, trusted_owners()) if is_regular(status.st_mode) else f"it is {kind(status.st_mode)}"
    if fault:
        posix.close(fd)
        raise OSError(1, fault)
    return fd


def _make_folders(folder: str) -> None:
    try:
        posix.stat(folder or "/")
    except FileNotFoundError:
        above = folder.rpartition("/")[0]
        _make_folders(above)
        require_trusted(above or "/")
        posix.mkdir(folder, 0o755)


def _say(text: str) -> None:
    try:
        posix.write(2, f"gpuhook: warning: {printable(text)}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        return
