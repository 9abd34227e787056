"""The hook that a runtime starts: `gpuhook prestart`, the hot path of a container's start.

It reads the state and the bundle, loads the node's settings and decides. A container that asks for no GPU is left
alone before anything else is imported; the rest is the backend's work.
"""

from __future__ import annotations

import posix
import sys

from gpuhook.errors import GpuhookError, Usage
from gpuhook.preload import stage as preload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle
    from gpuhook.request.model import DeviceChoice
    from gpuhook.settings.values import Settings

WORKING = ("prestart", "createRuntime")
IDLE = ("poststart", "poststop")
STAGES = (*WORKING, *IDLE, "createContainer")
YES, NO = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
SWITCHES = ("debug", "version", "help", "h")


class Attempt:
    """What is known of a container's start so far, should it fail. stage: "" until it is one that works."""

    stage = id = bundle = failure_log = ""


def main(argv: list[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit status.

    Raises nothing: an error of ours is one message on stderr, anything unforeseen as well.
    """
    attempt = Attempt()
    try:
        return _dispatch(sys.argv[1:] if argv is None else argv, attempt)
    except GpuhookError as error:
        print_error(error.render())
        keep(error, attempt)
        return error.exit_status
    except Exception as fault:  # noqa: BLE001  # a traceback would help nobody on a node
        status = unforeseen(fault)
        keep(as_error(fault), attempt)
        return status


def launch() -> None:
    """What a lean launcher calls: the command line of this process, then an exit without Python's own tidying up."""
    status = main()
    try:
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
    except (OSError, ValueError):  # full, or nobody reads: what was to be said is lost
        status = status or 1
    posix._exit(status)  # noqa: SLF001  # that is its name


def _dispatch(argv: list[str], attempt: Attempt) -> int:
    options, words = parse(argv)
    if options.get("version") == "true":
        from gpuhook import __version__

        _print(f"gpuhook {__version__}\n")
        return 0
    if not words or words[0] not in STAGES or options.get("help") == "true":
        from gpuhook.cli import dispatch

        return dispatch(options, words)
    return run(words[0], options.get("config", ""), attempt, debug=options.get("debug") == "true")


def parse(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options and words of a command line in the reference hook's forms: one dash or two, `-x=v` or `-x v`.

    Unlike there, options may also follow the stage. Another command's own words are left to that command: reading
    stops at a first word that is no stage. Raises Usage.
    """
    options: dict[str, str] = {}
    words: list[str] = []
    left = list(argv)
    while left:
        word = left.pop(0)
        if word == "--" or not word.startswith("-") or word == "-":
            words += left if word == "--" else [word]
            if word == "--" or words[0] not in STAGES:
                return options, words if word == "--" else [*words, *left]
            continue
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if name == "config":
            if not equals and not left:
                raise Usage("the option -config needs a file", hint="gpuhook --help")
            options["config"] = value if equals else left.pop(0)
        elif name in SWITCHES and (not equals or value in YES or value in NO):
            options["help" if name == "h" else name] = "false" if value in NO else "true"
        else:
            raise Usage(f"unknown option or value: {word}", hint="gpuhook --help")
    return options, words


def run(stage: str, config: str, attempt: Attempt, *, debug: bool = False) -> int:
    """Do a stage's work for the container whose state is on stdin; config: a file that must exist, "" for the usual.

    attempt: is told what becomes known. Returns the exit status; where nvidia-container-cli does the work, this
    process becomes it and does not return.
    Raises GpuhookError.
    """
    if stage in IDLE:
        return 0
    if stage not in WORKING:
        raise Usage(
            f"{stage} is not a stage of this hook: it runs with the container's environment and inside its tree",
            hint="register gpuhook as a prestart or createRuntime hook",
        )
    from gpuhook.oci.bundle import read_bundle
    from gpuhook.oci.state import read_state

    if debug:
        from gpuhook import note

        note.debug = True
    attempt.stage = stage
    state = read_state()
    attempt.id, attempt.bundle = state.id, state.bundle
    bundle = read_bundle(state.bundle)
    settings, choice, warnings = _decide(bundle, config)
    attempt.failure_log = settings.failure_log
    if choice is None:
        _warn(warnings)
        return 0
    preload("gpu")
    from gpuhook.backend.start import start
    from gpuhook.request.build import build_request

    request = build_request(
        state, bundle, settings, choice, warnings, platform_is_tegra=settings.mode == "auto" and is_tegra()
    )
    return start(request, settings, debug=debug)


def _decide(bundle: Bundle, config: str) -> tuple[Settings, DeviceChoice | None, tuple[tuple[str, str], ...]]:
    """The node's settings, and which devices the container wants under them.

    A file that is broken or unsafe fails only a container that wants a GPU, judged with the defaults (decisions.md 3).
    """
    from gpuhook.request.devices import choose_devices
    from gpuhook.settings.load import load_settings

    try:
        settings = load_settings(config, posix.environ)
    except GpuhookError as error:
        from gpuhook.settings.values import Settings

        settings = Settings()
        choice, _ = choose_devices(bundle, settings)
        if choice is not None:
            raise
        place = "" if error.where in error.text else f" (in {error.where})"
        return settings, None, ((error.reference, error.text + place),)
    return settings, *choose_devices(bundle, settings)


def is_tegra() -> bool:
    """Whether this is an NVIDIA system on a chip, which is served by another mode (engine.md 7.2)."""
    from gpuhook.kernel.files import read_file

    try:
        posix.stat("/etc/nv_tegra_release")
    except OSError:
        try:
            return read_file("/sys/devices/soc0/family", 4096)[0].lower().startswith(b"tegra")
        except OSError:
            return False
    return True


def _warn(warnings: tuple[tuple[str, str], ...]) -> None:
    if warnings:
        from gpuhook.note import warn

        for reference, text in warnings:
            warn(reference, text)


def _print(text: str) -> None:
    try:
        posix.write(1, text.encode())
    except OSError as error:
        raise GpuhookError(f"cannot write to stdout: {error.strerror}", where="stdout") from error


def print_error(text: str) -> None:
    """A message on stderr, whatever is in it and whether or not anybody listens."""
    try:
        posix.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
    except OSError:  # stderr is closed; the exit status still tells
        return


def unforeseen(fault: Exception) -> int:
    """Report a fault of gpuhook itself in a line; the whole trace with GPUHOOK_DEBUG=1."""
    print_error(as_error(fault).render())
    if posix.environ.get(b"GPUHOOK_DEBUG"):
        from traceback import print_exception

        print_exception(fault)
    return 1


def as_error(fault: Exception) -> GpuhookError:
    """A fault of gpuhook itself as an error to report."""
    return GpuhookError(
        f"{type(fault).__name__}: {fault}",
        where=_place(fault),
        hint="this is a fault of gpuhook: please report it with this line; GPUHOOK_DEBUG=1 shows more",
    )


def keep(error: GpuhookError, attempt: Attempt) -> None:
    """A stage's failure also goes to where people find it later; what prevents that is not told over the failure."""
    if not attempt.stage:
        return
    try:
        from gpuhook import failures

        failures.keep(error, attempt)
    except Exception:  # noqa: BLE001  # the failure has been told, and its exit status is what counts
        return


def _place(fault: Exception) -> str:
    """Where the fault was raised, as file and line, without importing traceback."""
    trace = fault.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
