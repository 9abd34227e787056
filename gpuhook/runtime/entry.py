"""`gpuhook-runtime`: everything that the launcher's shell part does not decide by itself.

Nothing may stand between an engine and the containers that run: for any command but create and run, whatever is
wrong with this node's GPU support or with config.toml goes to the log, and the low-level runtime is called.
"""

from __future__ import annotations

import posix
import sys
from sys import getfilesystemencoding

from gpuhook import __version__
from gpuhook.errors import GpuhookError
from gpuhook.hook import Attempt, as_error, keep, print_error, unforeseen
from gpuhook.kernel.files import is_regular, read_file
from gpuhook.oci.spec import NVIDIA_HOOKS
from gpuhook.refusals import NoLowLevelRuntime
from gpuhook.runtime import kept
from gpuhook.runtime.call import Call, parse_call
from gpuhook.runtime.log import Log
from gpuhook.runtime.lowlevel import become, fault_of, find_runtime, is_ours, refuse_loop
from gpuhook.settings.load import load_settings
from gpuhook.settings.values import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

HOOK, MOST_LINKS = "gpuhook", 8
MOST_ENVIRONMENT = 16 << 20  # bytes


def main(argv: list[str] | None = None, *, program: str = "") -> int:
    """Run one command line (without the program's name) and return the exit status; most calls do not return.

    program: the path by which we were called, "" for Python's own idea of it. Raises nothing.
    """
    log = Log()
    args = sys.argv[1:] if argv is None else argv
    try:
        return run(args, posix.environ, log, program or sys.argv[0])
    except GpuhookError as error:
        log("error", error.render().removeprefix("gpuhook: ").replace("\n", ";"))
        print_error(error.render())
        _keep(error, args)
        return error.exit_status
    except Exception as fault:  # noqa: BLE001  # as in the hook: a traceback would help nobody on a node
        _rescue(args, posix.environ)
        status = unforeseen(fault)
        _keep(as_error(fault), args)
        return status


def _keep(error: GpuhookError, args: list[str]) -> None:
    """Why a container was not made is kept where the hook's failures are; engines write its name last."""
    call = parse_call(args, "")
    if call.makes_container:
        attempt = Attempt()
        attempt.stage, attempt.id = f"gpuhook-runtime {call.command}", args[-1]
        attempt.bundle = call.bundle or ""
        try:
            attempt.failure_log = _settings(posix.environ)[0].failure_log
        except Exception:  # noqa: BLE001  # it may be the very fault that is told
            attempt.failure_log = ""
        keep(error, attempt)


def _rescue(args: list[str], environ: Mapping[bytes, bytes]) -> None:
    """After a fault of our own: what makes no container goes to a usual runtime, if there is one."""
    if parse_call(args, "").makes_container:
        return
    try:
        become(find_runtime(Settings.runtimes, _path(environ)), [_encoded(word) for word in args], environ)
    except GpuhookError:
        return


def launch(program: str) -> None:
    """What the launcher calls: this process's command line, then an exit without Python's own tidying up."""
    posix._exit(main(program=program))  # noqa: SLF001  # that is its name


def run(args: list[str], environ: Mapping[bytes, bytes], log: Log, program: str) -> NoReturn:
    """Do what has to be done before the low-level runtime, and become it. Raises GpuhookError."""
    refuse_loop(environ)
    settings, fault = _settings(environ)
    call = parse_call(args, "")
    log.use(settings, call)
    runtime = _runtime(settings, fault, call, environ)
    call = parse_call(args, runtime)
    log.use(settings, call)
    if call.version:
        posix.write(1, f"gpuhook-runtime version {__version__}\n\n".encode())
    if call.makes_container:
        from gpuhook.runtime.create import Node, prepare, systemd_manages_cgroups

        node = Node(
            settings=settings,
            hook=own_hook(program, environ),
            environ=environ,
            systemd=systemd_manages_cgroups(told=call.systemd),
            fault=fault,
        )
        prepare(call.bundle or "", node, log)
    elif fault is not None:
        log.fault(fault)
    log("debug", f"handing over to {runtime}")
    if fault is None:
        kept.keep(runtime, environ)
    become(runtime, [_encoded(word) for word in args], _as_given(environ))


def _settings(environ: Mapping[bytes, bytes]) -> tuple[Settings, GpuhookError | None]:
    """The node's settings; where they cannot be had, the defaults and why."""
    try:
        return load_settings("", environ), None
    except GpuhookError as error:
        return Settings(), error


def _runtime(settings: Settings, fault: GpuhookError | None, call: Call, environ: Mapping[bytes, bytes]) -> str:
    """The low-level runtime: the one that config.toml leads to.

    Where that is broken, the one that it led to last has the containers that run. Where its list leads nowhere, the
    usual runtimes serve every command but those that make containers. Raises NoLowLevelRuntime.
    """
    path = _path(environ)
    if fault is not None and (last := kept.last_kept(environ)) and not fault_of(last):
        return last
    try:
        return find_runtime(settings.runtimes, path, settings.source)
    except NoLowLevelRuntime:
        if call.makes_container or settings.runtimes == Settings.runtimes:
            raise
        return find_runtime(Settings.runtimes, path, settings.source)


def own_hook(program: str, environ: Mapping[bytes, bytes]) -> str:
    """The launcher of our own hook: beside the program that runs, or where it is a link to, or in PATH.

    program: the path by which we were called. NVIDIA's name for it will do where it is ours.
    """
    folders = [*_folders_of(program), *(folder for folder in _path(environ).split(":") if folder.startswith("/"))]
    for name in (HOOK, NVIDIA_HOOKS[0]):
        for folder in folders:
            place = f"{folder.rstrip('/')}/{name}"
            if _is_program(place) and (name == HOOK or is_ours(place)):
                return place
    return f"/usr/local/bin/{HOOK}"


def _folders_of(program: str) -> list[str]:
    """The folder of a program, and of what it is a link to."""
    folders: list[str] = []
    try:
        while len(folders) < MOST_LINKS:
            folder, _, _ = program.rpartition("/")
            folder = folder if program.startswith("/") else f"{posix.getcwd()}/{folder}"
            folders.append(folder)
            target = posix.readlink(program)
            program = target if target.startswith("/") else f"{folder}/{target}"
    except OSError:  # no link, or the current folder is gone
        pass
    return folders


def _is_program(path: str) -> bool:
    try:
        return is_regular(posix.stat(path).st_mode) and posix.access(path, posix.X_OK)
    except OSError:
        return False


def _as_given(environ: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Our environment without the LC_CTYPE that Python gives itself where there is no locale (PEP 538)."""
    if environ.get(b"LC_CTYPE") != b"C.UTF-8":
        return environ
    try:
        entries = read_file("/proc/self/environ", MOST_ENVIRONMENT)[0].split(b"\0")
    except OSError:  # no procfs
        return environ
    if any(entry.startswith(b"LC_CTYPE=") for entry in entries):
        return environ
    return {name: value for name, value in environ.items() if name != b"LC_CTYPE"}


def _path(environ: Mapping[bytes, bytes]) -> str:
    return environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")


def _encoded(word: str) -> bytes:
    return word.encode(getfilesystemencoding(), "surrogateescape")
