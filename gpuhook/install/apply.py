"""Writes planned changes, all or none, and undoes what the journal says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from gpuhook.errors import GpuhookError
from gpuhook.install.change import Change, aside_path, in_words, put_back, require_ours, require_unchanged, write
from gpuhook.install.host import Host, Seen
from gpuhook.install.journal import Entry, Journal, digest, write_journal
from gpuhook.note import warn
from gpuhook.value import Value


def apply(
    host: Host,
    journal: Journal,
    changes: list[Change],
    *,
    engines: tuple[str, ...],
    force: bool,
    folders: tuple[str, ...],
) -> Journal:
    """Write these changes for these engines; the journal after them. folders: made already, for the journal itself.

    Raises GpuhookError; then every file is as it was.
    """
    todo = [change for change in changes if not change.is_none]
    for change in todo:
        require_ours(change, force=force)
    asides = {change.path: _aside(host, journal, change) for change in todo}
    made, writing = list(folders), ""
    done: list[Change] = []
    try:
        for change in todo:
            made += host.make_folder(os.path.dirname(host.inside(change.seen.real)))
        entries = {change.path: _entry(host, journal, change, asides, engines) for change in changes}
        files = {**journal.files, **{path: entry for path, entry in entries.items() if entry}}
        after = Journal(files=files, folders=(*journal.folders, *made))
        if after != journal:
            write_journal(host, after)
        for change in todo:
            writing = change.path
            write(change, asides[change.path])
            done.append(change)
    except (OSError, GpuhookError) as fault:
        _back_out(host, journal, done, asides, made)
        if isinstance(fault, OSError):
            raise in_words(fault, writing or str(fault.filename)) from fault
        raise
    return after


def _aside(host: Host, journal: Journal, change: Change) -> str:
    """Where the old file goes: nowhere if there is none, or if one from before us is kept already."""
    known = journal.files.get(change.path)
    return "" if change.seen.data is None or known else aside_path(host, change)


def _entry(
    host: Host, journal: Journal, change: Change, asides: dict[str, str], engines: tuple[str, ...]
) -> Entry | None:
    """The journal's entry for a file after its change; None where it is as it should be without us."""
    users = engines if change.program else (change.engine,)
    known = journal.files.get(change.path)
    if known is not None:
        now = digest(change.seen.data)
        exact = now == known.before or (known.exact and now == known.after)
        users = tuple(dict.fromkeys((*known.engines, *users)))
        part = (change.kind, change.runtime, change.previous)
        is_new = part[:2] not in [one[:2] for one in known.parts]
        later = (*known.later, part) if is_new else known.later
        return known.with_(engines=users, after=digest(change.after), exact=exact, later=later)
    if change.is_none:
        return None
    return Entry(
        engines=users,
        kind=change.kind,
        before=digest(change.seen.data),
        after=digest(change.after),
        aside=host.inside(asides[change.path]) if asides[change.path] else "",
        runtime=change.runtime,
        previous=change.previous,
    )


def _back_out(host: Host, journal: Journal, done: list[Change], asides: dict[str, str], made: list[str]) -> None:
    """Undo a beginning, last first. What cannot be undone is said, and the rest is undone all the same."""
    for change in reversed(done):
        aside = asides[change.path]
        try:
            if aside or change.seen.data is None:
                put_back(change.seen.real, aside)
            else:  # our own older file stood there
                write(change.with_(seen=host.read_name(change.path), after=change.seen.data), "")
        except (OSError, GpuhookError) as fault:
            warn("file-protected", f"{change.path} could not be put back: {fault}")
    try:
        write_journal(host, journal)
        remove_folders(host, made)
    except OSError as fault:
        warn("install-journal", f"the journal could not be put back: {fault}")


def remove_folders(host: Host, folders: Iterable[str]) -> tuple[str, ...]:
    """Remove those of these folders that are empty, the lowest first; those that are left."""
    lowest_first = sorted(set(folders), key=len, reverse=True)
    return tuple([folder for folder in lowest_first if not _removed(host.real(folder))][::-1])


def _removed(real: str) -> bool:
    try:
        os.rmdir(real)
    except FileNotFoundError:
        return True
    except OSError:  # somebody else's files are in it
        return False
    return True


Editor = Callable[[str, str, str, str], str]  # text, path, runtime, previous → text without us


class Undo(Value):
    """How a file is taken back.

    how: "restore" the old file, or remove ours where there was none; "rewrite", since somebody edited it and only
    ours is to go; "settled", since it is as it was; "gone"; "edited", in a way that leaves it to its editor; "needed"
    by such a file. after: the content afterwards, None for no file.
    """

    path: str
    entry: Entry
    seen: Seen
    how: str
    after: bytes | None


def undo(host: Host, path: str, entry: Entry, editors: Mapping[str, Editor], *, force: bool = False) -> Undo:
    """How this file is taken back; editors: by kind, what takes ours out of an edited one. Raises GpuhookError."""
    seen = host.read_name(path) if entry.kind == "program" else host.read(path)
    now, how, after = digest(seen.data), "edited", seen.data
    old = host.read_name(entry.aside).data if entry.aside else None
    is_kept = not entry.aside or old is not None  # nobody has taken the old file away
    if is_kept and ((now == entry.after and entry.exact) or (force and now)):
        how, after = "restore", old
    elif now == entry.before:
        how = "settled"
    elif not now:
        how = "gone"
    elif all(kind in editors for kind, _, _ in entry.parts):
        how, after = "rewrite", _text_without(seen, path, entry, editors)
    return Undo(path=path, entry=entry, seen=seen, how=how, after=after)


def _text_without(seen: Seen, path: str, entry: Entry, editors: Mapping[str, Editor]) -> bytes | None:
    text = seen.text
    for kind, runtime, previous in reversed(entry.parts):
        text = editors[kind](text, path, runtime, previous)
    return text.encode() if text.strip() or entry.before else None


def carry_out(host: Host, what: Undo) -> None:
    """Take a file back. Raises GpuhookError, OSError."""
    aside = host.real(what.entry.aside, last=False) if what.entry.aside else ""
    if what.how == "restore":
        require_unchanged(what.seen)
        put_back(what.seen.real, aside)
        return
    if what.how == "rewrite":
        write(Change(engine="", kind=what.entry.kind, seen=what.seen, after=what.after, about=""), "")
    if aside and what.how in ("rewrite", "settled") and os.path.lexists(aside):
        os.unlink(aside)
