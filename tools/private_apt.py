"""apt with a configuration, lists and a cache of its own: packages are fetched and unpacked, never installed.

Nothing of the system changes, and no script of a package runs. Where packages come from is read from this machine's
own apt sources.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPONENTS = "contrib non-free non-free-firmware"
NARROW = {"amd64": "i386"}
KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp")
FRESH = 7 * 86400  # seconds for which nobody asks whether there is something newer
ABOUT = "about.json"


@dataclass(frozen=True)
class Package:
    """A binary package that apt offers. size: bytes of the download."""

    name: str
    source: str
    version: str
    architecture: str
    size: int

    @property
    def upstream(self) -> str:
        """The driver's version: "535.309.01" of "535.309.01-0+deb12u1"."""
        return self.version.rpartition(":")[2].partition("-")[0]


class CannotFetch(Exception):
    """The text says why there are no drivers to be had."""


def cache_folder(name: str) -> Path:
    """Where everything of this name is kept, so that it is fetched once."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / name


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Make the folder, and hold it alone: two at once would fetch twice."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_fresh(cache: Path, wanted: str) -> bool:
    """Whether just this was asked for here not long ago."""
    stamp = cache / "stamp"
    return stamp.exists() and stamp.read_text() == wanted and time.time() - stamp.stat().st_mtime < FRESH


def unpacked(cache: Path) -> dict[str, dict[str, Any]]:
    """What lies unpacked in the cache: folder → what `unpack` was told about it."""
    return {str(about.parent): json.loads(about.read_text()) for about in cache.glob(f"[!.]*/{ABOUT}")}


def unpack(apt: Apt, packages: Sequence[Package], place: Path, about: Mapping[str, str]) -> None:
    """Fetch packages and unpack them into `root` beside the final place, which that takes when it is whole."""
    say(f"{place.name}: fetching {len(packages)} packages, {sum(p.size for p in packages) >> 20} MiB ...")
    partial = place.with_name(f".{place.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "packages").mkdir(parents=True)
    apt.download(packages, partial / "packages")
    say(f"{place.name}: unpacking ...")
    for file in sorted((partial / "packages").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(file), str(partial / "root")], check=True)
    shutil.rmtree(partial / "packages")
    named = [f"{package.name}:{package.architecture}={package.version}" for package in packages]
    (partial / ABOUT).write_text(json.dumps({**about, "packages": named}, indent=1))
    shutil.rmtree(place, ignore_errors=True)
    partial.rename(place)


class Apt:
    """apt with a private configuration: this machine's mirrors, and there these suites too, and these components.

    narrow: the packages of the 32-bit architecture beside this one as well.
    """

    def __init__(
        self, folder: Path, suites: Sequence[str], components: str = COMPONENTS, *, narrow: bool = True
    ) -> None:
        self.folder, self.suites, self.components = folder, suites, components
        self.native = _output("dpkg", "--print-architecture").strip()
        self.architectures = [self.native, *([NARROW[self.native]] if narrow and self.native in NARROW else [])]

    def update_and_list(self, *names: str) -> list[Package]:
        """All packages on offer, each in the version that apt would take; of these names every version.

        Raises CannotFetch.
        """
        self._configure()
        done = self._run("apt-get", "update", "-qq", capture=True)
        words = ("show", "--all-versions", *names) if names else ("dumpavail",)
        offered = list(_stanzas(self._run("apt-cache", *words, capture=True).stdout))
        if done.returncode and not offered:
            raise CannotFetch(f"apt-get update failed: {done.stderr.strip().splitlines()[-1:]}")
        return offered

    def download(self, packages: Sequence[Package], folder: Path) -> None:
        """Package files into this folder; apt checks them against the signed lists. Raises CannotFetch."""
        names = [f"{package.name}:{package.architecture}={package.version}" for package in packages]
        if self._run("apt-get", "download", "-q", *names, folder=folder).returncode:
            raise CannotFetch("apt-get download failed, see above")

    def _run(
        self, *command: str, folder: Path | None = None, capture: bool = False
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C"}
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=capture,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def _configure(self) -> None:
        """Write it all. Proxies and the like stay as this machine has them; commands that apt would run do not."""
        for name in ("etc", "lists/partial", "archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").write_text("")
        (self.folder / "etc/debian.sources").write_text("\n".join(self._sources()))
        kept = [
            line
            for line in _output("apt-config", "dump").splitlines()
            if not re.match(r".*(Pre-|Post-)(Invoke|Install)|APT::Architectures|Dir::Etc::(main|parts)\b", line)
        ]
        own = {
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": f"{self.folder}/etc",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": f"{self.folder}/lists",
            "Dir::State::status": f"{self.folder}/status",
            "Dir::Cache::archives": f"{self.folder}/archives",
            "APT::Sandbox::User": "root",
        }
        lines = [*kept, *(f'{key} "{value}";' for key, value in own.items())]
        lines += [f'APT::Architectures:: "{name}";' for name in self.architectures]
        (self.folder / "apt.conf").write_text("\n".join([*lines, ""]))

    def _sources(self) -> Iterator[str]:
        """A stanza for each of this machine's sources of Debian, and for each other suite that was asked for."""
        form = "$(COMPONENT)\t$(ORIGIN)\t$(REPO_URI)\t$(RELEASE)"
        rows = [row.split("\t") for row in _output("apt-get", "indextargets", "--format", form).splitlines()]
        places = sorted({(uri, suite) for component, origin, uri, suite in rows if _is_debian(component, origin)})
        main = {uri for uri, suite in places if "-" not in suite}
        more = [(uri, suite) for uri in sorted(main) for suite in self.suites]
        places += [place for place in more if place not in places]
        if not places:
            raise CannotFetch("this machine's apt has no source of Debian packages")
        keyring = next((f"Signed-By: {path}\n" for path in KEYRINGS if os.path.exists(path)), "")
        for uri, suite in places:
            yield f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {self.components}\n{keyring}"


def _is_debian(component: str, origin: str) -> bool:
    """The origin is known once there are lists; before, every source with the component `main` is tried."""
    return component == "main" and (origin == "Debian" or origin.startswith("$"))


def _stanzas(text: str) -> Iterator[Package]:
    """The packages in apt's list."""
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))
        if {"Package", "Version", "Architecture", "Size"} <= fields.keys():
            name, version, size = fields["Package"], fields["Version"], int(fields["Size"])
            source = str(fields.get("Source", name)).partition(" ")[0]
            yield Package(name, source, version, fields["Architecture"], size)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
