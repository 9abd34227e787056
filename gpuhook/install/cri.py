"""containerd's configuration as text → text: the tables of its CRI plugin, in every version of the file."""

from __future__ import annotations

import json
import re

from gpuhook.install import tomledit, tomllist
from gpuhook.install.errors import ContainerdConfig
from gpuhook.install.host import Host, Seen
from gpuhook.install.tomledit import Raw, Table, Toml, at, merged, table_at
from gpuhook.settings.tokens import NotToml
from gpuhook.value import Value

# The CRI plugin's table by the file's `version` (containerd's docs/PLUGINS.md and its migrations).
PLUGINS = {
    1: ("plugins", "cri"),
    2: ("plugins", "io.containerd.grpc.v1.cri"),
    3: ("plugins", "io.containerd.cri.v1.runtime"),
}
RUNC = "io.containerd.runc.v2"
KUBELET = "/var/lib/kubelet/config.yaml"
OLD_SHIM = "io.containerd.runtime.v1.linux"


class Entry(Value):
    """A runtime to register. options: what it has besides its program, from the runtime that it stands in for."""

    name: str
    program: str
    like: Table
    default: bool = False

    @property
    def key(self) -> str:
        """The option that names the program."""
        return "Runtime" if self.like.get("runtime_type") == OLD_SHIM else "BinaryName"


class File(Value):
    """A configuration file that was read. version: 1, 2 or 3; plugin: the path of the CRI plugin's table."""

    path: str
    toml: Toml
    version: int

    @property
    def cri(self) -> tuple[str, ...]:
        """The path of the CRI plugin's containerd table."""
        return (*PLUGINS[self.version], "containerd")

    @property
    def start(self) -> str:
        """The text, with its version said where nothing is said yet."""
        if self.toml.table:
            return self.toml.text
        line = f"version = {self.version}"
        return tomledit.appended(self.toml.text, [line]) if self.toml.text.strip() else f"{line}\n"

    @property
    def runtimes(self) -> Table:
        """The runtimes that the file has."""
        return table_at(self.toml.table, (*self.cri, "runtimes"))


def read_file(seen: Seen, *, new: int = 2) -> File:
    """A file's configuration; new: the version of a file that is empty or absent. Raises ContainerdConfig."""
    try:
        return read_text(seen.text, seen.path, new=new)
    except UnicodeDecodeError as fault:
        line = (seen.data or b"").count(b"\n", 0, fault.start) + 1
        raise broken(seen.path, "it is not UTF-8", line) from None


def read_text(text: str, path: str, *, new: int = 2) -> File:
    """The same from a text."""
    try:
        toml = Toml(text)
    except NotToml as fault:
        raise broken(path, str(fault), fault.line) from None
    return File(path=path, toml=toml, version=_version(toml, path, new))


def broken(path: str, why: str, line: int) -> ContainerdConfig:
    """The error for a file that is no TOML."""
    return ContainerdConfig(
        f"{path} cannot be used: line {line}: {why}",
        where=f"{path}:{line}",
        hint="correct it; gpuhook has not changed the file",
    )


def _version(toml: Toml, path: str, new: int) -> int:
    value = toml.at("version")
    if value is None:
        if not toml.table:
            return new
        if set(table_at(toml.table, ("plugins",))) & {PLUGINS[2][1], PLUGINS[3][1]}:
            raise ContainerdConfig(
                f"{path} has no version, so containerd reads it as version 1, but it names plugins as version 2 does",
                where=f"{path}:1",
                hint="add the line version = 2 at its top",
            )
        return 1
    if not isinstance(value, Raw) or value.text not in map(str, PLUGINS):
        raise ContainerdConfig(
            f"{path} has version = {tomledit.written(value)}, and gpuhook knows versions 1, 2 and 3",
            where=f"{path}:{toml.lines.get(('version',), 1)}",
        )
    return int(value.text)


def mentions(file: File) -> bool:
    """Whether the file has anything of the CRI plugin."""
    return at(file.toml.table, PLUGINS[file.version]) is not None


def default_name(files: list[File]) -> str:
    """The default runtime that these files lead to, later ones winning."""
    named = [at(file.toml.table, (*file.cri, "default_runtime_name")) for file in files]
    return next((name for name in reversed(named) if isinstance(name, str)), "runc")


def model(files: list[File], skip: str) -> Table | None:
    """What the files say of the runtime that ours stands in for: the default one, runc or crun; None for nothing."""
    runtimes: Table = {}
    for file in files:
        runtimes = merged(runtimes, file.runtimes)
    for name in (default_name(files), "runc", "crun"):
        found = runtimes.get(name)
        if isinstance(found, dict) and name != skip and not name.startswith("nvidia"):
            return found
    return None


def entry_table(entry: Entry) -> Table:
    """The runtime's whole table: the other one's, with our program."""
    like = {"runtime_type": RUNC, **{name: value for name, value in entry.like.items() if value != ""}}
    options = {
        name: value for name, value in table_at(like, ("options",)).items() if name not in ("BinaryName", "Runtime")
    }
    return {**like, "options": {**options, entry.key: entry.program}}


def like_runc(host: Host) -> Table:
    """The runtime that ours resembles where no file has one: runc, with the cgroup driver of the kubelet."""
    text = (host.read(KUBELET).data or b"").decode("utf-8", "replace")
    systemd = re.search(r"^cgroupDriver:\s*[\"']?systemd\b", text, re.MULTILINE)
    return {"runtime_type": RUNC, **({"options": {"SystemdCgroup": True}} if systemd else {})}


