"""Options as getopt_long and argp read them; glibc's own argp is the judge where gcc is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.engine_cli.options import COMMANDS, CONFIGURE, INFO, LIST, TOP, Command
from gpuhook.engine_cli.parser import Mistake, help_text, read, try_help, usage_text, wrapped
from tests.engine_cli.argp import oracle
from tests.rig.needs import need
from tests.rig.process import run

Pairs = list[tuple[str, "str | None"]]


def parsed(words: list[str], command: Command = CONFIGURE) -> Pairs:
    return list(read(words, command.options, in_order=command is TOP))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--pid=5 /r", [("pid", "5"), ("", "/r")]),
        ("--pid 5 /r", [("pid", "5"), ("", "/r")]),
        ("-p5 /r", [("pid", "5"), ("", "/r")]),
        ("-p 5 /r", [("pid", "5"), ("", "/r")]),
        ("/r -c --util", [("compute", None), ("utility", None), ("", "/r")]),
        ("-cup5 /r", [("compute", None), ("utility", None), ("pid", "5"), ("", "/r")]),
        ("-cup 5 /r", [("compute", None), ("utility", None), ("pid", "5"), ("", "/r")]),
        ("--device= /r", [("device", ""), ("", "/r")]),
        ("-d -c /r", [("device", "-c"), ("", "/r")]),
        ("--device -- /r", [("device", "--"), ("", "/r")]),
        ("-- --pid=5", [("", "--pid=5")]),
        ("-c -- -u", [("compute", None), ("", "-u")]),
        ("- -c", [("compute", None), ("", "-")]),
        ("--require=a=b,c", [("require", "a=b,c")]),
        ("--pi=5", [("pid", "5")]),
        ("--dev=0 --dev=1", [("device", "0"), ("device", "1")]),
        ("--cu=disabled", [("cuda-compat-mode", "disabled")]),
        ("--no-c", [("no-cgroups", None)]),
        ("-?", [("help", None)]),
        ("-V --usage", [("version", None), ("usage", None)]),
    ],
)
def test_what_words_mean(words: str, expected: Pairs) -> None:
    """Attached and separate values, bundles, beginnings of names, options after words, `--`."""
    assert parsed(words.split(" ")) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-d log list -d0", [("debug", "log"), ("", "list"), ("", "-d0")]),
        ("-k list --all", [("load-kmods", None), ("", "list"), ("", "--all")]),
        ("-u list", [("user", None), ("", "list")]),
        ("-u0:0 list", [("user", "0:0"), ("", "list")]),
        ("--user list", [("user", None), ("", "list")]),
        ("--user=root list", [("user", "root"), ("", "list")]),
        ("-- list", [("", "list")]),
        ("--deb=F info", [("debug", "F"), ("", "info")]),
    ],
)
def test_global_options_end_at_the_command(words: str, expected: Pairs) -> None:
    """The first word that is no option ends them; an optional value has to be attached."""
    assert parsed(words.split(" "), TOP) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--foo", "unrecognized option '--foo'"),
        ("--foo=1", "unrecognized option '--foo=1'"),
        ("--com", "option '--com' is ambiguous; possibilities: '--compute' '--compat32'"),
        ("--csv=1", "option '--csv' doesn't allow an argument"),
        ("--comput=1", "option '--compute' doesn't allow an argument"),
        ("--pid", "option '--pid' requires an argument"),
        ("-cp", "option requires an argument -- 'p'"),
        ("-h", "invalid option -- 'h'"),
        ("-c-", "invalid option -- '-'"),
    ],
)
def test_what_is_refused(words: str, message: str) -> None:
    """In getopt_long's words."""
    with pytest.raises(Mistake) as caught:
        parsed([words], INFO if words.startswith("--csv") else CONFIGURE)
    assert str(caught.value) == message


def test_what_stands_before_a_mistake_is_read() -> None:
    """An answer like --version counts even where a mistake follows."""
    options = read(["--version", "--foo"], CONFIGURE.options)
    assert next(options) == ("version", None)
    with pytest.raises(Mistake):
        next(options)


@pytest.fixture(scope="module", params=[TOP, INFO, LIST, CONFIGURE], ids=lambda command: command.name or "top")
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, str]:
    """A command and a program that reads its options with argp."""
    need("gcc", root=False)
    folder = tmp_path_factory.mktemp("argp")
    return request.param, oracle(folder, request.param, in_order=request.param is TOP)


