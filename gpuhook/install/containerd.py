"""containerd: a runtime for its CRI plugin, in a drop-in where the installed release merges those, else in place.

Kubernetes distributions bring a containerd of their own that reads other files: see distributions.py.
"""

from __future__ import annotations

import fnmatch
import json
import os

from gpuhook.install import cri, distributions, tomledit
from gpuhook.install.ask import Containerd, has_runtime, lost
from gpuhook.install.change import Change
from gpuhook.install.engine import Plan, Registered, Wish
from gpuhook.install.errors import ContainerdConfig, EngineMissing
from gpuhook.install.host import Host, Seen
from gpuhook.install.tomledit import Table, at
from gpuhook.note import warn

NAME = "containerd"
IN_PLACE, IMPORT, DROP_IN = "containerd", "containerd-import", "containerd-drop-in"
CONFIG, FOLDER = "/etc/containerd/config.toml", "/etc/containerd/conf.d"
FILE = "99-gpuhook.toml"
KUBEADM = ("/etc/kubernetes/kubelet.conf", cri.KUBELET)


def find(host: Host) -> str:
    """What shows that containerd is here, "" for nothing."""
    found = distributions.find(host)
    if found:
        return ", ".join(f"{one.name}: {one.shows(host)}" for one in found)
    return host.program("containerd") or ("/etc/containerd" if host.exists("/etc/containerd") else "")


def restarts(host: Host) -> tuple[tuple[str, ...], ...]:
    """The commands after which containerd has read its files."""
    found = distributions.find(host)
    commands = [command for one in found for command in one.restarts(host)]
    return tuple(commands) if found else (("systemctl", "restart", "containerd"),)


def plan(wish: Wish) -> Plan:
    """What registers our shim with every containerd that serves Kubernetes here. Raises GpuhookError."""
    host = wish.host
    found = [] if wish.config else distributions.find(host)
    if found:
        return distributions.plan(wish, found)
    if not (wish.config or wish.force or find(host)):
        raise EngineMissing(
            "containerd was not found: neither its program nor /etc/containerd, nor a Kubernetes distribution's",
            hint="install it first; --config FILE names its file, --force writes it for a later containerd",
        )
    path = wish.config or CONFIG
    known = wish.containerd or (host.real(program) if host.is_this and (program := host.program("containerd")) else "")
    daemon = Containerd(known, host.root, os.path.dirname(path))
    seen, changes = _changes(wish, path, daemon)
    _warn_of_disabled(seen)
    notes = ("pods ask for it by a RuntimeClass whose handler is " + wish.runtime,) if _kubeadm(host) else ()
    return Plan(changes=changes, notes=notes, restart=restarts(host))


def _kubeadm(host: Host) -> bool:
    return any(host.exists(path) for path in KUBEADM)


def _changes(wish: Wish, path: str, daemon: Containerd) -> tuple[Seen, tuple[Change, ...]]:
    seen, major = wish.host.read(path), daemon.major()
    main = cri.read_file(seen, new=3 if major >= 2 else 2)
    if main.version == 1 and major >= 2:
        raise ContainerdConfig(
            f"{path} is of version 1, which containerd {major} does not read any more",
            where=f"{path}:1",
            hint="containerd config migrate shows it in the new version",
        )
    imported = _imported(wish.host, main)
    files = [main, *(cri.read_file(one) for one in imported)]
    entry = cri.Entry(
        name=wish.runtime,
        program=wish.shim,
        like=cri.model(files, wish.runtime) or cri.like_runc(wish.host),
        default=wish.default,
    )
    if not any(entry.name in file.runtimes for file in files) and (
        changes := _drop_in(wish, seen, main, entry, daemon)
    ):
        return seen, changes
    return seen, (_in_place(wish, [seen, *imported], files, entry, daemon),)


def patterns(main: cri.File) -> list[str]:
    """The imports of a file, absolute. Raises ContainerdConfig."""
    found = main.toml.at("imports") or []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise cri.broken(main.path, "imports is no list of texts", main.toml.lines.get(("imports",), 1))
    return [os.path.join(os.path.dirname(main.path), str(name)) for name in found]


def _imported(host: Host, main: cri.File) -> list[Seen]:
    """The files that the main one imports, and those that these import, in containerd's order."""
    found: dict[str, Seen] = {}
    files = [main]
    for file in files:
        paths = [path for pattern in patterns(file) for path in host.files(pattern)]
        for path in paths:
            if path not in (main.path, *found):
                found[path] = host.read(path)
                files.append(cri.read_file(found[path]))
    return list(found.values())


