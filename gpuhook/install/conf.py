"""TOML files that engines read in order, one over the other: Podman's containers.conf and CRI-O's crio.conf."""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.install import tomledit
from gpuhook.install.host import Host, Seen
from gpuhook.install.tomledit import Table, Toml, merged
from gpuhook.settings.tokens import NotToml
from gpuhook.value import Value


class Conf(Value):
    """Files in the order in which they count, and what they mean together."""

    files: tuple[tuple[Seen, Toml], ...]
    table: Table

    def last_with(self, path: tuple[str, ...]) -> Seen | None:
        """The last file that has this table."""
        return next((seen for seen, toml in reversed(self.files) if toml.at(*path) is not None), None)

    def texts(self, *path: str, usual: tuple[str, ...]) -> tuple[str, ...]:
        """The list of texts at this path. usual: what it is where no file says anything.

        A later file's list replaces an earlier one, or goes on with it where it holds `{append=true}`
        (containers.conf(5)).
        """
        texts = list(usual)
        for _, toml in self.files:
            found = toml.at(*path)
            if isinstance(found, list):
                goes_on = {"append": True} in found
                texts = [*(texts if goes_on else ()), *(item for item in found if isinstance(item, str))]
        return tuple(dict.fromkeys(texts)) or usual


def read(host: Host, patterns: tuple[str, ...], error: type[GpuhookError]) -> Conf:
    """The files at these places, those that match one pattern by name. Raises `error` with the line."""
    seens = [host.read(path) for pattern in patterns for path in host.files(pattern)]
    files = tuple((seen, parsed(seen, error)) for seen in seens)
    table: Table = {}
    for _, toml in files:
        table = merged(table, toml.table)
    return Conf(files=files, table=table)


def parsed(seen: Seen, error: type[GpuhookError]) -> Toml:
    """A file's TOML. Raises `error` with the line."""
    try:
        return Toml(seen.text)
    except (NotToml, UnicodeDecodeError) as fault:
        line = fault.line if isinstance(fault, NotToml) else (seen.data or b"").count(b"\n", 0, fault.start) + 1
        why = str(fault) if isinstance(fault, NotToml) else "it is not UTF-8"
        raise error(
            f"{seen.path} cannot be used: line {line}: {why}",
            where=f"{seen.path}:{line}",
            hint="correct it; gpuhook has not changed the file",
        ) from None


def with_keys(seen: Seen, keys: dict[tuple[str, ...], object], error: type[GpuhookError]) -> str:
    """A file's text with these keys in it. Raises `error` where its tables have a form that cannot be added to."""
    toml = parsed(seen, error)
    text, meant = toml.text, toml.table
    try:
        for path, value in keys.items():
            if tomledit.at(meant, path) != value:
                text = tomledit.with_key(text, path[:-1], path[-1], value)
            meant = merged(meant, tomledit.nested(path, value))
        means = Toml(text).table
    except NotToml:
        means = {}
    if means != meant:
        lines = "; ".join(f"{'.'.join(path)} = {tomledit.written(value)}" for path, value in keys.items())
        raise error(f"{seen.path} has its tables in a form that gpuhook does not change: {lines}", where=seen.path)
    return toml.whole(text)


def without_keys(text: str, _path: str, runtime: str, _previous: str) -> str:
    """An edited file's text without the tables and keys of this runtime."""
    toml = Toml(text)
    left = toml.text
    tables: list[tuple[str, ...]] = [("crio", "runtime", "runtimes", runtime), ("engine", "runtimes", runtime)]
    defaults: list[tuple[str, ...]] = [("crio", "runtime", "default_runtime"), ("engine", "runtime")]
    for path in (*tables, *(path for path in defaults if toml.at(*path) == runtime)):
        left = tomledit.without(left, path)
    return toml.whole(left)
