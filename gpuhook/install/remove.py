"""`gpuhook uninstall`: puts back exactly what stood there before `gpuhook install`, and removes what is ours.

A file that somebody edited since keeps those edits; only what is ours is taken out of it.
"""

from __future__ import annotations

import argparse
import sys

from gpuhook.errors import GpuhookError
from gpuhook.install import programs
from gpuhook.install.add import common, host_at
from gpuhook.install.apply import Undo, carry_out, remove_folders, undo
from gpuhook.install.change import in_words, system_errors_in_words, text_diff
from gpuhook.install.engines import EDITORS, ENGINES, chosen
from gpuhook.install.host import Host
from gpuhook.install.journal import Entry, Journal, locked, read_journal, write_journal
from gpuhook.install.restart import restart

SAID = {
    "restore": "as it was before gpuhook",
    "rewrite": "edited since: only gpuhook's part was taken out",
    "settled": "already as it was",
    "gone": "somebody removed it; the old file stays at {aside}",
    "edited": "edited since and left as it is; --force removes it",
    "needed": "stays, since a file that is left as it is may name it",
}


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = common("uninstall", __doc__)
    made.add_argument("--dry-run", action="store_true", help="print the changes as unified diffs, and make none")
    made.add_argument("--restart", action="store_true", help="restart what must be restarted")
    made.add_argument("--force", action="store_true", help="remove also what was edited since, and its edits")
    return made


def main(argv: list[str]) -> int:
    """The command `gpuhook uninstall`. Raises GpuhookError."""
    given = parser().parse_args(argv)
    host = host_at(given.root)
    journal = read_journal(host)
    engines = chosen(given.engines) or [name for name in ENGINES if journal.of(name)]
    if not any(journal.of(name) for name in engines):
        sys.stdout.write("nothing is installed" + (f" for {', '.join(engines)}" if engines else "") + "\n")
        return 0
    if given.dry_run:
        for what in _undos(host, journal, engines, force=given.force):
            sys.stdout.write(text_diff(what.path, what.seen.data, what.after))
        return 0
    commands = [command for name in engines if journal.of(name) for command in ENGINES[name].restarts(host)]
    with system_errors_in_words():
        status = _uninstall(host, engines, force=given.force)
    restart(host, commands, wanted=given.restart)
    return status


def _uninstall(host: Host, engines: list[str], *, force: bool) -> int:
    with locked(host) as folders:
        journal = read_journal(host)
        undos = _undos(host, journal, engines, force=force)
        for what in undos:
            try:
                carry_out(host, what)
            except OSError as fault:
                raise in_words(fault, what.path) from fault
            journal = _without(journal, what)
            write_journal(host, journal.with_(files={**journal.files}))
            sys.stdout.write(f"{what.path}: {SAID[what.how].format(aside=what.entry.aside)}\n")
        journal = journal.with_(files=_released(journal, engines))
        write_journal(host, journal)
        left = remove_folders(host, (*journal.folders, *folders))
        if journal.files:
            write_journal(host, journal.with_(folders=left))
    return 1 if any(what.how == "edited" for what in undos) else 0


def _undos(host: Host, journal: Journal, engines: list[str], *, force: bool) -> list[Undo]:
    """What takes back the files that no other engine needs, configurations before programs."""
    ours = {path: entry for path, entry in journal.files.items() if set(entry.engines) <= set(engines)}
    ordered = sorted(ours.items(), key=lambda item: (item[1].kind == programs.KIND, item[0]))
    undos = [_undo(host, path, entry, force=force) for path, entry in ordered]
    is_left = any(what.how == "edited" and what.entry.kind != programs.KIND for what in undos)
    return [_needed(what) if is_left and what.entry.kind == programs.KIND else what for what in undos]


def _needed(what: Undo) -> Undo:
    """A program stays with the file that calls it: engines fail where a hook is missing."""
    return what.with_(how="needed", after=what.seen.data)


def _undo(host: Host, path: str, entry: Entry, *, force: bool) -> Undo:
    replaced = entry.kind == programs.KIND and programs.is_ours(host.read_name(path).data)
    try:
        return undo(host, path, entry, EDITORS, force=force or replaced)
    except UnicodeDecodeError:
        raise GpuhookError(f"{path} is not UTF-8 any more", where=path, hint="--force restores the old file") from None


def _without(journal: Journal, what: Undo) -> Journal:
    if what.how in ("edited", "needed"):
        return journal
    return journal.with_(files={path: entry for path, entry in journal.files.items() if path != what.path})


def _released(journal: Journal, engines: list[str]) -> dict[str, Entry]:
    """The files that other engines still need, without these engines."""
    found = {}
    for path, entry in journal.files.items():
        users = tuple(name for name in entry.engines if name not in engines)
        found[path] = entry.with_(engines=users or entry.engines)
    return found