def _drop_in(
    wish: Wish, seen: Seen, main: cri.File, entry: cri.Entry, daemon: Containerd
) -> tuple[Change, ...] | None:
    """The runtime in a file of its own, where the installed containerd keeps everything else then; None elsewhere."""
    if main.version < 2:
        return None
    folders = [
        os.path.dirname(pattern) for pattern in patterns(main) if fnmatch.fnmatch(FILE, os.path.basename(pattern))
    ]
    folder = folders[-1] if folders else FOLDER
    table: Table = {"runtimes": {entry.name: cri.entry_table(entry)}}
    seen_there = wish.host.read(f"{folder}/{FILE}")
    text = f"version = {main.version}\n\n" + _blocks(main, table, entry)
    if seen_there.data:  # of another of our runtimes
        text = cri.with_entry(cri.read_file(seen_there), entry, lacks_runc=False)
    before, after = daemon.reads(main.start), daemon.reads(main.start, extra=text)
    if before is None or after is None or not has_runtime(after, entry.name, entry.program):
        return None
    if lost(before, after, _may_differ(entry)):
        return None
    drop_in = _change(wish, DROP_IN, seen_there, text, main)
    if folders:
        return (drop_in,)
    pattern = f"{folder}/*.toml"
    was = json.dumps({"pattern": pattern, "imports": "imports" in main.toml.table})
    imports = _change(wish, IMPORT, seen, cri.with_import(main, pattern), main).with_(previous=was)
    return (drop_in, imports.with_(about=f"imports {pattern}"))


def _blocks(main: cri.File, table: Table, entry: cri.Entry) -> str:
    quote, name = tomledit.quote_of(main.toml), entry.name
    place = (*main.cri, "runtimes", name)
    lines = tomledit.block(place, tomledit.table_at(table, ("runtimes", name)), quote=quote)
    if entry.default:
        lines = [tomledit.header(main.cri, quote), f"  default_runtime_name = {tomledit.written(name)}", "", *lines]
    return "".join(f"{line}\n" for line in lines)


def _in_place(wish: Wish, seens: list[Seen], files: list[cri.File], entry: cri.Entry, daemon: Containerd) -> Change:
    """The runtime in the file that has it, else in the one that speaks for the plugin last, else in the main one."""
    having = [number for number, file in enumerate(files) if entry.name in file.runtimes]
    speaking = [number for number, file in enumerate(files) if cri.mentions(file)]
    number = (having or speaking or [0])[-1]
    text = cri.with_entry(files[number], entry, lacks_runc=cri.model(files, entry.name) is None)
    if number == 0 and files[0].toml.table:
        _require_kept(files[0], text, entry, daemon)
    return _change(wish, IN_PLACE, seens[number], text, files[number])


def _require_kept(main: cri.File, text: str, entry: cri.Entry, daemon: Containerd) -> None:
    before, after = daemon.reads(main.toml.text), daemon.reads(text.replace("\r\n", "\n"))
    if before is None:
        return
    gone = "everything" if after is None else lost(before, after, _may_differ(entry))
    if after is not None and entry.key == "BinaryName" and not has_runtime(after, entry.name, entry.program):
        gone = "the runtime itself"
    if gone:
        raise ContainerdConfig(f"{main.path}: with the runtime in it, containerd would lose {gone}", where=main.path)


def _may_differ(entry: cri.Entry) -> tuple[str, ...]:
    return ("imports", entry.name, *(("default_runtime_name",) if entry.default else ()))


def _change(wish: Wish, kind: str, seen: Seen, text: str, file: cri.File) -> Change:
    about = f"runtime {wish.runtime} is {wish.shim}" + (", the default" if wish.default else "")
    return Change(
        engine=NAME,
        kind=kind,
        seen=seen,
        after=text.encode(),
        about=about,
        runtime=wish.runtime,
        previous=cri.previous(file, wish.runtime),
    )


def _warn_of_disabled(seen: Seen) -> None:
    off = at(cri.read_file(seen).toml.table, ("disabled_plugins",))
    names = {"cri", cri.PLUGINS[2][1], cri.PLUGINS[3][1]}
    if isinstance(off, list) and names & {name for name in off if isinstance(name, str)}:
        warn("containerd-config", f"{seen.path} disables the CRI plugin, so no kubelet can use this containerd")


def without_drop_in(text: str, path: str, name: str, _previous: str) -> str:
    """An edited drop-in's text without our runtime, "" where nothing but its version is left."""
    left = cri.without_entry(text, path, name, "")
    return "" if tomledit.says_nothing(left, but="version") else left


def registered(host: Host) -> list[Registered]:
    """The runtimes in the files that this machine's containerds read. Raises GpuhookError."""
    found = distributions.find(host)
    if found:
        return [one for distribution in found for one in distribution.registered(host)]
    main = cri.read_file(host.read(CONFIG))
    files = [main, *(cri.read_file(seen) for seen in _imported(host, main))]
    default = cri.default_name(files)
    return [one for file in files for one in in_file(file, default)]


def in_file(file: cri.File, default: str) -> list[Registered]:
    """The runtimes of one file that name a program."""
    found = []
    for name in file.runtimes:
        program = at(file.runtimes, (name, "options", "BinaryName"))
        if isinstance(program, str):
            found.append(Registered(where=file.path, name=name, program=program, default=name == default))
    return found
