"""What is installed of the driver, kept from start to start: searching for it costs more than all the rest.

The snapshot holds for as long as nothing that a change of packages touches has changed (`inventory.identity`).
"""

from __future__ import annotations

import time

from gpuhook.driver.inventory import find_installed, identity
from gpuhook.driver.model import Host, Installed, Library
from gpuhook.driver.version import is_wsl, open_root
from gpuhook.settings import snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "driver"
SECOND = 1_000_000_000


def installed(host: Host, path: str = "", *, folder: str = "") -> Installed | None:
    """What `find_installed` gives, from the snapshot where it still holds; None where it does not apply (WSL2).

    folder: another place for the snapshot, for tests. Raises what find_installed raises.
    """
    with open_root(host) as root:
        if is_wsl(root):
            return None
    mark = identity(host, path)
    key = (repr(mark),)
    kept = snapshot.load(NAME, key, folder=folder)
    value = from_kept(kept) if kept else None
    if value is None:
        value = find_installed(host, path)
        if time.time_ns() - _newest(mark) > 2 * SECOND:  # a folder could still change within its clock's tick
            snapshot.save(NAME, key, to_keep(value), folder=folder)
    return value


def _newest(mark: object) -> int:
    """The latest time in ns anywhere in a mark."""
    if isinstance(mark, tuple):
        return max((_newest(part) for part in mark), default=0)
    return mark if isinstance(mark, int) and mark < time.time_ns() * 2 else 0


def to_keep(value: Installed) -> dict[str, object]:
    """The value as JSON can hold it."""
    kept: dict[str, object] = {name: list(getattr(value, name)) for name in ("binaries", "firmware", "missing")}
    kept["driver_version"] = value.driver_version
    for name in ("libraries", "helpers"):
        rows: tuple[Library, ...] = getattr(value, name)
        kept[name] = [[getattr(library, field) for field in Library.fields()] for library in rows]
    kept["files"] = [list(pair) for pair in value.files]
    return kept


def from_kept(kept: dict[str, object]) -> Installed | None:
    """The value again; None where it is not of the form that `to_keep` gives."""
    lists = [kept.get(name) for name in ("binaries", "firmware", "missing")]
    version = kept.get("driver_version")
    tables = [_rows(kept.get(name), len(Library.fields())) for name in ("libraries", "helpers")]
    files = _rows(kept.get("files"), 2)
    if not isinstance(version, str) or files is None:
        return None
    texts = [tuple(part for part in parts if isinstance(part, str)) for parts in lists if isinstance(parts, list)]
    libraries = [
        tuple(Library(**dict(zip(Library.fields(), row, strict=True))) for row in rows)
        for rows in tables
        if rows is not None
    ]
    if len(texts) < len(lists) or len(libraries) < len(tables):
        return None
    return Installed(
        driver_version=version,
        libraries=libraries[0],
        helpers=libraries[1],
        binaries=texts[0],
        firmware=texts[1],
        missing=texts[2],
        files=tuple((target, place) for target, place in files),
    )


def _rows(value: object, width: int) -> list[list[Any]] | None:
    """A list of lists of this many parts; None for anything else."""
    if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == width for row in value):
        return None
    return value
