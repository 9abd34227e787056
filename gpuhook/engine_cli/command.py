"""The entry: one command line of gpuhook-cli, from its words to its exit status.

Like the hook it costs little to start: a hook may execute it for every container. What a command needs is imported
when that command was asked for.
"""

from __future__ import annotations

import posix
import sys

from gpuhook import note
from gpuhook.engine_cli.given import Given, check
from gpuhook.engine_cli.options import COMMANDS, TOP, Command
from gpuhook.engine_cli.parser import Mistake, help_text, read, try_help, usage_text
from gpuhook.errors import GpuhookError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

NAME = "nvidia-container-cli"  # in messages, whatever this program is called: people and programs look for it
INTERFACE = "1.17.0"  # the release whose command line and output this is


class Finished(Exception):
    """There is nothing more to do: the exit status, and what to print where."""

    def __init__(self, status: int, *, out: str = "", err: str = "") -> None:
        super().__init__(status)
        self.status, self.out, self.err = status, out, err


def main(argv: list[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit status: 0, or 1 for every error.

    Raises nothing: an error is a message on stderr, anything unforeseen as well.
    """
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except OSError as fault:  # stdout is closed or full, or a file of our own package is gone
        say(2, f"{NAME}: output error: {fault.strerror}\n")
        return 1
    except Exception as fault:  # noqa: BLE001  # the one broad handler: a traceback would help nobody on a node
        return _unforeseen(fault)


def launch() -> NoReturn:
    """What a launcher calls: the command line of this process, then an exit without Python's own tidying up."""
    posix._exit(main())  # noqa: SLF001  # that is its name


def _main(words: list[str]) -> int:
    try:
        return _run(words, sys.argv[0] or NAME)
    except Finished as end:
        say(2, end.err)
        say(1, end.out)
        return end.status


def _run(words: list[str], program: str) -> int:
    short = program.rpartition("/")[2] or NAME
    top = _read(TOP, words, program, short)
    if not top.words:
        raise _usage(TOP, short)
    name, *rest = top.words
    command = COMMANDS.get(name)
    if command is None:
        raise _usage(TOP, short)
    full = f"{short} {name}"
    given = _read(command, rest, full, full)
    if command is COMMANDS["configure"]:
        if not given.words:
            raise _usage(command, full)
    elif given.words:
        raise _mistake(full, full, "Too many arguments")
    return _perform(name, top, given, len(rest))


def _perform(name: str, top: Given, given: Given, count: int) -> int:
    from gpuhook.engine_cli.failures import explain

    try:
        if name == "configure":
            from gpuhook.engine_cli.configure import configure

            return configure(top, given)
        from gpuhook.engine_cli.show import show_info, show_list

        return show_info(top, given) if name == "info" else show_list(top, given, count)
    except GpuhookError as error:
        return _failed(explain(error, top, given), error)


def _failed(lines: list[str], error: GpuhookError) -> int:
    if note.log is not None:
        note.log("E", f"{error.reference}: {error.text}")
    raise Finished(1, err="\n".join([f"{NAME}: {lines[0]}", *lines[1:], ""]))


def _read(command: Command, words: list[str], program: str, short: str) -> Given:
    """The options and words of one level. Raises Finished for mistakes and for what is answered at once."""
    given = Given()
    try:
        for name, value in read(words, command.options, in_order=command is TOP):
            if not name:
                _take_word(command, given, value or "")
            elif name in ("help", "usage", "version"):
                raise _answer(name, command, short)
            else:
                given.options.append((name, value))
                check(given, name, value)
    except Mistake as mistake:
        raise _mistake(short if mistake.about_program else program, short, str(mistake)) from None
    except GpuhookError as error:
        from gpuhook.engine_cli.failures import explain

        _failed(explain(error, Given(), given), error)
    return given


def _take_word(command: Command, given: Given, word: str) -> None:
    if command is COMMANDS["configure"] and given.words:
        raise Mistake("Too many arguments", about_program=True)
    given.words.append(word)
    if command is COMMANDS["configure"]:
        from gpuhook.engine_cli.configure import check_rootfs

        check_rootfs(word)


def _answer(name: str, command: Command, short: str) -> Finished:
    if name == "help":
        return Finished(0, out=help_text(short, command.forms, command.about, command.options))
    if name == "usage":
        return Finished(0, out=f"{usage_text(short, command.forms)}\n")
    return Finished(0, out=version_text())


def _usage(command: Command, short: str) -> Finished:
    return Finished(1, err=f"{usage_text(short, command.forms)}\n{try_help(short)}\n")


def _mistake(program: str, short: str, text: str) -> Finished:
    return Finished(1, err=f"{program}: {printable(text)}\n{try_help(short)}\n")


def version_text() -> str:
    """The seven lines of --version (engine.md 1): those of the interface first, then who we are."""
    from time import gmtime, strftime

    from gpuhook import __version__

    built = strftime("%Y-%m-%dT%H:%M+00:00", gmtime(posix.stat(__file__).st_mtime))
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"cli-version: {INTERFACE}\nlib-version: {INTERFACE}\nbuild date: {built}\n"
        f"build revision: gpuhook {__version__}\nbuild compiler: {sys.implementation.name} {python}\n"
        f"build platform: {posix.uname().machine}\nbuild flags: \n"
    )


def say(fd: int, text: str) -> None:
    """Write all of the text. Raises OSError on stdout only: whoever closed stderr does not want to know."""
    data = memoryview(text.encode("utf-8", "surrogateescape"))
    try:
        while data:
            data = data[posix.write(fd, data) :]
    except OSError:
        if fd != 2:
            raise


def _unforeseen(fault: Exception) -> int:
    """Report a fault of gpuhook itself in a line; the whole trace with GPUHOOK_DEBUG=1."""
    trace = fault.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    say(2, f"{NAME}: internal error: {type(fault).__name__}: {printable(str(fault))}\n  in {place}\n")
    say(2, "  hint: this is a fault of gpuhook: please report it with these lines; GPUHOOK_DEBUG=1 shows more\n")
    if posix.environ.get(b"GPUHOOK_DEBUG"):
        from traceback import print_exception

        print_exception(fault)
    return 1
