"""The driver's libraries: those of exactly the running module's version, chosen as the loader would choose them.

First the driver root's own loader cache, then the usual folders for what the cache does not know. Nothing is
believed: every file is resolved inside the driver root, must be a regular file and an ELF file of this machine.
"""

from __future__ import annotations

import posix

from gpuhook.driver import tables
from gpuhook.driver.machine import Machine, this_machine
from gpuhook.driver.model import Library
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.files import is_regular, kind
from gpuhook.loader.cache import LIMIT as CACHE_LIMIT
from gpuhook.loader.cache import BadCache, parse
from gpuhook.loader.elf import BadElf, Elf, read_elf

_TLS, _TLS_ABI = "libnvidia-tls.so", (2, 3, 99)
_MOST_DEAD = 20  # stale entries that are worth a line each


class Unfit(Exception):  # caught within the room, never shown as it is
    """A file that cannot be the library that was looked for; the text says why. other: it is of another version."""

    def __init__(self, text: str, *, other: bool = False) -> None:
        super().__init__(text)
        self.other = other


def find_libraries(
    root: Root, ldcache: str, version: str, machine: Machine | None = None
) -> tuple[tuple[Library, ...], tuple[str, ...]]:
    """The libraries of this version, 64-bit ones in table order, then 32-bit ones; and what is missing, with why.

    ldcache: the loader cache's path inside the root; machine: whose libraries, by default this machine's.
    Raises DriverMismatch where only another version of libcuda or libnvidia-ml is installed, DriverLibsMissing where
    neither of the two is, NotCovered on a machine without NVIDIA drivers.
    """
    search = Search(root, version, machine or this_machine())
    search.ask_cache(ldcache)
    search.look_into_folders()
    search.look_beside_libcuda()
    search.demand_core()
    return search.chosen(), tuple(search.missing)


def find_helpers(root: Root, version: str, machine: Machine | None = None) -> tuple[Library, ...]:
    """The libraries of tables.EGL_HELPERS, of any version, as their SONAME links in the usual folders lead to them."""
    search = Search(root, version, machine or this_machine())
    for folder in search.folders():
        for stem in tables.EGL_HELPERS:
            search.look_for_helper(stem, f"{folder}/{stem}.1")
    order = [(stem, bits) for bits in (64, 32) for stem in tables.EGL_HELPERS]
    return tuple(search.found[slot] for slot in order if slot in search.found)


