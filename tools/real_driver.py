"""Fetches NVIDIA's real user-space packages from Debian's non-free component: python -m tools.real_driver.

Nothing of the system changes: apt runs with a configuration, lists and a cache of its own, packages are unpacked into
a folder and never installed, and their scripts are not run. Where packages come from is read from this machine's own
apt sources. What was fetched stays in the user's cache folder, so that it is fetched once.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COMPONENTS = "contrib non-free non-free-firmware"
SERIES = re.compile(r"nvidia-graphics-drivers(-tesla(-\d+)?|-legacy-\d+xx)?")
LIBCUDA = re.compile(r"libcuda1|libnvidia-.*-cuda1")
UNWANTED = re.compile(r"-kernel-|-dkms$|^xserver-|-legacy-check$|nvidia-detect$")  # nothing that a container could get
COMPANIONS = re.compile(r"nvidia-(persistenced|(egl|vulkan|opencl)-common)|libnvidia-egl-.*")  # of every series
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


@dataclass(frozen=True)
class Generation:
    """An unpacked driver: version, series ("nvidia-graphics-drivers-tesla-470"), its folder, its packages."""

    version: str
    series: str
    folder: str
    packages: tuple[str, ...]

    @property
    def root(self) -> str:
        """The tree of all its packages together, as it is: without links that scripts make, without caches."""
        return f"{self.folder}/root"

    @property
    def slot(self) -> str:
        """What Debian calls the folders of this series: "current" or "tesla-470"."""
        return self.series.removeprefix("nvidia-graphics-drivers").lstrip("-") or "current"


class CannotFetch(Exception):
    """The text says why there are no drivers to be had."""


def cache_folder() -> Path:
    """Where everything is kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "gpuhook-real-driver"


def ready(cache: Path | None = None) -> list[Generation]:
    """The generations that lie unpacked in the cache, newest first."""
    places = {
        about.parent: json.loads(about.read_text()) for about in (cache or cache_folder()).glob(f"[!.]*/{ABOUT}")
    }
    found = [Generation(f["version"], f["series"], str(at), tuple(f["packages"])) for at, f in places.items()]
    return sorted(found, key=lambda generation: _key(generation.version), reverse=True)


def fetch(cache: Path, suites: Sequence[str] = (), *, renew: bool = False) -> list[Generation]:
    """At least two generations, fetched where the cache has not got them. suites: more than this machine's own.

    Raises CannotFetch.
    """
    stamp, wanted = cache / "stamp", json.dumps(list(suites))
    fresh = stamp.exists() and stamp.read_text() == wanted and time.time() - stamp.stat().st_mtime < FRESH
    if fresh and not renew and len(ready(cache)) > 1:
        return ready(cache)
    apt = Apt(cache / "apt", suites)
    try:
        chosen = choose(apt.update_and_list(), every=bool(suites))
    except CannotFetch as error:
        if len(ready(cache)) > 1:  # without the network, what we have will do
            say(f"{error}; going on with what was fetched before")
            return ready(cache)
        raise
    for packages in chosen:
        if packages[0].upstream not in {generation.version for generation in ready(cache)}:
            unpack(apt, packages, cache)
    keep = {packages[0].upstream for packages in chosen}
    for generation in ready(cache):
        if generation.version not in keep:
            shutil.rmtree(generation.folder)
    stamp.write_text(wanted)
    return ready(cache)


class Apt:
    """apt with a private configuration: this machine's mirrors, other components, two architectures."""

    def __init__(self, folder: Path, suites: Sequence[str]) -> None:
        self.folder = folder
        self.suites = suites
        self.native = _output("dpkg", "--print-architecture").strip()
        self.architectures = [self.native, *([NARROW[self.native]] if self.native in NARROW else [])]

    def update_and_list(self) -> list[Package]:
        """All packages on offer, each in the version that apt would take. Raises CannotFetch."""
        self._configure()
        done = self._run("apt-get", "update", "-qq", capture=True)
        offered = list(_stanzas(self._run("apt-cache", "dumpavail", capture=True).stdout))
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
        places += [(uri, suite) for uri in sorted(main) for suite in self.suites]
        if not places:
            raise CannotFetch("this machine's apt has no source of Debian packages")
        keyring = next((f"Signed-By: {path}\n" for path in KEYRINGS if os.path.exists(path)), "")
        for uri, suite in places:
            yield f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {COMPONENTS}\n{keyring}"