def with_entry(file: File, entry: Entry, *, lacks_runc: bool) -> str:
    """The file's text with the runtime. lacks_runc: no file has the default runtime, which the first table would hide.

    Raises ContainerdConfig where the table is written in a way to which nothing can be added.
    """
    place, table = (*file.cri, "runtimes", entry.name), entry_table(entry)
    meant: Table = file.toml.table or {"version": Raw(text=str(file.version))}
    text = file.start
    try:
        if entry.name in file.runtimes:
            text, meant = _completed(text, meant, place, table)
        else:
            if lacks_runc and "runc" not in file.runtimes and entry.name != "runc":
                text, meant = _added(text, meant, (*file.cri, "runtimes", "runc"), {"runtime_type": RUNC})
            text, meant = _added(text, meant, place, table)
        if entry.default and at(meant, (*file.cri, "default_runtime_name")) != entry.name:
            text = tomledit.with_key(text, file.cri, "default_runtime_name", entry.name)
            meant = merged(meant, tomledit.nested(file.cri, {"default_runtime_name": entry.name}))
        means = Toml(text).table
    except NotToml:
        means = {}
    if means != meant:
        raise ContainerdConfig(
            f"{file.path} has its tables in a form that gpuhook does not change",
            where=file.path,
            hint=f"add by hand: {'; '.join(line.strip() for line in tomledit.block(place, table) if line)}",
        )
    return file.toml.whole(text)


def _added(text: str, meant: Table, place: tuple[str, ...], table: Table) -> tuple[str, Table]:
    """A new table at the end, in the style of its neighbours."""
    toml = Toml(text)
    if tomledit.is_inline(toml, place):
        return tomledit.with_key(text, place[:-1], place[-1], table), merged(meant, tomledit.nested(place, table))
    beside = next((spot for spot in toml.spots if spot.header and spot.path[:-1] == place[:-1]), None)
    indent = tomledit.indent_of(toml.text, beside) if beside else ""
    lines = tomledit.block(place, table, indent=indent, quote=tomledit.quote_of(toml))
    return tomledit.appended(text, lines), merged(meant, tomledit.nested(place, table))


def _completed(text: str, meant: Table, place: tuple[str, ...], table: Table) -> tuple[str, Table]:
    """An entry that exists: its program is ours, what it lacks is added, everything else stays."""
    there = table_at(meant, place)
    options, ours = table_at(there, ("options",)), table_at(table, ("options",))
    program = {name: value for name, value in ours.items() if name in ("BinaryName", "Runtime")}
    changes = {name: value for name, value in {**ours, **options, **program}.items() if options.get(name) != value}
    top = {} if there.get("runtime_type") else {"runtime_type": table["runtime_type"]}
    for key, value in top.items():
        text = tomledit.with_key(text, place, key, value)
    for key, value in changes.items():
        text = tomledit.with_key(text, (*place, "options"), key, value)
    return text, merged(meant, tomledit.nested(place, {**top, **({"options": changes} if changes else {})}))


def with_import(file: File, pattern: str) -> str:
    """The file's text with this pattern among its imports. Raises ContainerdConfig."""
    old = file.toml.at("imports")
    if old is not None and not isinstance(old, list):
        raise broken(file.path, "imports is no list", file.toml.lines.get(("imports",), 1))
    text = tomllist.with_item(file.toml, "imports", pattern)
    return file.toml.whole(text or tomledit.with_key(file.start, (), "imports", [*(old or []), pattern]))


def without_import(text: str, path: str, _name: str, was_text: str) -> str:
    """An edited file's text without the pattern that we added to its imports."""
    was, file = json.loads(was_text or "{}"), read_text(text, path)
    old = file.toml.at("imports")
    left = [pattern for pattern in old if pattern != was.get("pattern")] if isinstance(old, list) else []
    if not left and not was.get("imports"):
        return file.toml.whole(tomledit.without(file.toml.text, ("imports",)))
    return file.toml.whole(tomllist.without_item(file.toml, "imports", str(was.get("pattern"))) or file.toml.text)


def previous(file: File, name: str) -> str:
    """What an undo in an edited file needs: the entry, the default and the imports that are there now."""
    found = {
        "program": at(file.runtimes, (name, "options", "BinaryName")),
        "entry": name in file.runtimes,
        "runc": "runc" in file.runtimes,
        "default": at(file.toml.table, (*file.cri, "default_runtime_name")),
    }
    return json.dumps(found)


def without_entry(text: str, path: str, name: str, was_text: str) -> str:
    """An edited file's text without our runtime, or with the program that it had. Raises ContainerdConfig."""
    was, file = json.loads(was_text or "{}"), read_text(text, path)
    place = (*file.cri, "runtimes", name)
    windows, text = file.toml, file.toml.text
    if not was.get("entry"):
        text = tomledit.without(text, place)
        if not was.get("runc") and file.runtimes.get("runc") == {"runtime_type": RUNC}:
            text = tomledit.without(text, (*file.cri, "runtimes", "runc"))
    elif isinstance(was.get("program"), str):
        text = tomledit.with_key(text, (*place, "options"), "BinaryName", was["program"])
    if at(file.toml.table, (*file.cri, "default_runtime_name")) == name:
        if isinstance(was.get("default"), str):
            text = tomledit.with_key(text, file.cri, "default_runtime_name", was["default"])
        else:
            text = tomledit.without(text, (*file.cri, "default_runtime_name"))
    return windows.whole(text)
