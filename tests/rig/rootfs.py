"""Root filesystems for test containers: a busybox tree, and small glibc trees of two families."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping

from tests.rig.needs import need
from tests.rig.probe import probe_program

FOLDERS = ("dev", "etc", "proc", "sys", "run", "tmp", "var/cache", "root", "usr/bin", "usr/sbin", "usr/lib")
TRIPLET = f"{platform.machine()}-linux-gnu"
GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
APPLETS = ("sh", "cat", "ls", "sleep", "true", "false", "echo", "id", "mount", "env")
KINDS = ("busybox", "debian", "rhel")
BUSYBOX = "/bin/busybox"


def make_rootfs(folder: str, kind: str = "busybox", *, owner: int = 0) -> str:
    """A tree in this folder, which is made; returns its path.

    kind: "busybox" (static programs only, no /etc/ld.so.cache), "debian" (glibc in usr/lib/TRIPLET and
    /etc/debian_version), "rhel" (glibc in usr/lib64, found by the cache alone). Each has /bin/probe (dynamic in the
    glibc trees), /bin/probe-static, and busybox. owner: uid and gid of everything, for user namespaces.
    """
    need("busybox", "gcc", root=False)
    if kind not in KINDS:
        raise ValueError(f"rootfs {kind!r} is none of {', '.join(KINDS)}")
    for name in FOLDERS:
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    for name in ("bin", "sbin", "lib"):
        os.symlink(f"usr/{name}", f"{folder}/{name}")
    os.chmod(f"{folder}/tmp", 0o1777)
    _put_programs(folder, dynamic=kind != "busybox")
    put(folder, {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n"})
    if kind != "busybox":
        _put_glibc(folder, kind)
    if owner:
        give_to(folder, owner)
    return folder


def put(folder: str, files: Mapping[str, str | bytes | None], mode: int = 0o644) -> None:
    """Writes files below the folder, with their folders. A text that begins with "-> " makes a link, None removes."""
    for name, content in files.items():
        path = f"{folder}/{name.lstrip('/')}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        if isinstance(content, str) and content.startswith("-> "):
            os.symlink(content[3:], path)
        elif content is not None:
            with open(path, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            os.chmod(path, mode)


def give_to(folder: str, owner: int) -> None:
    """Gives a tree to this uid and gid, links themselves included."""
    os.lchown(folder, owner, owner)
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(f"{base}/{name}", owner, owner)


def index(folder: str) -> None:
    """Makes the tree's SONAME links and /etc/ld.so.cache with the host's ldconfig."""
    subprocess.run(["/sbin/ldconfig", "-r", folder], check=True, capture_output=True, env={})


def _put_programs(folder: str, *, dynamic: bool) -> None:
    shutil.copy(shutil.which("busybox") or BUSYBOX, f"{folder}/usr/bin/busybox")
    for name in APPLETS:
        os.symlink("busybox", f"{folder}/usr/bin/{name}")
    put(folder, {"usr/bin/probe-static": probe_program(static=True)}, 0o755)
    put(folder, {"usr/bin/probe": probe_program(static=not dynamic)}, 0o755)


def _put_glibc(folder: str, kind: str) -> None:
    """The host's loader and C library, where this family of distributions has them."""
    libdir = f"usr/lib/{TRIPLET}" if kind == "debian" else "usr/lib64"
    os.makedirs(f"{folder}/{libdir}", exist_ok=True)
    os.makedirs(f"{folder}/usr/lib64", exist_ok=True)
    os.symlink("usr/lib64", f"{folder}/lib64")
    for path in _host_libraries():
        shutil.copy(path, f"{folder}/{libdir}/{os.path.basename(path)}")
    loader = _interpreter(f"{folder}/usr/bin/probe")
    place = f"{folder}/{loader}"
    if not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy(loader, place)
    searched = [f"/{libdir}", *(["/usr/lib"] if kind == "rhel" else [])]
    put(folder, {"etc/ld.so.conf": "".join(f"{name}\n" for name in searched)})
    if kind == "debian":
        put(folder, {"etc/debian_version": "12.5\n"})
    index(folder)


def _host_libraries() -> list[str]:
    """Where the host has the C library's parts, by its own loader cache."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    wide = re.findall(r"^\s(\S+) \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)$", listed, re.MULTILINE)
    return [path for name, path in wide if name in GLIBC]


def _interpreter(program: str) -> str:
    """The loader that a dynamic program names, absolute."""
    with open(program, "rb") as file:
        found = re.search(rb"/lib[^\0]*/ld-linux[^\0]*", file.read())
    if not found:
        raise ValueError(f"{program} names no loader")
    return found.group().decode()
