"""`gpuhook-docker`, the nvidia-docker command: docker, with the NVIDIA runtime for `run` and `create`.

The command line is read as docker reads it, words are only ever inserted, and this process becomes docker. What the
user has chosen himself stays his choice.
"""

from __future__ import annotations

import posix
import sys

from gpuhook import __version__
from gpuhook.errors import GpuhookError, UnknownDevice, Usage
from gpuhook.hook import print_error, unforeseen
from gpuhook.kernel.files import READ, is_folder, is_regular, read_fd
from gpuhook.note import warn
from gpuhook.refusals import DockerNotExecutable, NoDocker
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

GPUS, VARIABLE = "NV_GPU", "NVIDIA_VISIBLE_DEVICES"
RUNTIME = "nvidia"
LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
NAME_MARKS = frozenset("-_.:/=")  # of UUIDs, PCI addresses, MIG and CDI names
WITH_VALUE = frozenset(("config", "c", "context", "H", "host", "l", "log-level", "tlscacert", "tlscert", "tlskey"))
# docker run's and create's options without a value; every other one takes the next word.
SWITCHES = frozenset(
    (
        "d", "detach", "disable-content-trust", "help", "i", "init", "interactive", "no-healthcheck",
        "oom-kill-disable", "P", "privileged", "publish-all", "q", "quiet", "read-only", "rm", "sig-proxy", "t", "tty",
        "use-api-socket",
    )
)  # fmt: skip
LONG = {"e": "env"}
LARGEST_ENV_FILE = 1 << 20
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Line(Value):
    """A docker command line, as far as it matters.

    command: "run", "create", "version" or "" for all others; insert_at: how many words there are up to it, itself
    included; options: the user's own after it, as (name, value).
    """

    command: str = ""
    insert_at: int = 0
    options: tuple[tuple[str, str], ...] = ()

    def values(self, name: str) -> list[str]:
        """Every value that the user gave an option."""
        return [value for option, value in self.options if option == name]


