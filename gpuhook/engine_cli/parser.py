"""Command lines as glibc's argp and getopt_long read them, without the cost of `argparse`.

Long options may be shortened to any beginning that only one of them has, short ones may be bundled, a value may be
attached or be the next word, `--` ends the options (getopt_long(3); reference/engine.md 1).
"""

from __future__ import annotations

from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Option(Value):
    """An option: its long name, its letter ("" for none), what its value is called ("" for none), and its help.

    optional: the value may be left out, and has to be attached where it is not.
    """

    name: str
    letter: str = ""
    value: str = ""
    optional: bool = False
    help: str = ""


class Mistake(Exception):
    """Words that getopt_long refuses; the text is what it says after the program's name.

    about_program: it is argp's own finding, which names the program in its short form.
    """

    def __init__(self, text: str, *, about_program: bool = False) -> None:
        super().__init__(text)
        self.about_program = about_program


OWN = (
    Option(name="help", letter="?", help="Give this help list"),
    Option(name="usage", help="Give a short usage message"),
    Option(name="version", letter="V", help="Print program version"),
)


def read(words: list[str], options: tuple[Option, ...], *, in_order: bool = False) -> Iterator[tuple[str, str | None]]:
    """The options in their order as (name, value or None), then each other word as ("", word).

    in_order: stop at the first word that is no option; it and all that follows come out as words. OWN options belong
    to every level. Raises Mistake where it is reached, so that what stands before it was acted upon.
    """
    table = (*options, *OWN)
    left, others = list(words), []
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            others.append(word)
            if in_order:
                break
        elif word.startswith("--"):
            yield _long(word[2:], table, left)
        else:
            yield from _bundle(word[1:], table, left)
    for word in (*others, *left):
        yield "", word


def _long(text: str, table: tuple[Option, ...], left: list[str]) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    option = _named(name, text, table)
    if equals:
        if not option.value:
            raise Mistake(f"option '--{option.name}' doesn't allow an argument")
        return option.name, value
    if not option.value or option.optional:
        return option.name, None
    if not left:
        raise Mistake(f"option '--{option.name}' requires an argument")
    return option.name, left.pop(0)


def _named(name: str, text: str, table: tuple[Option, ...]) -> Option:
    """The option of this name, or the only one that begins so."""
    near = [option for option in table if option.name.startswith(name)]
    exact = [option for option in near if option.name == name]
    if not near:
        raise Mistake(f"unrecognized option '--{text}'")
    if len(near) > 1 and not exact:
        names = " ".join(f"'--{option.name}'" for option in near)
        raise Mistake(f"option '--{text}' is ambiguous; possibilities: {names}")
    return (exact or near)[0]


def _bundle(letters: str, table: tuple[Option, ...], left: list[str]) -> Iterator[tuple[str, str | None]]:
    """Short options in one word; the first that takes a value takes the rest, or the next word."""
    for place, letter in enumerate(letters, 1):
        option = next((option for option in table if option.letter == letter), None)
        if option is None:
            raise Mistake(f"invalid option -- '{letter}'")
        rest = letters[place:]
        if not option.value:
            yield option.name, None
            continue
        if not rest and not option.optional:
            if not left:
                raise Mistake(f"option requires an argument -- '{letter}'")
            rest = left.pop(0)
            yield option.name, rest
            return
        yield option.name, rest or None
        return


WIDTH = 79  # the right margin of argp's messages, in columns


def wrapped(text: str, indent: str = "") -> str:
    """One paragraph broken at blanks as argp does it, without a final newline; words are never cut."""
    lines, line = [], ""
    words = text.split(" ")
    for place, word in enumerate(words, 1):
        # A line that is broken may be one column wider than one that ends.
        if line and len(line) + 1 + len(word) > WIDTH - (place == len(words)):
            lines.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def try_help(program: str) -> str:
    """The line that follows a mistake."""
    return wrapped(f"Try `{program} --help' or `{program} --usage' for more information.")


def usage_text(program: str, forms: tuple[str, ...]) -> str:
    """The short usage message: one line for each form of the command."""
    first, *others = forms
    return "\n".join([f"Usage: {program} {first}", *(f"  or:  {program} {form}" for form in others)])


def help_text(program: str, forms: tuple[str, ...], about: str, options: tuple[Option, ...]) -> str:
    """The long help: usage, what the command does, its options."""
    rows = "\n".join(_row(option) for option in (*options, *OWN))
    note = (
        "Mandatory or optional arguments to long options are also mandatory or optional for any corresponding short "
        "options."
    )
    return f"{usage_text(program, forms)}\n{about}\n\n{rows}\n\n{wrapped(note)}\n"


def _row(option: Option) -> str:
    value = option.value and (f"[={option.value}]" if option.optional else f"={option.value}")
    letter = f"-{option.letter}," if option.letter else "   "
    head = f"  {letter} --{option.name}{value}"
    if len(head) >= 28:
        return f"{head}\n{'':29}{option.help}"
    return f"{head:29}{option.help}"
