"""What gpuhook has installed on a machine, and what stood there before: /var/lib/gpuhook/install.json.

It is written before the files are, so that whatever is interrupted can be undone. It says which files root restores
and removes, so it is obeyed only where nobody else can write it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpuhook.install.errors import FileBusy, JournalBroken
from gpuhook.install.host import Host
from gpuhook.kernel.files import require_trusted
from gpuhook.value import Value

FOLDER = "/var/lib/gpuhook"
PATH = f"{FOLDER}/install.json"
FORMAT = 1
PATIENCE = 20.0  # seconds that one waits for another gpuhook


class Entry(Value):
    """One file of ours. engines: who needs it; before, after: digests of the contents, "" for no file.

    aside: where the old file is, "" for none. exact: whether putting that back undoes all and only our work, which
    is not so where somebody edited the file between two of our changes. previous: see the file's kind. later: kind,
    runtime and previous of what later installations put into the file besides.
    """

    engines: tuple[str, ...]
    kind: str
    before: str
    after: str
    aside: str = ""
    exact: bool = True
    runtime: str = ""
    previous: str = ""
    later: tuple[tuple[str, str, str], ...] = ()

    @property
    def parts(self) -> tuple[tuple[str, str, str], ...]:
        """All that is ours in the file, as in `later`."""
        return ((self.kind, self.runtime, self.previous), *self.later)


class Journal(Value):
    """files: entries by path; folders: those that we made, the uppermost first. Paths are the machine's own."""

    files: dict[str, Entry]
    folders: tuple[str, ...] = ()

    def of(self, engine: str) -> dict[str, Entry]:
        """The files that this engine needs."""
        return {path: entry for path, entry in self.files.items() if engine in entry.engines}


def digest(data: bytes | None) -> str:
    """A content in short, "" for no file."""
    return hashlib.sha256(data).hexdigest() if data is not None else ""


def read_journal(host: Host) -> Journal:
    """The journal, empty where there is none. Raises JournalBroken, UnsafeConfig."""
    seen = host.read(PATH)
    if seen.data is None:
        return Journal(files={})
    require_trusted(seen.real)
    try:
        found = json.loads(seen.text)
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']} is not {FORMAT}")
        files = {path: _entry(fields) for path, fields in found["files"].items()}
        return Journal(files=files, folders=tuple(found["folders"]))
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise JournalBroken(
            f"{PATH} cannot be understood: {fault}",
            where=PATH,
            hint=f"files that were replaced are kept beside with .before-gpuhook at their end; then remove {PATH}",
        ) from None


def _entry(fields: dict[str, object]) -> Entry:
    engines = fields["engines"]
    if not isinstance(engines, list):
        raise TypeError("engines is no list")
    later = fields.get("later", [])
    if not isinstance(later, list):
        raise TypeError("later is no list")
    lists = {"engines": tuple(engines), "later": tuple(map(tuple, later))}
    return Entry(**{**fields, **lists})  # type: ignore[arg-type]  # a wrong one shows in use


def write_journal(host: Host, journal: Journal) -> None:
    """Keep the journal; without a file of ours there is none. Raises OSError."""
    real = host.real(PATH)
    if not journal.files:
        if os.path.exists(real):
            os.unlink(real)
        return
    files = {path: {name: getattr(entry, name) for name in Entry.fields()} for path, entry in journal.files.items()}
    text = json.dumps({"format": FORMAT, "files": files, "folders": journal.folders}, indent=1)
    new = f"{real}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, real)


@contextmanager
def locked(host: Host) -> Iterator[tuple[str, ...]]:
    """Keep other gpuhooks from changing this machine meanwhile; gives the folders that were made for it.

    Raises FileBusy after 20 s.
    """
    made: list[str] = []
    deadline = time.monotonic() + PATIENCE
    while True:
        made += host.make_folder(FOLDER)
        fd = os.open(host.real(FOLDER), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _take(fd, deadline) and _still_there(host, fd):
                yield tuple(made)
                return
        finally:
            os.close(fd)


def _take(fd: int, deadline: float) -> bool:
    while not _free(fd):
        if time.monotonic() > deadline:
            raise FileBusy(f"another gpuhook has been changing this machine for {PATIENCE:g} s", where=FOLDER)
        time.sleep(0.05)
    return True


def _free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still_there(host: Host, fd: int) -> bool:
    """Whether the folder that we locked was not taken away by the one that had it before."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(host.real(FOLDER)))
    except FileNotFoundError:
        return False
