"""What is installed of the driver, kept from start to start: searching for it costs more than all the rest.

The snapshot holds for as long as nothing that a change of packages touches has changed (`inventory.identity`).
"""

from __future__ import annotations

import time

from gpuhook.driver.inventory import find_installed, identity
from gpuhook.driver.model import Host, Installed, Library
from gpuhook.settings import snapshot

NAME = "driver"
SECOND = 1_000_000_000


def installed(host: Host, path: str = "", *, folder: str = "") -> Installed:
    """What `find_installed` gives, from the snapshot where it still holds; folder: another place for it, for tests.

    Raises what find_installed raises.
    """
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
    kept["libraries"] = [[getattr(library, name) for name in Library.fields()] for library in value.libraries]
    return kept


def from_kept(kept: dict[str, object]) -> Installed | None:
    """The value again; None where it is not of the form that `to_keep` gives."""
    lists = [kept.get(name) for name in ("binaries", "firmware", "missing", "libraries")]
    version = kept.get("driver_version")
    if not isinstance(version, str):
        return None
    texts = [tuple(part for part in parts if isinstance(part, str)) for parts in lists[:3] if isinstance(parts, list)]
    rows = lists[3] if isinstance(lists[3], list) else []
    if len(texts) < 3 or not all(isinstance(row, list) and len(row) == len(Library.fields()) for row in rows):
        return None
    libraries = tuple(Library(**dict(zip(Library.fields(), row, strict=True))) for row in rows)
    binaries, firmware, missing = texts
    return Installed(
        driver_version=version, libraries=libraries, binaries=binaries, firmware=firmware, missing=missing
    )
