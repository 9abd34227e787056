"""What an image brings along: driver files of its own, another C library, a broken loader configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuhook.doctor.contained.case import Case, look
from gpuhook.doctor.facts import module_version
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node

LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
PROGRAMS = ("/usr/bin", "/usr/local/bin", "/bin")
DRIVER = re.compile(r"lib(?:cuda|nvidia-[\w-]+)\.so\.(\d+(?:\.\d+)*)")


def driver_files(image: Node) -> dict[str, str]:
    """The driver's files in an image and their versions; empty ones are only places for mounts."""
    found: dict[str, tuple[str, str]] = {}
    for folder in LIBRARIES:
        for path in image.glob(folder, "lib*.so.*"):
            match = DRIVER.fullmatch(path.rpartition("/")[2])
            if match and _is_filled(image, path):
                found.setdefault(image.place(path), (path, match[1]))
    for folder in PROGRAMS:
        if _is_filled(image, f"{folder}/nvidia-smi"):
            found.setdefault(image.place(f"{folder}/nvidia-smi"), (f"{folder}/nvidia-smi", ""))
    return dict(found.values())


def _is_filled(image: Node, path: str) -> bool:
    status = None if image.link(path) else image.status(path)
    return bool(status and status.st_size)


@look("image-has-driver-files", "image-libs-newer")
def own_driver(case: Case) -> Iterator[Finding]:
    """The driver is the host's alone."""
    files = driver_files(case.image) if case.request and case.image else {}
    if not files:
        return
    host = module_version(case.node)
    yield tell(
        "image-has-driver-files",
        "warning",
        f"the image has {len(files)} driver file(s) of its own; the host's cover them in this container",
        *((path,) for path in list(files)[:3]),
        advice=(
            "remove the packages libnvidia-compute-* and nvidia-utils-* from the image",
            "nvidia-container-cli may refuse such an image; gpuhook's engine does not",
        ),
    )
    newer = [(path, version) for path, version in files.items() if host and _numbers(version) > _numbers(host)]
    if newer:
        yield tell(
            "image-libs-newer",
            "warning",
            f"the image carries libraries of driver {newer[0][1]}, newer than the host's {host}",
            (newer[0][0], newer[0][1], host),
            advice="remove them from the image: a program that loads them finds another kernel module",
        )


def _numbers(version: str) -> tuple[int, ...]:
    parts = tuple(int(part) for part in version.split(".") if part.isdigit())
    return parts if len(parts) > 1 else ()


@look("musl-or-distroless")
def loader(case: Case) -> Iterator[Finding]:
    """The image's loader finds libraries by glibc's cache."""
    image = case.image if case.request else None
    if image is None:
        return
    musl = image.glob("/lib", "ld-musl-*.so.1")
    if musl:
        yield tell(
            "musl-or-distroless",
            "note",
            "the image is built on musl: the driver's libraries are there, and programs for glibc do not run",
            (musl[0],),
            advice="install gcompat in the image for nvidia-smi",
        )
    elif not (image.exists("/etc/ld.so.cache") or image.exists("/etc/ld.so.conf.d") or image.exists("/sbin/ldconfig")):
        yield tell(
            "musl-or-distroless",
            "note",
            "the image has no ldconfig and no loader's cache: one is made with the host's ldconfig",
            ("/etc/ld.so.cache", "absent"),
        )


@look("ldconfig-failed")
def loader_configuration(case: Case) -> Iterator[Finding]:
    """Ldconfig can read the image's configuration."""
    image = case.image if case.request else None
    if image is None or not image.exists("/etc/ld.so.conf"):
        return
    status = image.status("/etc/ld.so.conf")
    if status and (status.st_mode & 0o170000) != 0o100000:
        text = "/etc/ld.so.conf of the image is no regular file"
    elif "\0" in image.read("/etc/ld.so.conf"):
        text = "/etc/ld.so.conf of the image holds binary data"
    else:
        return
    yield tell(
        "ldconfig-failed",
        "warning",
        f"{text}: ldconfig fails in this container",
        ("/etc/ld.so.conf",),
        advice="mend the image; what ldconfig says is in the hook's message",
    )
