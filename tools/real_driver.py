"""Fetches NVIDIA's real user-space packages from Debian's non-free component: python -m tools.real_driver.

Nothing of the system changes (tools/private_apt.py). What was fetched stays in the user's cache folder, so that it is
fetched once.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import private_apt
from tools.private_apt import Apt, CannotFetch, Package, is_fresh, locked, say, unpack, unpacked

SERIES = re.compile(r"nvidia-graphics-drivers(-tesla(-\d+)?|-legacy-\d+xx)?")
LIBCUDA = re.compile(r"libcuda1|libnvidia-.*-cuda1")
UNWANTED = re.compile(r"-kernel-|-dkms$|^xserver-|-legacy-check$|nvidia-detect$")  # nothing that a container could get
COMPANIONS = re.compile(r"nvidia-(persistenced|(egl|vulkan|opencl)-common)|libnvidia-egl-.*")  # of every series


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


def cache_folder() -> Path:
    """Where everything is kept."""
    return private_apt.cache_folder("gpuhook-real-driver")


def ready(cache: Path | None = None) -> list[Generation]:
    """The generations that lie unpacked in the cache, newest first."""
    places = unpacked(cache or cache_folder())
    found = [Generation(f["version"], f["series"], at, tuple(f["packages"])) for at, f in places.items()]
    return sorted(found, key=lambda generation: _key(generation.version), reverse=True)


def fetch(cache: Path, suites: Sequence[str] = (), *, renew: bool = False) -> list[Generation]:
    """At least two generations, fetched where the cache has not got them. suites: more than this machine's own.

    Raises CannotFetch.
    """
    wanted = json.dumps(list(suites))
    if is_fresh(cache, wanted) and not renew and len(ready(cache)) > 1:
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
            about = {"version": packages[0].upstream, "series": packages[0].source}
            unpack(apt, packages, cache / packages[0].upstream, about)
    keep = {packages[0].upstream for packages in chosen}
    for generation in ready(cache):
        if generation.version not in keep:
            shutil.rmtree(generation.folder)
    (cache / "stamp").write_text(wanted)
    return ready(cache)


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


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


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
    try:
        with locked(cache):
            found = fetch(cache, options.suite, renew=options.renew)
    except (CannotFetch, subprocess.CalledProcessError) as error:
        say(f"no real drivers: {error}")
        return 1
    for generation in found:
        print(f"driver {generation.version} ({generation.slot}) in {generation.root}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