LINES = [
    "", "--foo", "--foo=3", "--c", "--com", "--compu", "--json=3", "--pid", "-x", "-p", "a", "a b", "a -- b", "-- a",
    "--device= x", "-cup x y", "-d -c x", "x -c", "-c- x", "-h", "--de", "--d x", "--user x", "-u x", "-ux",
    "--no", "--no-g", "--no-gsp-firmware x", "--debug", "-kd", "-kdx info", "info --zz", "-", "- -d", "--imex 0 y",
    "-bl", "-lb --compat", "-lx", "--csv", "--cs", "--csv=", "--mig-c all --mig-m all", "--require", "-r", "--v=1",
    "-D -n -g /r", "--cuda disabled /r", "--dry /r", "-p5 -p 6 -p=7 /r", "--root --ldcache list", "-nk -l x list -l",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_argp_reads_it_in_the_same_way(judged: tuple[Command, str], line: str) -> None:
    """Options, values, mistakes and statuses are those of glibc's argp for the same table of options.

    Left out are beginnings of argp's own hidden options, --program-name and --HANG.
    """
    command, program = judged
    words = line.split(" ") if line else []
    done = run([program, *words])
    assert ours(words, command, program) == (done.status, done.stdout, done.stderr)


def ours(words: list[str], command: Command, program: str) -> tuple[int, str, str]:
    """The outcome of our parser in the form in which the oracle prints argp's."""
    out, count, short = "", 0, program.rpartition("/")[2]
    try:
        for name, value in read(words, command.options, in_order=command is TOP):
            count += not name
            if count > 1 and command is not TOP:
                return 1, out, f"{short}: Too many arguments\n{try_help(short)}\n"
            out += f"{name or 'word'} {'-' if value is None else value}\n"
    except Mistake as mistake:
        return 1, out, f"{program}: {mistake}\n{try_help(short)}\n"
    return 0, out, ""


PIECES = ["-", "--", "--pid", "--pid=1", "-d", "-d0", "-cu", "-c", "/r", "x", "--co", "--compute", "--no-", "-p", ""]


@given(st.lists(st.sampled_from(PIECES), max_size=6), st.booleans())
def test_any_words_are_read_or_refused(words: list[str], in_order: bool) -> None:
    """Nothing else happens; what comes out are names of the table, then the other words as they were written."""
    try:
        pairs = list(read(words, CONFIGURE.options, in_order=in_order))
    except Mistake:
        return
    names = [name for name, _ in pairs]
    others = [value or "" for name, value in pairs if not name]
    assert names == sorted(names, key=lambda name: not name)
    assert set(names) <= {"", *(option.name for option in CONFIGURE.options)}
    left = iter(words)
    assert all(other in left for other in others)


# --- texts ---


def test_long_lines_break_where_argp_breaks_them() -> None:
    """The line after a mistake is of two lines for the commands' names."""
    assert try_help("nvidia-container-cli configure") == (
        "Try `nvidia-container-cli configure --help' or `nvidia-container-cli configure\n"
        "--usage' for more information."
    )
    assert try_help("nvidia-container-cli") == (
        "Try `nvidia-container-cli --help' or `nvidia-container-cli --usage' for more\ninformation."
    )


@pytest.mark.parametrize("length", range(70, 90))
def test_argp_would_break_at_the_same_column(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    """Names of any length: the break is argp's."""
    need("gcc", root=False)
    name = "n" * (length - 40)
    folder = tmp_path_factory.getbasetemp() / "names"
    folder.mkdir(exist_ok=True)
    plain = oracle(folder, INFO, in_order=False)
    program = Path(plain).with_name(name)
    program.unlink(missing_ok=True)
    program.symlink_to(plain)
    done = run([str(program), "--zz"])
    assert done.stderr == f"{program}: unrecognized option '--zz'\n{try_help(name)}\n"


def test_a_word_is_never_cut() -> None:
    """A word that is wider than the line stands on a line of its own."""
    assert wrapped(f"a {'b' * 100} c") == f"a\n{'b' * 100}\nc"


@pytest.mark.parametrize("command", [TOP, *COMMANDS.values()], ids=lambda command: command.name or "top")
def test_the_help_names_every_option(command: Command) -> None:
    """With its letter and its value, in lines of a terminal's width."""
    text = help_text("prog", command.forms, command.about, command.options)
    for option in command.options:
        assert f"--{option.name}" in text
        assert not option.letter or f"-{option.letter}, --{option.name}" in text
    assert text.startswith("Usage: prog ")
    assert max(map(len, text.splitlines())) <= 100


def test_usage_has_a_line_for_each_form() -> None:
    """The first with Usage, the others with or."""
    assert usage_text("p", ("a", "b")) == "Usage: p a\n  or:  p b"


@pytest.mark.parametrize("command", [TOP, *COMMANDS.values()], ids=lambda command: command.name or "top")
def test_names_and_letters_are_unique(command: Command) -> None:
    """In one command no two options share a name or a letter."""
    names = [option.name for option in command.options]
    letters = [option.letter for option in command.options if option.letter]
    assert (len(set(names)), len(set(letters))) == (len(names), len(letters))
