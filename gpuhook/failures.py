"""Where a failure of the hook is kept beside stderr, which an engine may hide: a record, the journal, a file.

Imported only when a stage has failed, after its message was printed. All of it is best effort and bounded in time: it
never adds a failure of its own. Where nvidia-container-cli does the work, this process is gone when that fails.
"""

from __future__ import annotations

import posix
from time import gmtime, strftime

from gpuhook import __version__
from gpuhook.backend.log import LONGEST, in_a_line, open_log
from gpuhook.errors import GpuhookError, UnsafeConfig
from gpuhook.note import note, warn
from gpuhook.settings import snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.hook import Attempt

NAME = "last-failure"
JOURNAL = "/run/systemd/journal/socket"  # systemd.journal-fields(7), "Native Journal Protocol"
PRIORITY_ERROR = "3"
FORMAT, SOCKET = 0o170000, 0o140000


def keep(error: GpuhookError, attempt: Attempt, *, folder: str = "", journal: str = "") -> None:
    """Keep the failure of this attempt: as the node's last one, in the journal, and in the configured file.

    folder: of snapshots, journal: its socket; "" for the usual ones. Raises nothing of ours.
    """
    record = record_of(error, attempt)
    snapshot.save(NAME, (), dict(record), folder=folder)
    if attempt.failure_log:
        _append(attempt.failure_log, f"{record['time']} {line(record)}\n")
    _tell(journal or JOURNAL, record)


def last(folder: str = "") -> dict[str, str] | None:
    """The last failure that this user's hook kept on this node, by this version of gpuhook; None for none."""
    kept = snapshot.load(NAME, (), folder=folder)
    return {name: str(value) for name, value in kept.items()} if kept else None


def record_of(error: GpuhookError, attempt: Attempt) -> dict[str, str]:
    """All that is known of a failure. time: UTC; the texts are as they came: whoever shows them escapes them."""
    fields = {
        "time": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime()),
        "stage": attempt.stage,
        "container": attempt.id,
        "bundle": attempt.bundle,
        "reference": error.reference,
        "text": error.text,
        "where": error.where,
        "hint": error.hint,
        "version": __version__,
    }
    return {name: value[:LONGEST] for name, value in fields.items()}


def line(record: dict[str, str]) -> str:
    """A record as one line, in which nothing is left that could forge another one."""
    where = f" (in {record['where']})" if record["where"] else ""
    hint = f"; hint: {record['hint']}" if record["hint"] else ""
    who = f"container {record['container']}: " if record["container"] else ""
    return in_a_line(f"{record['stage']}: {who}{record['reference']}: {record['text']}{where}{hint}")


def _append(path: str, text: str) -> None:
    """One write at the end of the file, which only root may have put there (threats.md AC-75)."""
    try:
        fd = open_log(path)
        try:
            posix.write(fd, text.encode("utf-8", "backslashreplace"))
        finally:
            posix.close(fd)
    except (OSError, UnsafeConfig) as fault:
        why = fault.text if isinstance(fault, UnsafeConfig) else fault.strerror
        warn(UnsafeConfig.reference, f"the failure is not written to {path}: {why}")


def _tell(path: str, record: dict[str, str]) -> None:
    """One datagram to the journal where there is one; a full queue is not waited for."""
    try:
        if posix.lstat(path).st_mode & FORMAT != SOCKET:
            return
    except OSError:  # no systemd
        return
    from socket import AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, socket

    try:
        with socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK) as sender:
            sender.sendto(datagram(record), path)
    except OSError as fault:
        note(f"the journal does not take the failure: {fault.strerror}")


def datagram(record: dict[str, str]) -> bytes:
    """The journal's fields, a line each; a value that holds no line end needs no other form."""
    fields = {
        "MESSAGE": f"gpuhook: {line(record)}",
        "PRIORITY": PRIORITY_ERROR,
        "SYSLOG_IDENTIFIER": "gpuhook",
        **{
            f"GPUHOOK_{name.upper()}": in_a_line(record[name])
            for name in ("stage", "container", "bundle", "reference")
        },
        "GPUHOOK_VERSION": __version__,
    }
    return "".join(f"{name}={value}\n" for name, value in fields.items()).encode("utf-8", "backslashreplace")
