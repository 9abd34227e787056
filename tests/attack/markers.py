"""Programs, libraries, modules and scripts that leave a mark when anybody runs or loads them (O-EXEC)."""

from __future__ import annotations

import os

from fixtures.driver.native_build import compiled
from tests.rig.rootfs import put

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = ("json", "encodings", "ctypes", "struct", "site", "sitecustomize", "usercustomize", "gpuhook", "posixpath")
# Names that no test container runs by itself; its own entry point is static and lies elsewhere.
PROGRAMS = ("usr/sbin/ldconfig", "usr/sbin/ldconfig.real", "usr/bin/nvidia-container-cli", "usr/bin/python3")


def program(marks: str, name: str) -> bytes:
    """A static program that leaves the mark `name` in the folder `marks`."""
    return _placed(compiled(f"{HERE}/marker.c", ["-O1", "-static"]), f"{marks}/{name}")


def library(marks: str, name: str) -> bytes:
    """A shared object that does so when it is loaded."""
    return _placed(compiled(f"{HERE}/marker.c", ["-O1", "-shared", "-fPIC", "-DSHARED"]), f"{marks}/{name}")


def module(marks: str, name: str) -> str:
    """A Python module that does so when it is imported."""
    return f"open({f'{marks}/{name}'!r}, 'a').close()\n"


def script(marks: str, name: str) -> str:
    """A shell script that does so."""
    return f"#!/bin/sh\necho x >> '{marks}/{name}'\n"


def plant(rootfs: str, marks: str) -> None:
    """Puts the usual ones into a root filesystem: tools, modules in its root, a preload list with its object."""
    put(rootfs, {path: program(marks, path.replace("/", "-")) for path in PROGRAMS}, 0o755)
    modules = {f"{name}.py": module(marks, f"module-{name}") for name in MODULES}
    put(rootfs, {**modules, "encodings/__init__.py": module(marks, "module-encodings")})
    put(rootfs, {"marker.so": library(marks, "preload")}, 0o755)


def _placed(image: bytes, path: str) -> bytes:
    """The image with its room for the mark's path filled in."""
    text = path.encode() + b"\0"
    at = image.index(b"@MARK@\0")
    return image[:at] + text + image[at + len(text) :]
