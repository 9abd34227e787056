"""A look at the container's tree: where its loader looks for libraries."""

from __future__ import annotations

import posix

from gpuhook.kernel import libc
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.files import is_regular, kind, read_fd
from gpuhook.loader.cache import BadCache, Cache, folders, parse
from gpuhook.note import note, warn
from gpuhook.plan.ops import Image

CACHE = "/etc/ld.so.cache"
CACHE_LIMIT = 16 << 20  # bytes
INTERPRETER_LIMIT = 4 << 20  # bytes; glibc's has some 200 KiB
# By machine: Debian's folders for 64 and 32 bits ("" for none), the ELF interpreters of glibc and of musl.
MULTIARCH = {
    "x86_64": (
        "/usr/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu", "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-musl-x86_64.so.1",
    ),
    "aarch64": ("/usr/lib/aarch64-linux-gnu", "", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"),
    "ppc64le": ("/usr/lib/powerpc64le-linux-gnu", "", "/lib64/ld64.so.2", "/lib/ld-musl-powerpc64le.so.1"),
}  # fmt: skip


def look(root: Root, cache: Cache | None) -> Image:
    """Where libraries go: into a folder that the image's own loader searches.

    The loader's cache tells by what it names; without one, the ELF interpreter by the folders that it is built for; an
    image without either has the distribution's marks. 32-bit libraries are where nvidia-container-cli places them
    (engine.md 5.4).
    """
    multi64, multi32, interpreter, musl = MULTIARCH.get(posix.uname().machine, MULTIARCH["x86_64"])
    if exists(root, musl) and cache is None:
        warn(
            "musl-or-distroless",
            "the image uses musl, whose loader reads no ld.so.cache: its own programs will not find NVIDIA's glibc "
            "libraries; statically linked programs and nvidia-smi with a glibc beside it work",
        )
    lib64 = _by_cache(cache, multi64) or _by_interpreter(root, interpreter, multi64) or _by_marks(root, multi64)
    return Image(lib64=lib64, lib32=multi32 if lib64 == multi64 else _lib32(root, lib64))


def _by_cache(cache: Cache | None, multi64: str) -> str:
    """The usual folder that the cache names, "" for none."""
    known = [_merged(folder) for folder in folders(cache, 64)] if cache is not None else []
    return next((folder for folder in (multi64, "/usr/lib64", "/usr/lib") if folder in known), "")


def _by_interpreter(root: Root, path: str, multi64: str) -> str:
    """The usual folder that the ELF interpreter searches by itself, "" for none.

    glibc's has the list in its data, as `/lib64/`, NUL, `/usr/lib64/`, NUL (elf/dl-load.c, system_dirs).
    """
    try:
        data = _bytes_of(root, path, INTERPRETER_LIMIT)
    except OSError:
        return ""
    return next((folder for folder in (multi64, "/usr/lib64") if f"{folder}/\0".encode() in data), "")


def _by_marks(root: Root, multi64: str) -> str:
    is_debian = exists(root, "/etc/debian_version") or exists(root, multi64)
    return multi64 if is_debian else "/usr/lib64"


def _merged(folder: str) -> str:
    """A folder's name with /lib and /lib64 as the merged /usr has them."""
    return f"/usr{folder}" if folder.startswith(("/lib/", "/lib64/")) or folder in ("/lib", "/lib64") else folder


def _lib32(root: Root, lib64: str) -> str:
    if exists(root, "/usr/lib32") or not exists(root, "/usr/lib"):
        return "/usr/lib32"
    try:
        same = root.resolve("/usr/lib") == root.resolve(lib64)
    except OSError:
        same = False
    return "/usr/lib32" if same else "/usr/lib"


def exists(root: Root, path: str) -> bool:
    """Whether something that is no dangling link stands at this path inside the root."""
    try:
        root.stat(path)
    except OSError:
        return False
    return True


def read_cache(root: Root) -> tuple[Cache | None, bytes]:
    """The container's loader cache and its bytes; None where there is none that the loader could use."""
    try:
        data = _bytes_of(root, CACHE, CACHE_LIMIT)
        cache = parse(data)
        if not cache.odd:
            return cache, data
        note(f"{CACHE} of the container holds {cache.odd} paths that no ldconfig writes")
    except OSError as error:
        note(f"no usable {CACHE} in the container: {error.strerror}")
    except BadCache as error:
        note(f"{CACHE} of the container is damaged: {error}")
    return None, b""


def _bytes_of(root: Root, path: str, limit: int) -> bytes:
    """The content of a regular file of the image's own. Raises OSError, EFBIG above the limit."""
    fd = open_plain(root, path)
    try:
        data = read_fd(fd, limit)
    finally:
        posix.close(fd)
    if len(data) > limit:
        raise OSError(27, f"it is larger than {limit >> 20} MiB", path)
    return data


def open_plain(root: Root, path: str) -> int:
    """A descriptor for reading of a regular file of the image's own; anything else is not opened at all (EINVAL).

    A link may lead to a file of procfs or sysfs, which count as regular; merely reading some of those has effects.
    """
    fd = root.open(path)
    try:
        mode = posix.fstat(fd).st_mode
        if not is_regular(mode):
            raise OSError(22, f"it is {kind(mode)}, not a regular file", path)
        if libc.filesystem_of(fd) in (libc.PROC_SUPER_MAGIC, libc.SYSFS_MAGIC):
            raise OSError(22, "it leads to a file of the kernel", path)
        return root.reopen(fd)
    finally:
        posix.close(fd)
