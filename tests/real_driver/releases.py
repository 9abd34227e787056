"""Root filesystems with the C library of another Debian release, and containers in which its own programs answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fixtures.driver.elf import shared_object
from fixtures.driver.native_build import libcuda
from gpuhook.driver.machine import this_machine
from tests.rig.container import Container
from tests.rig.process import PATH, Result
from tests.rig.rootfs import put
from tools.glibc import Glibc

OPENS = Path(__file__).with_name("opens.c")
WIDE, NARROW = (f"/usr/lib/{triplet}" for triplet in this_machine().triplets)
MERGED = (2, 36)  # from here on Debian's images have a merged /usr
FOLDERS = (2, 33)  # from here on libraries for better CPUs are in glibc-hwcaps, before in folders named after the CPU
OLDER = (1, 0)  # the CUDA version of the image's own libcuda


@dataclass(frozen=True)
class Found:
    """What loading a library by its name gave. file: "" where there was none; says: CUDA version, or the reason."""

    file: str
    says: str


def build_program(glibc: Glibc, folder: Path) -> Path:
    """`opens` for this release: linked against its own C library, for its own loader."""
    program = folder / f"opens-{glibc.version}"
    libraries = Path(glibc.root, "lib" if Path(glibc.root, "lib").exists() else "usr/lib") / WIDE.rpartition("/")[2]
    parts = [str(next(libraries.glob(name))) for name in ("libc.so.6", "libdl.so.2", "ld-linux*.so.*")]
    argv = ["gcc", "-O1", "-o", str(program), str(OPENS), "-nodefaultlibs", *parts, "-lgcc"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    return program


class Release:
    """A container's root filesystem with this release's C library. Made in a container that was entered.

    Beside it there are libraries of the image's own: libother for plain and for better CPUs, and an older libcuda, in
    all the folders that the release's loader knows.
    """

    def __init__(self, glibc: Glibc, program: Path, container: Container) -> None:
        self.glibc, self.container, self.rootfs = glibc, container, container.rootfs
        self._lay_out()
        shutil.copytree(glibc.root, self.rootfs, symlinks=True, dirs_exist_ok=True)
        shutil.copy(program, f"{self.rootfs}/usr/bin/opens")
        put(self.rootfs, {"etc/debian_version": "rig\n", "etc/ld.so.conf.d/a.conf": "/opt/image\n"})
        put(self.rootfs, self._libraries())

    def _lay_out(self) -> None:
        """The links of a merged /usr, or, for an older release, folders in their place."""
        if self.glibc.number >= MERGED:
            for name in ("lib32", "lib64"):
                os.makedirs(f"{self.rootfs}/usr/{name}")
                os.symlink(f"usr/{name}", f"{self.rootfs}/{name}")
        else:
            os.unlink(f"{self.rootfs}/lib")
            os.mkdir(f"{self.rootfs}/lib")

    def _libraries(self) -> dict[str, str | bytes | None]:
        other, cuda = shared_object("libother.so.1"), libcuda(OLDER)
        better = [f"glibc-hwcaps/x86-64-v{n}" for n in (2, 3)]
        if self.glibc.number < FOLDERS:
            better = ["haswell", "tls"]
        files: dict[str, str | bytes | None] = {
            f"{WIDE}/libother.so.1": other,
            "/opt/image/libcuda.so.1": cuda,
            "/opt/image/libcudart.so.12": shared_object("libcudart.so.12"),
            "/usr/lib32/libother.so.1": shared_object("libother.so.1", bits=32),
        }
        for name in better:
            files |= {f"{WIDE}/{name}/libother.so.1": other, f"/opt/image/{name}/libcuda.so.1": cuda}
        return files

    def index(self, *options: str) -> bytes:
        """The cache that this release's own ldconfig makes; it is the image's from now on."""
        argv = ["chroot", self.rootfs, "/sbin/ldconfig", *options]
        subprocess.run(argv, check=True, capture_output=True, timeout=60, env={"PATH": PATH})
        return Path(f"{self.rootfs}/etc/ld.so.cache").read_bytes()

    def run(self, *words: str, gpus: str = "all") -> Result:
        """A program in the container; gpus: "void" for a start in which the hook does nothing."""
        self.container.args = words
        self.container.env = (f"NVIDIA_VISIBLE_DEVICES={gpus}", "NVIDIA_DRIVER_CAPABILITIES=all")
        self.container.write_spec()
        return self.container.run()

    def listed(self, gpus: str = "all", *, after: str = "") -> list[str]:
        """What the release's own `ldconfig -p` says in there: "NAME (FLAGS) => PATH" each. after: a command before."""
        done = self.run("/bin/sh", "-c", f"{after or 'true'}; exec /sbin/ldconfig -p", gpus=gpus)
        assert done.status == 0, done.stderr
        return [line.strip() for line in done.stdout.splitlines() if " => " in line]

    def opened(self, *names: str, gpus: str = "all") -> dict[str, Found]:
        """What the release's own loader finds under these names."""
        done = self.run("/usr/bin/opens", *names, gpus=gpus)
        assert done.status == 0, done.stderr
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        return {name: Found(file, says) for name, file, says in rows}

    def traced_narrow(self, name: str) -> str:
        """The file that the release's 32-bit loader takes for this name."""
        script = f"LD_PRELOAD={name} LD_TRACE_LOADED_OBJECTS=1 exec /lib32/ld-linux.so.2 /lib32/libc.so.6"
        done = self.run("/bin/sh", "-c", script)
        found = re.search(rf"^\s*{re.escape(name)} => (\S+)", done.stdout, re.MULTILINE)
        return found[1] if found else f"{done.stdout}{done.stderr}"