def _is_debian(component: str, origin: str) -> bool:
    """The origin is known once there are lists; before, every source with the component `main` is tried."""
    return component == "main" and (origin == "Debian" or origin.startswith("$"))


def choose(packages: Sequence[Package], *, every: bool = False) -> list[list[Package]]:
    """The packages of the newest driver branch and of the oldest one; every: of those between as well.

    Raises CannotFetch where there is only one branch.
    """
    drivers: dict[str, list[Package]] = {}
    for package in packages:
        if SERIES.fullmatch(package.source) and not UNWANTED.search(package.name):
            drivers.setdefault(package.source, []).append(package)
    branches: dict[str, list[Package]] = {}
    for found in sorted(drivers.values(), key=lambda found: _key(_version(found))):
        if any(LIBCUDA.fullmatch(package.name) for package in found):
            branches[_version(found).partition(".")[0]] = found
    if len(branches) < 2:
        raise CannotFetch(f"there are not two driver generations on offer, only {sorted(branches) or 'none'}")
    companions = [package for package in packages if COMPANIONS.fullmatch(package.name)]
    order = sorted(branches, key=int, reverse=True)
    picked = order if every else [order[0], order[-1]]
    return [list(dict.fromkeys([*_of_one_version(branches[branch]), *companions])) for branch in picked]


def _version(packages: Sequence[Package]) -> str:
    """The driver version of a series: its libcuda's."""
    return next((package.upstream for package in packages if LIBCUDA.fullmatch(package.name)), packages[0].upstream)


def _of_one_version(packages: Sequence[Package]) -> list[Package]:
    """Those of the series' version; transitional packages may be older. The driver's own come first."""
    return [package for package in packages if package.upstream == _version(packages)]


def unpack(apt: Apt, packages: Sequence[Package], cache: Path) -> None:
    """Fetch a generation and unpack it beside its final place, which it takes when it is whole."""
    version = packages[0].upstream
    say(f"driver {version}: fetching {len(packages)} packages, {sum(p.size for p in packages) >> 20} MiB ...")
    partial = cache / f".{version}.part"
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "packages").mkdir(parents=True)
    apt.download(packages, partial / "packages")
    say(f"driver {version}: unpacking ...")
    for file in sorted((partial / "packages").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(file), str(partial / "root")], check=True)
    shutil.rmtree(partial / "packages")
    about = {
        "version": version,
        "series": packages[0].source,
        "packages": [f"{package.name}:{package.architecture}={package.version}" for package in packages],
    }
    (partial / ABOUT).write_text(json.dumps(about, indent=1))
    shutil.rmtree(cache / version, ignore_errors=True)
    partial.rename(cache / version)


def _stanzas(text: str) -> Iterator[Package]:
    """The packages in apt's list."""
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))
        if {"Package", "Version", "Architecture", "Size"} <= fields.keys():
            name, version, size = fields["Package"], fields["Version"], int(fields["Size"])
            source = str(fields.get("Source", name)).partition(" ")[0]
            yield Package(name, source, version, fields["Architecture"], size)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: fetches what is missing and prints what there is."""
    parser = argparse.ArgumentParser(description="Fetch real NVIDIA user-space drivers, without installing them.")
    parser.add_argument("--suite", action="append", default=[], help="take every branch of another suite too, as sid")
    parser.add_argument("--renew", action="store_true", help="ask for newer packages now")
    options = parser.parse_args(arguments)
    if not shutil.which("apt-get"):
        say("real drivers come from Debian's packages, and this machine has no apt-get")
        return 1
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would fetch twice
        try:
            found = fetch(cache, options.suite, renew=options.renew)
        except (CannotFetch, subprocess.CalledProcessError) as error:
            say(f"no real drivers: {error}")
            return 1
    for generation in found:
        print(f"driver {generation.version} ({generation.slot}) in {generation.root}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
