"""Asks the installed containerd what it makes of a configuration (decisions.md 29).

Releases merge imported files differently: before 2.0 the last file that mentions a plugin replaced the whole of it,
and a list of runtimes hides the built-in one. So the program itself is asked, with files in a scratch folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile

from gpuhook.install import tomledit
from gpuhook.install.cri import PLUGINS
from gpuhook.install.tomledit import Raw, Table, Toml, at
from gpuhook.note import note
from gpuhook.settings.tokens import NotToml

LONGEST = 20  # seconds
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class Containerd:
    """A containerd program. path: "" for none: then nothing is known.

    root: of the machine whose files it is asked about; folder: where relative imports begin, as that machine names it.
    """

    def __init__(self, path: str, root: str, folder: str) -> None:
        self.path, self._folder = path, root.rstrip("/") + "/" + folder.strip("/")
        self._root = root.rstrip("/")

    def major(self) -> int:
        """The first number of its version, 0 where it is not known."""
        found = re.search(r"\sv?(\d+)\.\d+", self._output("--version"))
        return int(found[1]) if found else 0

    def reads(self, text: str, *, extra: str = "") -> Table | None:
        """The configuration that comes of a main file of this text, imports included; None where it cannot be had.

        extra: the text of one more file, imported last.
        """
        if not self.path:
            return None
        with tempfile.TemporaryDirectory(prefix="gpuhook-") as scratch:
            main = os.path.join(scratch, "main.toml")
            imports = self._imports(text)
            if extra:
                _put(os.path.join(scratch, "extra.toml"), extra)
                imports = [*imports, os.path.join(scratch, "extra.toml")]
            _put(main, tomledit.with_key(text, (), "imports", imports) if imports else text)
            dump = self._output("--config", main, "config", "dump")
        try:
            return Toml(dump).table or None
        except NotToml as fault:
            note(f"containerd config dump cannot be read: {fault}")
            return None

    def _imports(self, text: str) -> list[object]:
        """The imports of a main file as this machine names them: its scratch copy lies elsewhere."""
        found = Toml(text).at("imports")
        names = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
        return [f"{self._root}{name}" if name.startswith("/") else f"{self._folder}/{name}" for name in names]

    def _output(self, *words: str) -> str:
        if not self.path:
            return ""
        try:
            done = subprocess.run(
                [self.path, *words], capture_output=True, check=False, timeout=LONGEST, env=ENVIRONMENT, cwd="/"
            )
        except (OSError, subprocess.TimeoutExpired) as fault:
            note(f"{self.path} cannot be asked: {fault}")
            return ""
        if done.returncode:
            note(f"{self.path} {words[-1]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _put(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def lost(before: Table, after: Table, but: tuple[str, ...]) -> str:
    """The first key that had a value before and has another one after, "" for none. but: keys that may differ."""
    return next((found for name in before if name not in but and (found := _lost(before, after, name, but))), "")


def _lost(before: Table, after: Table, name: str, but: tuple[str, ...]) -> str:
    old, new = before[name], after.get(name)
    if isinstance(old, dict) and isinstance(new, dict):
        below = lost(old, new, but)
        return f"{name}.{below}" if below else ""
    return "" if old == new or (new is None and _is_nothing(old)) else name


def _is_nothing(value: object) -> bool:
    """Whether a value is what containerd takes for one that is not given."""
    if isinstance(value, dict):
        return all(_is_nothing(item) for item in value.values())
    return value in ("", False, []) or value == Raw(text="0")


def has_runtime(dump: Table, name: str, program: str) -> bool:
    """Whether a dump, in whatever version it is, has this runtime with this program."""
    version = dump.get("version")
    plugin = PLUGINS.get(int(version.text) if isinstance(version, Raw) and version.text.isdigit() else 2, PLUGINS[3])
    return at(dump, (*plugin, "containerd", "runtimes", name, "options", "BinaryName")) == program
