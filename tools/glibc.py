"""Fetches the C library of several Debian releases, with its ldconfig: python -m tools.glibc.

Nothing of the system changes (tools/private_apt.py). What was fetched stays in the user's cache folder, so that it is
fetched once.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import private_apt
from tools.private_apt import Apt, CannotFetch, Package, is_fresh, locked, say, unpack, unpacked

# From before and after 2.33, which brought glibc-hwcaps.
SUITES = ("bullseye", "bookworm", "trixie", "sid")
NAMES = ("libc6", "libc-bin", "libc6-i386")  # the last: the 32-bit one, where this machine has such


@dataclass(frozen=True)
class Glibc:
    """An unpacked C library: version ("2.31"), and its folder."""

    version: str
    folder: str

    @property
    def root(self) -> str:
        """The tree of its packages, as they ship it: without the links of a merged /usr, without a cache."""
        return f"{self.folder}/root"

    @property
    def number(self) -> tuple[int, ...]:
        """The version in a form that has an order."""
        return tuple(int(part) for part in self.version.split(".") if part.isdecimal())


def cache_folder() -> Path:
    """Where everything is kept."""
    return private_apt.cache_folder("gpuhook-glibc")


def ready(cache: Path | None = None) -> list[Glibc]:
    """Those that lie unpacked in the cache, oldest first."""
    found = [Glibc(about["version"], at) for at, about in unpacked(cache or cache_folder()).items()]
    return sorted(found, key=lambda glibc: glibc.number)


def fetch(cache: Path, *, renew: bool = False) -> list[Glibc]:
    """At least two versions, fetched where the cache has not got them. Raises CannotFetch."""
    wanted = " ".join(SUITES)
    if is_fresh(cache, wanted) and not renew and len(ready(cache)) > 1:
        return ready(cache)
    apt = Apt(cache / "apt", SUITES, "main", narrow=False)
    try:
        chosen = choose(apt.update_and_list(*NAMES))
    except CannotFetch as error:
        if len(ready(cache)) > 1:  # without the network, what we have will do
            say(f"{error}; going on with what was fetched before")
            return ready(cache)
        raise
    there = {glibc.version for glibc in ready(cache)}
    for packages in chosen:
        version = packages[0].upstream
        if version not in there:
            unpack(apt, packages, cache / version, {"version": version})
    (cache / "stamp").write_text(wanted)
    return ready(cache)


def choose(packages: Sequence[Package]) -> list[list[Package]]:
    """Of each upstream version the packages of one Debian version. Raises CannotFetch for fewer than two."""
    offered: dict[str, list[Package]] = {}
    for package in packages:
        if package.name in NAMES:
            offered.setdefault(package.version, []).append(package)
    whole: dict[str, list[Package]] = {}
    for found in offered.values():
        if {"libc6", "libc-bin"} <= {package.name for package in found}:
            whole.setdefault(found[0].upstream, found)  # apt names the newest first
    if len(whole) < 2:
        raise CannotFetch(f"there are not two versions of glibc on offer, only {sorted(whole) or 'none'}")
    return [sorted(each, key=lambda package: NAMES.index(package.name)) for each in whole.values()]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: fetches what is missing and prints what there is."""
    parser = argparse.ArgumentParser(description="Fetch glibc of several Debian releases, without installing it.")
    parser.add_argument("--renew", action="store_true", help="ask for newer packages now")
    options = parser.parse_args(arguments)
    if not shutil.which("apt-get"):
        say("other releases' C libraries come from Debian's packages, and this machine has no apt-get")
        return 1
    cache = cache_folder()
    try:
        with locked(cache):
            found = fetch(cache, renew=options.renew)
    except (CannotFetch, subprocess.CalledProcessError) as error:
        say(f"no other C libraries: {error}")
        return 1
    for glibc in found:
        print(f"glibc {glibc.version} in {glibc.root}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
