"""Our programs as files of a machine: launchers in a folder of its PATH, under our names and NVIDIA's."""

from __future__ import annotations

import os
from importlib.util import find_spec

from gpuhook.install.change import Change
from gpuhook.install.engine import Wish
from gpuhook.install.errors import ForeignFile
from gpuhook.install.host import Host, Seen
from gpuhook.launchers import ENTRIES, MARK, NVIDIA_NAMES, RUNTIME, text_for

KIND = "program"
HEAD = 4096  # bytes in which a launcher's mark is


def names(*, nvidia: bool) -> tuple[str, ...]:
    """The programs that this gpuhook has; nvidia: also under NVIDIA's names."""
    ours = [name for name, entry in ENTRIES.items() if find_spec(entry)] + [RUNTIME]
    return (*sorted(ours), *(name for name, of in NVIDIA_NAMES.items() if nvidia and of in ours))


def is_ours(data: bytes | None) -> bool:
    """Whether a file's content is a launcher of ours."""
    return MARK.encode() in (data or b"")[:HEAD]


def is_ours_at(host: Host, path: str) -> bool:
    """Whether the program at this path is a launcher of ours, links followed."""
    try:
        with open(host.real(path), "rb") as file:
            return is_ours(file.read(HEAD))
    except OSError:
        return False


def plan(wish: Wish, engine: str) -> tuple[Change, ...]:
    """What puts the wish's programs into its folder. Raises ForeignFile where something else stands there."""
    return tuple(_change(wish, engine, name) for name in wish.names)


def _change(wish: Wish, engine: str, name: str) -> Change:
    seen = wish.host.read_name(f"{wish.folder}/{name}")
    if seen.data is not None and not wish.force and not is_ours(seen.data) and not _is_console_script(seen):
        raise ForeignFile(
            f"{seen.path} exists and is not gpuhook's",
            where=seen.path,
            hint="--force keeps it aside until uninstall; --bin FOLDER takes another folder",
        )
    text = text_for(name, lambda path: seen_inside(wish.host, path))
    about = f"program {name}" + (f", which is {NVIDIA_NAMES[name]}" if name in NVIDIA_NAMES else "")
    return Change(engine=engine, kind=KIND, seen=seen, after=text.encode(), about=about, program=True, mode=0o755)


def _is_console_script(seen: Seen) -> bool:
    """Whether it is what pip makes of our own entry point; it comes back at uninstall."""
    head = (seen.data or b"")[:HEAD]
    return os.path.basename(seen.path) == "gpuhook" and head.startswith(b"#!") and b"from gpuhook" in head


def seen_inside(host: Host, path: str) -> str:
    """How the machine names a path of this one: without the root, if it is below that."""
    return host.inside(path) if f"{path}/".startswith(f"{host.root.rstrip('/')}/") else path
