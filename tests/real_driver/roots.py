"""Driver roots made of real packages, and what those packages ship, told without our own code."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fixtures.driver import kernel_view
from fixtures.driver.model import default_gpu
from gpuhook.driver.machine import this_machine
from gpuhook.driver.model import Host
from gpuhook.driver.tables import stem_of
from tools.real_driver import Generation

LAYOUTS = ("unpacked", "cache", "alternatives", "side by side")
TRIPLETS = [triplet for triplet in this_machine().triplets if triplet]
GPUS = (default_gpu(0), default_gpu(1))


@dataclass(frozen=True)
class Shipped:
    """A shared library of the packages, as readelf sees it. path: in the root."""

    path: str
    stem: str
    bits: int
    soname: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class Real:
    """A driver root.

    layout: "unpacked" (packages as they are: no links, no cache), "cache" (the loader's cache made of the series' own
    folders), "alternatives" (links and cache as Debian's scripts make them), "side by side" (a second series is
    installed as well, and all links and the cache lead to that one).
    """

    generation: Generation
    layout: str
    root: str

    @property
    def version(self) -> str:
        """The driver's version."""
        return self.generation.version

    @property
    def host(self) -> Host:
        """The engine's view."""
        return Host(driver_root=self.root, proc=f"{self.root}/proc", sys=f"{self.root}/sys")


def make(generation: Generation, layout: str, folder: Path, other: Generation) -> Real:
    """A root below this folder, which is of the same file system: files are hard links. other: another series."""
    root = folder / f"{generation.version}-{layout.replace(' ', '-')}"
    shutil.copytree(generation.root, root, symlinks=True, copy_function=os.link)
    if layout == "cache":
        slot = f"nvidia/{generation.slot}"
        _index(root, [f"/usr/lib/{triplet}{place}" for triplet in TRIPLETS for place in (f"/{slot}", "")])
    elif layout == "alternatives":
        _link(root, generation)
    elif layout == "side by side":
        _add(root, other)
        _link(root, other)
    _add_kernel(str(root), generation.version)
    return Real(generation, layout, str(root))


def _add(root: Path, other: Generation) -> None:
    """Another series' files; what both have stays as it is."""

    def there(folder: str, names: list[str]) -> list[str]:
        place = root / os.path.relpath(folder, other.root)
        return [name for name in names if os.path.lexists(place / name) and not (place / name).is_dir()]

    shutil.copytree(other.root, root, symlinks=True, copy_function=os.link, ignore=there, dirs_exist_ok=True)


def _link(root: Path, generation: Generation) -> None:
    """What update-alternatives does: each name leads over /etc/alternatives into the series' own folder."""
    (root / "etc/alternatives").mkdir(parents=True)
    for triplet in TRIPLETS:
        _link_names(root, f"/usr/lib/{triplet}/nvidia/{generation.slot}", f"/usr/lib/{triplet}", f"-{triplet}")
    _link_names(root, f"/usr/lib/nvidia/{generation.slot}", "/usr/bin", "")
    _index(root, [f"/usr/lib/{triplet}" for triplet in TRIPLETS])


def _link_names(root: Path, source: str, target: str, mark: str) -> None:
    for path in sorted((root / source.lstrip("/")).glob("*")) if (root / source.lstrip("/")).is_dir() else []:
        place = root / target.lstrip("/") / path.name
        if (path.is_symlink() or not mark) and not os.path.lexists(place):
            middle = f"/etc/alternatives/nvidia--{path.name}{mark}"
            os.symlink(f"{source}/{path.name}", f"{root}{middle}")
            os.symlink(middle, place)


def _index(root: Path, folders: list[str]) -> None:
    """The loader's cache, by this machine's ldconfig."""
    (root / "etc/ld.so.conf").write_text("".join(f"{name}\n" for name in folders if (root / name[1:]).is_dir()))
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True, capture_output=True, env={})


def _add_kernel(root: str, version: str) -> None:
    """The kernel's side, from the fixtures: two GPUs."""
    majors = {name: number for name, number in kernel_view.MAJORS.items() if "caps" not in name}
    kernel_view.proc_driver(f"{root}/proc", version, GPUS)
    kernel_view.write(f"{root}/proc/devices", kernel_view.devices_text(majors))
    kernel_view.make_nodes(root, kernel_view.node_table(GPUS, majors))


def shipped(generation: Generation) -> list[Shipped]:
    """Every shared library among the packages' files, links left out."""
    paths = sorted(Path(generation.root, "usr/lib").rglob("*.so*"))
    return [_describe(path, generation.root) for path in paths if path.is_file() and not path.is_symlink()]


def _describe(path: Path, root: str) -> Shipped:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    command = ["readelf", "--file-header", "--dynamic", "--wide", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    names: dict[str, list[str]] = {"SONAME": [], "NEEDED": []}
    for line in text.splitlines():
        for kind, found in names.items():
            if f"({kind})" in line:
                found.append(line.partition("[")[2].rstrip("]"))
    bits = 64 if "ELF64" in text else 32
    soname = (names["SONAME"] or [""])[0]
    return Shipped(str(path).removeprefix(root), stem_of(path.name), bits, soname, tuple(names["NEEDED"]))