class Search:
    """A search under way: what was found so far, by stem and bits."""

    def __init__(self, root: Root, version: str, machine: Machine) -> None:
        self.root, self.version, self.machine = root, version, machine
        self.found: dict[tuple[str, int], Library] = {}
        self.missing: list[str] = []
        self.others: dict[str, str] = {}  # path to stem: native libraries of another version
        self.dead = 0
        self.vouched = ""  # the one path that need not end with the version

    def ask_cache(self, ldcache: str) -> None:
        """Take the first acceptable entry of each name, as the loader does; entries for special CPUs come last."""
        try:
            entries = parse(self.root.read(ldcache, CACHE_LIMIT)[0]).entries
        except FileNotFoundError:
            self.missing.append(f"{ldcache}: the loader's cache does not exist; the usual folders were searched")
            return
        except (OSError, BadCache) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.missing.append(f"{ldcache}: not usable as a loader's cache ({why}); the usual folders were searched")
            return
        wanted = dict.fromkeys(tables.STEMS)
        known = [(tables.stem_of(name), path, flags, hwcap) for name, path, flags, _version, hwcap in entries]
        for special in (False, True):
            for stem, path, flags, hwcap in known:
                if stem in wanted and bool(hwcap) == special and (bits := self.machine.bits(flags)):
                    self._take_cached(stem, path, bits)
        if self.dead > _MOST_DEAD:
            self.missing.append(f"ldcache-stale: {self.dead - _MOST_DEAD} more entries lead nowhere")

    def _take_cached(self, stem: str, path: str, bits: int) -> None:
        if (stem, bits) in self.found:
            return
        try:
            self._take(stem, path, bits)
        except FileNotFoundError:
            self.dead += 1
            if self.dead <= _MOST_DEAD:
                self.missing.append(f"ldcache-stale: {path} is in the loader's cache and gone; run ldconfig")

    def look_into_folders(self) -> None:
        """Look for what the cache did not have, by its full name, in each folder that exists."""
        for folder in self.folders():
            for stem in tables.STEMS:
                if (stem, 64) not in self.found or (stem, 32) not in self.found:
                    self._take_beside(stem, folder)

    def _take_beside(self, stem: str, folder: str) -> None:
        places = (folder, f"{folder}/{tables.SUBFOLDERS[stem]}") if stem in tables.SUBFOLDERS else (folder,)
        for place in places:
            try:
                self._take(stem, f"{place}/{stem}.{self.version}", 0)
                return
            except FileNotFoundError:  # noqa: PERF203  # the usual case
                continue

    def look_for_helper(self, stem: str, path: str) -> None:
        """Note the library that this link leads to, if there is one; it has a version of its own."""
        try:
            self.vouched = self.root.resolve(path)
            self._take(stem, path, 0)
        except OSError:  # the usual case
            pass
        self.vouched = ""

    def look_beside_libcuda(self) -> None:
        """Take files that do not bear the version: the driver's other libraries stand surety for them."""
        for stem, name in tables.UNVERSIONED.items():
            for bits in (64, 32):
                libcuda = self.found.get(("libcuda.so", bits))
                if libcuda and (stem, bits) not in self.found:
                    self._vouch_for(stem, f"{libcuda.path.rpartition('/')[0]}/{name}", bits)

    def _vouch_for(self, stem: str, path: str, bits: int) -> None:
        self.vouched = path
        try:
            self._take(stem, path, bits)
        except FileNotFoundError:  # the usual case
            pass
        self.vouched = ""

    def folders(self) -> list[str]:
        """The search folders that exist, each real folder once, best first."""
        seen: dict[tuple[int, int], str] = {}
        for folder in tables.library_folders(self.machine.triplets, self.version):
            try:
                status = self.root.stat(folder)
            except OSError:  # most of them are another distribution's
                continue
            seen.setdefault((status.st_dev, status.st_ino), folder)
        return list(seen.values())

    def _take(self, stem: str, path: str, bits: int) -> None:
        """Note this file as the library where it is fit and wanted. bits 0: as it says itself."""
        try:
            library = self._judge(stem, path, bits)
        except FileNotFoundError:
            raise
        except Unfit as unfit:
            if not unfit.other:
                self.missing.append(f"{path}: {unfit}")
        except OSError as error:
            self.missing.append(f"{path}: {error.strerror}")
        else:
            self.found.setdefault((stem, library.bits), library)

    def _judge(self, stem: str, path: str, bits: int) -> Library:
        """The library at this path. Raises Unfit, OSError."""
        fd = self.root.open(path)
        try:
            mode = posix.fstat(fd).st_mode
            if not is_regular(mode):
                raise Unfit(f"it is {kind(mode)}, not a regular file")
            real = self.root.path_of(fd)
            self._check_name(stem, real, bits)
            elf = self._elf(fd)
        finally:
            posix.close(fd)
        if not self.machine.runs(elf.machine, elf.bits) or bits not in (0, elf.bits):
            raise Unfit(f"it is {elf.bits}-bit code for machine {elf.machine}")
        if stem == _TLS and elf.abi not in (None, _TLS_ABI):  # the variant for threads of Linux 2.4
            raise Unfit(f"its ABI note asks for Linux {elf.abi}, not {_TLS_ABI}")
        name = real.rpartition("/")[2]
        # Only a name of its own: a SONAME such as libc.so.6 would replace the container's C library.
        fit = elf.soname.startswith(f"{stem}.") and "/" not in elf.soname and elf.soname.isprintable()
        return Library(stem=stem, path=real, soname=elf.soname if fit else name, bits=elf.bits)

    def _check_name(self, stem: str, real: str, bits: int) -> None:
        name = real.rpartition("/")[2]
        if not name.startswith(f"{stem}."):
            raise Unfit(f"it leads to {real}, another name")
        if not name.endswith(f".{self.version}") and real != self.vouched:
            if bits == 64:
                self.others[real] = stem
            raise Unfit(f"it is not of version {self.version}", other=True)

    def _elf(self, fd: int) -> Elf:
        reading = self.root.reopen(fd)
        try:
            return read_elf(reading)
        except BadElf as error:
            raise Unfit(f"it is no shared library: {error}") from None
        finally:
            posix.close(reading)

    def demand_core(self) -> None:
        """Refuse a driver without its core: see find_libraries."""
        absent = [stem for stem in tables.CORE if (stem, 64) not in self.found]
        if absent:
            from gpuhook.driver.mismatch import refuse  # only a failure pays for it

            refuse(self, absent)

    def chosen(self) -> tuple[Library, ...]:
        """What was found, in table order; the absent names are noted."""
        self.missing += [f"library {stem}: not installed" for stem in tables.STEMS if (stem, 64) not in self.found]
        order = [(stem, bits) for bits in (64, 32) for stem in tables.STEMS]
        return tuple(self.found[slot] for slot in order if slot in self.found)