def main(argv: list[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit status, unless docker takes over."""
    args = sys.argv[1:] if argv is None else argv
    environ = {name.decode("utf-8", "surrogateescape"): _text(value) for name, value in posix.environ.items()}
    try:
        return run(args, environ)
    except GpuhookError as error:
        print_error(error.render())
        return error.exit_status
    except Exception as fault:  # noqa: BLE001  # as in the hook: a traceback would help nobody
        return unforeseen(fault)


def launch() -> None:
    """What a launcher calls: this process's command line, then an exit without Python's own tidying up."""
    posix._exit(main())  # noqa: SLF001  # that is its name


def run(args: list[str], environ: Mapping[str, str]) -> int:
    """Become docker with the words that the original wrapper inserts. Raises GpuhookError."""
    docker = docker_command(environ.get("NV_DOCKER", ""))
    line = parse_line(args)
    if line.command in ("run", "create"):
        inserted, said = insertion(line, environ.get(GPUS, ""))
        args = [*args[: line.insert_at], *inserted, *args[line.insert_at :]]
        for reference, text in said:
            warn(reference, text)
    elif line.command == "version" and len(args) == line.insert_at:
        posix.write(1, f"NVIDIA Docker: {__version__}\n".encode())
    command = [*docker, *args]
    if environ.get("NV_DEBUG"):
        from shlex import quote

        posix.write(2, f"+ exec {' '.join(map(quote, command))}\n".encode("utf-8", "surrogateescape"))
    become(command, environ.get("PATH", ""))


def docker_command(value: str) -> list[str]:
    """The words of NV_DOCKER: a command as a shell would split it, but for patterns; the path of a file is one word.

    Unset or empty: docker. Raises Usage.
    """
    if not value:
        return ["docker"]
    if "/" in value and _is_there(value):
        return [value]
    words = value.split()
    if any(mark in value for mark in "\"'\\"):
        from shlex import split

        try:
            words = split(value)
        except ValueError as error:
            raise Usage(f"NV_DOCKER is {value!r}: {error}", where="NV_DOCKER") from error
    if not words:
        raise NoDocker("NV_DOCKER holds nothing but blanks", where="NV_DOCKER", hint="unset NV_DOCKER")
    return words


def parse_line(args: list[str]) -> Line:
    """What a docker command line asks for: its first word that is no option, and for `container` the one after it."""
    _, at = _options(args, 0, lambda name: name in WITH_VALUE)
    if at == len(args) or args[at - 1 : at] == ["--"]:
        return Line()
    if args[at] == "container":
        _, at = _options(args, at + 1, lambda _name: False)
    command = args[at] if at < len(args) else ""
    if command not in ("run", "create", "version"):
        return Line()
    options, _ = _options(args, at + 1, lambda name: name not in SWITCHES)
    return Line(command=command, insert_at=at + 1, options=tuple(options))


def _options(args: list[str], at: int, takes_value: Callable[[str], bool]) -> tuple[list[tuple[str, str]], int]:
    """The options from a place on, with long names where we know both, and the place of the first other word.

    As docker's own reader (pflag) does it: `--x v`, `--x=v`, and clusters such as `-itv X`.
    """
    found: list[tuple[str, str]] = []
    while at < len(args) and args[at].startswith("-") and args[at] != "-":
        word = args[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        else:
            name, equals, value = _cluster(word[1:], takes_value, found)
        if not equals and takes_value(name):
            value = args[at] if at < len(args) else ""
            at += 1
        found.append((LONG.get(name, name), value if equals or takes_value(name) else "true"))
    return found, min(at, len(args))


def _cluster(letters: str, takes_value: Callable[[str], bool], found: list[tuple[str, str]]) -> tuple[str, str, str]:
    """The last letter of a cluster that counts and the value attached to it, as partition() would say it."""
    while len(letters) > 1 and not takes_value(letters[0]) and letters[1] != "=":
        found.append((letters[0], "true"))
        letters = letters[1:]
    rest = letters[1:].removeprefix("=")
    return letters[0], "=" if letters[1:] else "", rest


def insertion(line: Line, nv_gpu: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The words for `run` and `create`, and (slug, text) pairs to be said. Raises UnknownDevice for a bad NV_GPU."""
    gpus = gpu_list(nv_gpu)
    said: list[tuple[str, str]] = []
    runtimes, asked = line.values("runtime"), line.values("gpus")
    words = [] if runtimes or asked else [f"--runtime={RUNTIME}"]
    if runtimes and runtimes[-1] != RUNTIME and not asked:
        said.append(("runtime-not-registered", f"--runtime {runtimes[-1]} is given: not adding --runtime={RUNTIME}"))
    if "0" in asked:
        said.append(("gpus-quoting", "--gpus 0 is a count and means no GPU; the first GPU is --gpus device=0"))
    own = f"--gpus {asked[-1]}" if asked else _own_variable(line)
    if gpus and own:
        said.append(("nvidia-docker-cmd", f"{GPUS}={nv_gpu} has no effect: {own} is given"))
    elif gpus:
        words += ["-e", f"{VARIABLE}={','.join(gpus)}"]
    if gpus not in ([], ["all"]) and any(value != "false" for value in line.values("privileged")):
        said.append(("privileged-sees-all", f"--privileged: the container can use every GPU, not only {GPUS}'s"))
    return words, said


def gpu_list(value: str) -> list[str]:
    """The elements of NV_GPU, separated by blanks of any kind or commas, each once. Raises UnknownDevice."""
    names = list(dict.fromkeys(value.replace(",", " ").split()))
    for name in names:
        if name[0] not in LETTERS or not LETTERS | NAME_MARKS >= set(name):
            raise UnknownDevice(
                f"{GPUS} holds {name[:60]!r}, which cannot be the name of a device",
                where=f"{GPUS}={value}",
                hint="name GPUs by index or UUID, as `nvidia-smi -L` shows them: NV_GPU=0,1",
            )
    return names


def _own_variable(line: Line) -> str:
    """Where the user sets the variable himself: an option, or "" for nowhere."""
    for value in line.values("env"):
        if value.partition("=")[0] == VARIABLE:
            return f"-e {value}"
    for path in line.values("env-file"):
        if any(entry.partition(b"=")[0].strip() == VARIABLE.encode() for entry in _lines(path)):
            return f"{VARIABLE} in --env-file {path}"
    return ""


def _lines(path: str) -> list[bytes]:
    """The lines of an --env-file; none where docker will have to complain about it.

    Nor of a pipe, such as a shell's <(command): what we read, docker could not read any more.
    """
    try:
        fd = posix.open(path, READ)
    except (OSError, ValueError):
        return []
    try:
        return read_fd(fd, LARGEST_ENV_FILE).split(b"\n") if is_regular(posix.fstat(fd).st_mode) else []
    except OSError:
        return []
    finally:
        posix.close(fd)


def become(command: list[str], path: str) -> NoReturn:
    """Replace this process by the command, looked up in the absolute folders of PATH. Raises NoDocker."""
    name = command[0]
    folders = [folder for folder in (path or USUAL_PATH).split(":") if folder.startswith("/")]
    places = [name] if "/" in name else [f"{folder}/{name}" for folder in folders]
    found = [place for place in places if _is_there(place) and not _is_ours(place)]
    hint = "install docker (package docker.io or docker-ce-cli), or name it in NV_DOCKER"
    if not found:
        raise NoDocker(f"{name} was not found", where="NV_DOCKER" if "/" in name else f"PATH={path}", hint=hint)
    programs = [place for place in found if posix.access(place, posix.X_OK) and not _is_folder(place)]
    if not programs:
        raise DockerNotExecutable(f"{found[0]} is not executable", where=found[0], hint=hint)
    try:
        posix.execv(programs[0], command)
    except OSError as error:
        raise DockerNotExecutable(f"{programs[0]} cannot be started: {error.strerror}", where=programs[0]) from error


def _is_folder(path: str) -> bool:
    return is_folder(posix.stat(path).st_mode)


def _is_ours(path: str) -> bool:
    """Whether this is gpuhook under docker's name, which would call itself for ever."""
    try:
        fd = posix.open(path, READ)
    except OSError:
        return False
    try:
        head = b"" if _is_folder(path) else posix.read(fd, 4096)
    finally:
        posix.close(fd)
    return head.startswith(b"#!") and (b"# gpuhook launcher" in head or b"gpuhook.docker_cli" in head)


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except (OSError, ValueError):
        return False
    return True


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
