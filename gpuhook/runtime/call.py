"""The command line of an OCI runtime, read as the runtime that gets it will read it.

runc and its relatives use Go's flags: one dash or two, and in a command options may follow the container's name. crun
uses the C library's: abbreviations, clusters, and nothing after the name. What the runtime itself will refuse is not
our business; it shall say so. Pure.
"""

from __future__ import annotations

from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Taken = tuple[list[tuple[str, str | None]], list[str]]
    Found = tuple[str | None, dict[str, str | None]]

COMMANDS = frozenset(
    (
        "checkpoint", "create", "delete", "events", "exec", "features", "help", "init", "kill", "list", "mounts",
        "pause", "ps", "restore", "resume", "run", "spec", "start", "state", "update",
    )
)  # fmt: skip
CHANGED = ("create", "run")
HELP = ("help", "h", "usage", "?")
FALSE = ("false", "0", "f", "F", "FALSE", "False")

# Names of options, and whether they take a value. runc 1.0 to 1.3, crun 1.0 to 1.20.
GO_GLOBAL = {
    **dict.fromkeys(("log", "log-format", "root", "criu", "rootless"), True),
    **dict.fromkeys(("debug", "systemd-cgroup", "help", "h", "version", "v"), False),
}
GO_CREATE = {
    **dict.fromkeys(("bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds"), True),
    **dict.fromkeys(("no-pivot", "no-new-keyring", "help", "h"), False),
}
GO_RUN = {**GO_CREATE, **dict.fromkeys(("detach", "d", "keep", "no-subreaper"), False)}
C_GLOBAL = {
    **dict.fromkeys(("log", "log-level", "log-format", "root", "rootless", "cgroup-manager"), True),
    **dict.fromkeys(("debug", "systemd-cgroup", "force-no-cgroup", "help", "usage", "version", "?", "V"), False),
}
C_CREATE = {
    **dict.fromkeys(("bundle", "b", "config", "f", "console-socket", "pid-file", "preserve-fds"), True),
    **dict.fromkeys(("no-subreaper", "no-new-keyring", "no-pivot", "help", "usage", "?"), False),
}
C_RUN = {**C_CREATE, "detach": False, "d": False, "keep": False}


class Call(Value):
    """What a command line asks for.

    command: "" for none; bundle: as given, "" for the current folder, None where the runtime will find none; log and
    log_format: of the runtime's own log; helps: it asks for help or a version, so that no container is made.
    """

    command: str = ""
    bundle: str | None = ""
    log: str = ""
    log_format: str = ""
    debug: bool = False
    systemd: bool = False
    version: bool = False
    helps: bool = False

    @property
    def makes_container(self) -> bool:
        """Whether this call makes a container from a bundle that we may change."""
        return self.command in CHANGED and self.bundle is not None and not self.helps


def parse_call(args: list[str], runtime: str) -> Call:
    """What the words after a runtime's name mean to it. runtime: its path, whose name tells which grammar it has."""
    is_crun = runtime.rpartition("/")[2].startswith("crun")
    take = _take_c if is_crun else _take_go
    options, words = take(args, C_GLOBAL if is_crun else GO_GLOBAL, _names_no_command)
    given = dict(options)
    call = Call(
        command=words[0] if words else "",
        log=given.get("log") or "",
        log_format=given.get("log-format") or "",
        debug=_is_on(given, "debug"),
        systemd=_is_on(given, "systemd-cgroup") or given.get("cgroup-manager") == "systemd",
        version=_is_on(given, "version", "v", "V"),
        helps=_is_on(given, *HELP, "version", "v", "V"),
    )
    if call.command not in CHANGED:
        return call
    bundle, given = (_crun_bundle if is_crun else _runc_bundle)(call.command, words[1:])
    return call.with_(bundle=bundle, helps=call.helps or _is_on(given, *HELP))


def _runc_bundle(command: str, args: list[str]) -> Found:
    """The bundle, None where runc will refuse the words, and all options of the command."""
    table = GO_RUN if command == "run" else GO_CREATE
    given = dict(_take_go(_reordered(args, table), table)[0])
    both = "b" in given and "bundle" in given
    return None if both else given.get("bundle", given.get("b", "")), given


def _crun_bundle(command: str, args: list[str]) -> Found:
    """The same for crun, which finds no folder of an empty name, and may read another file than config.json."""
    options, _ = _take_c(args, C_RUN if command == "run" else C_CREATE)
    given = {"bundle" if name == "b" else name: value for name, value in options}
    other = "config" in given or "f" in given or given.get("bundle") == ""
    return None if other else given.get("bundle", ""), given


def _is_on(given: dict[str, str | None], *names: str) -> bool:
    return any(name in given and given[name] not in FALSE for name in names)


def _names_no_command(word: str) -> bool:
    """Whether a word after an option that we do not know is more likely to be its value."""
    return word not in COMMANDS and not word.startswith("-")


def _never(_word: str) -> bool:
    return False


def _take_go(args: list[str], table: dict[str, bool], is_value: Callable[[str], bool] = _never) -> Taken:
    """Options up to the first other word, and the words from there, as Go's package flag does it.

    is_value: whether a word after an unknown option is its value. An option that lacks its value has None.
    """
    options: list[tuple[str, str | None]] = []
    left = list(args)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        takes = table.get(name)
        if equals:
            options.append((name, value))
        elif takes or (takes is None and left and is_value(left[0])):
            options.append((name, left.pop(0) if left else None))
        else:
            options.append((name, "true"))
    return options, left


def _reordered(args: list[str], table: dict[str, bool]) -> list[str]:
    """The words with the known options before all others, as runc's library for command lines (urfave/cli 1) does it.

    It takes the word after any known option along, unless that is a known option itself.
    """
    first: list[str] = []
    rest: list[str] = []
    after_option = False
    for number, word in enumerate(args):
        is_option = word.startswith("-") and word.removeprefix("-").removeprefix("-").partition("=")[0] in table
        if after_option and not is_option:
            first.append(word)
            after_option = False
        elif word == "--":
            return [*first, *rest, *args[number:]]
        elif is_option:
            first.append(word)
            after_option = "=" not in word
        else:
            rest.append(word)
    return [*first, *rest]


def _take_c(args: list[str], table: dict[str, bool], is_value: Callable[[str], bool] = _never) -> Taken:
    """The same as getopt_long(3) does it when the first word that is no option ends the options."""
    options: list[tuple[str, str | None]] = []
    left = list(args)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if not word.startswith("--"):
            _take_cluster(word[1:], left, table, options)
            continue
        given, equals, value = word[2:].partition("=")
        name = _completed(given, table)
        if equals:
            options.append((name, value))
        elif table.get(name) or (name not in table and left and is_value(left[0])):
            options.append((name, left.pop(0) if left else None))
        else:
            options.append((name, "true"))
    return options, left


def _take_cluster(
    letters: str, left: list[str], table: dict[str, bool], options: list[tuple[str, str | None]]
) -> None:
    """One-letter options that share a dash; the rest of the word, or the next word, is the value of the last."""
    while letters:
        letter, letters = letters[0], letters[1:]
        if not table.get(letter):
            options.append((letter, "true"))
            continue
        options.append((letter, letters or (left.pop(0) if left else None)))
        return


def _completed(given: str, table: dict[str, bool]) -> str:
    """The option that an abbreviation stands for, or the text itself where it stands for none or several."""
    names = [name for name in table if name.startswith(given) and len(name) > 1]
    return names[0] if len(names) == 1 and given not in table else given
