"""`gpuhook install`: registers gpuhook with container engines. Without an engine: what is here, and what it would do.

A daemon is never restarted unless asked. All changes are made, or none; what stood there before is kept beside.
"""

from __future__ import annotations

import argparse
import os
import sys

from gpuhook.errors import GpuhookError, Usage, printable
from gpuhook.install import programs
from gpuhook.install.apply import apply, remove_folders
from gpuhook.install.change import Change, diff, require_ours, system_errors_in_words
from gpuhook.install.engine import BIN, Plan, Wish
from gpuhook.install.engines import ENGINES, chosen
from gpuhook.install.errors import EngineMissing
from gpuhook.install.host import Host
from gpuhook.install.journal import locked, read_journal
from gpuhook.install.restart import restart
from gpuhook.launchers import NVIDIA_NAMES, RUNTIME, compile_package


def common(command: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with what install, uninstall and status have in common."""
    made = argparse.ArgumentParser(prog=f"gpuhook {command}", description=description, allow_abbrev=False)
    made.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(ENGINES))
    made.add_argument(
        "--root", default="/", metavar="DIR", help="configure the system below this folder, not this one"
    )
    return made


def host_at(root: str) -> Host:
    """The machine below this folder. Raises Usage."""
    if not os.path.isdir(root):
        raise Usage(f"--root {root} is no folder")
    return Host(root=os.path.realpath(root))


def main(argv: list[str]) -> int:
    """The command `gpuhook install`. Raises GpuhookError."""
    given = parser().parse_args(argv)
    wish = _wish(given)
    if not given.engines:
        return _overview(wish)
    engines = chosen(given.engines)
    if given.config and len(engines) > 1:
        raise Usage("--config names the file of one engine", hint="install the engines one by one")
    if given.dry_run:
        changes = [change for change in _changes(wish, _plans(wish, engines)) if not change.is_none]
        for change in changes:
            require_ours(change, force=wish.force)
        sys.stdout.writelines(map(diff, changes))
        return 0
    if given.restart and not wish.host.is_this:
        raise Usage("--restart and --root exclude each other: nothing runs in another machine's tree")
    compile_package()
    with system_errors_in_words():
        plans = _install(wish, engines)
    if given.restart and not plans:
        plans = _plans(wish, engines)
    commands = [command for plan in plans.values() for command in plan.restart]
    restart(wish.host, commands, wanted=given.restart)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = common("install", __doc__)
    made.add_argument("--dry-run", action="store_true", help="print the changes as unified diffs, and make none")
    made.add_argument("--set-as-default", action="store_true", help="containers get the runtime without asking for it")
    made.add_argument("--config", default="", metavar="FILE", help="the engine's configuration file")
    made.add_argument("--restart", action="store_true", help="restart what must be restarted")
    made.add_argument("--bin", default=BIN, metavar="FOLDER", help=f"where our programs go (default: {BIN})")
    made.add_argument("--replace-nvidia", action="store_true", help=f"also as {', '.join(NVIDIA_NAMES)}")
    made.add_argument("--runtime-name", default="nvidia", metavar="NAME", help="what containers ask for")
    made.add_argument("--via", choices=("hook", "runtime"), default="", help="how Podman and CRI-O call us")
    made.add_argument("--force", action="store_true", help="replace, and keep aside, also what is not gpuhook's")
    made.add_argument("--containerd", default="", metavar="PROGRAM", help="the containerd to ask how it merges files")
    return made


def _wish(given: argparse.Namespace) -> Wish:
    for option, value in (("--bin", given.bin), ("--config", given.config), ("--containerd", given.containerd)):
        if value and (not value.startswith("/") or not value.isprintable()):
            raise Usage(f"{option} {printable(value)} is not an absolute path")
    if not given.runtime_name.replace("-", "").replace("_", "").isalnum() or not given.runtime_name.isascii():
        raise Usage(f"{printable(given.runtime_name)} cannot be a runtime's name: letters, digits, - and _ can")
    folder = os.path.normpath(given.bin)
    return Wish(
        host=host_at(given.root),
        runtime=given.runtime_name,
        shim=f"{folder}/{RUNTIME}",
        hook=f"{folder}/gpuhook",
        default=given.set_as_default,
        config=os.path.normpath(given.config) if given.config else "",
        via=given.via,
        force=given.force,
        folder=folder,
        names=programs.names(nvidia=given.replace_nvidia),
        containerd=given.containerd,
    )


def _plans(wish: Wish, engines: list[str]) -> dict[str, Plan]:
    return {name: ENGINES[name].plan(wish) for name in engines}


def _changes(wish: Wish, plans: dict[str, Plan]) -> list[Change]:
    """The programs first: no engine may be sent to what is not there yet."""
    ours = programs.plan(wish, next(iter(plans)))
    return [*ours, *(change for plan in plans.values() for change in plan.changes)]


def _install(wish: Wish, engines: list[str]) -> dict[str, Plan]:
    """Do it and say it; the plans, none where everything was in place already. Raises GpuhookError."""
    host = wish.host
    with locked(host) as folders:
        try:
            plans = _plans(wish, engines)
            changes = _changes(wish, plans)
            apply(host, read_journal(host), changes, engines=tuple(engines), force=wish.force, folders=folders)
        except GpuhookError:
            remove_folders(host, folders)
            raise
    for name, plan in plans.items():
        for change in plan.changes:
            sys.stdout.write(f"{name}: {change.path}: {change.about}{' (as it was)' if change.is_none else ''}\n")
        sys.stdout.writelines(f"{name}: {note}\n" for note in plan.notes)
    if all(change.is_none for change in changes):
        sys.stdout.write("nothing changed\n")
        return {}
    return plans


def _overview(wish: Wish) -> int:
    for name, engine in ENGINES.items():
        found = engine.find(wish.host)
        sys.stdout.write(f"{name}: {f'found ({found})' if found else 'not found'}\n")
        if found:
            sys.stdout.writelines(f"  {line}\n" for line in _would(wish, name))
    sys.stdout.write("to register with an engine: gpuhook install ENGINE; to see every change first: --dry-run\n")
    return 0


def _would(wish: Wish, name: str) -> list[str]:
    try:
        plan = ENGINES[name].plan(wish)
        for change in plan.changes:
            if not change.is_none:
                require_ours(change, force=wish.force)
    except EngineMissing as error:
        return [error.text]
    except GpuhookError as error:
        return error.render().split("\n")
    verbs = ((change, _verb(change)) for change in plan.changes)
    return [*(f"{verb} {change.path}: {change.about}" for change, verb in verbs), *plan.notes]


def _verb(change: Change) -> str:
    if change.is_none:
        return "is in"
    return "would create" if change.seen.data is None else "would change"
