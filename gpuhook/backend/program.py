"""nvidia-container-cli as a file: where it is, whether root may run it, and what it understands."""

from __future__ import annotations

import posix

from gpuhook.errors import GpuhookError
from gpuhook.kernel.files import READ, identity, is_regular, kind, require_trusted
from gpuhook.oci.bundle import clean
from gpuhook.refusals import BackendMissing
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

NAME = "nvidia-container-cli"
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
OPTIONS = ("cuda-compat-mode", "no-create-imex-channels", "imex-channel")  # not known to every release
MARK = b"# gpuhook launcher"  # in the second line of every launcher of ours
SHORTEST = 64  # bytes of an ELF header
LARGEST = 64 << 20  # bytes; the real program has some hundred KiB
# e_machine (elf(5)) of programs that a machine can run.
MACHINES = {"x86_64": (62, 3), "aarch64": (183, 40), "ppc64le": (21,)}


class Program(Value):
    """A nvidia-container-cli that can be run. knows: those of OPTIONS that it understands."""

    path: str
    knows: tuple[str, ...] = OPTIONS


def search_path(path: str, root: str) -> tuple[str, ...]:
    """The folders in which the reference looks: PATH and the usual ones, all of them below the root first."""
    folders = [folder for folder in path.split(":") if folder.startswith("/")]
    folders += [folder for folder in FOLDERS if folder not in folders]
    below = [f"{root.rstrip('/')}/{folder.lstrip('/')}" for folder in folders] if root not in ("", "/") else []
    return (*below, *folders)


def find(folders: tuple[str, ...], rootfs: str) -> str:
    """The first nvidia-container-cli that can be executed in these folders, or "".

    Relative folders and those of the container itself (below rootfs) are left out.
    """
    for folder in folders:
        if not folder.startswith("/") or f"{clean(folder)}/".startswith(f"{rootfs}/"):
            continue
        path = clean(f"{folder}/{NAME}")
        try:
            if is_regular(posix.stat(path).st_mode) and posix.access(path, posix.X_OK):
                return path
        except OSError:  # not there, or not for us to see
            continue
    return ""


def vet(path: str, where: str) -> Program | None:
    """Check what exec would only say badly: missing, no file, not executable, unsafe, for another machine.

    where: the key or the search that named the path, for messages. Returns None where the program is gpuhook under
    NVIDIA's name. Raises BackendMissing or UnsafeConfig.
    """
    try:
        status = posix.stat(path)
        if not is_regular(status.st_mode):
            raise BackendMissing(f"{path} is {kind(status.st_mode)}, not a program", where=where, hint=_hint(path))
        if not posix.access(path, posix.X_OK):
            raise BackendMissing(f"{path} is not executable", where=where, hint=f"chmod +x {path}")
        require_trusted(path)
        facts = _facts(path, status)
    except OSError as error:
        raise BackendMissing(f"cannot use {path}: {error.strerror}", where=where, hint=_hint(path)) from error
    machine = posix.uname().machine
    if facts["machine"] is not None and facts["machine"] not in MACHINES.get(machine, (facts["machine"],)):
        raise BackendMissing(f"{path} is a program for another machine than {machine}", where=where, hint=_hint(path))
    if facts["ours"]:
        return None
    knows = facts["knows"]
    assert isinstance(knows, list)  # noqa: S101  # for the type checker: _facts made it
    return Program(path=path, knows=tuple(knows))


def _hint(path: str) -> str:
    return f'install {NAME}, correct the path, or set backend = "embedded" in [gpuhook] to do without {path}'


def _facts(path: str, status: stat_result) -> dict[str, object]:
    """What the file's bytes say; read once per file and kept in a snapshot."""
    from gpuhook.settings.snapshot import load, save, settled

    key = (path, *identity(status))
    facts = load("program", key)
    if facts is None:
        facts = _examine(path)
        if settled(status):
            save("program", key, facts)
    return facts


def _examine(path: str) -> dict[str, object]:
    fd = posix.open(path, READ)
    try:
        head = posix.read(fd, 4096)
        if not head.startswith(b"\x7fELF"):
            return {"machine": None, "ours": MARK in head, "knows": list(OPTIONS)}
        data = head
        while len(data) < LARGEST and (part := posix.read(fd, 1 << 20)):
            data += part
    finally:
        posix.close(fd)
    if len(head) < SHORTEST:
        raise OSError(8, "it is cut short", path)
    return {
        "machine": int.from_bytes(head[18:20], "little" if head[5:6] == b"\1" else "big"),
        "ours": False,
        "knows": [option for option in OPTIONS if option.encode() in data],
    }


def refuse_none(folders: tuple[str, ...]) -> GpuhookError:
    """The error for a search that found nothing."""
    return BackendMissing(
        f"{NAME} was not found, and it is asked for",
        where=f"config.toml: [gpuhook] backend; searched: {':'.join(folders)}",
        hint=f'install it, set [nvidia-container-cli] path, or backend = "embedded" in [gpuhook] to do without {NAME}',
    )
