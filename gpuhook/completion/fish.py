"""The script for fish: a `complete` command for each word (complete(1)), under the command that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.completion.model import Command, Option, Program, Value, flags, with_value

HEAD = """\
# gpuhook's command lines in fish, printed by `gpuhook completion fish`
"""
FUNCTION = """\
# Whether the command of this line is the given one; "" where there is none yet.
function __{function}_is --argument-names wanted
    set --local skip 0
    for word in (commandline --tokenize --current-process --cut-at-cursor)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case {skipped}
                set skip 1
            case '-*'
            case '*'
                test "$word" = "$wanted"
                return
        end
    end
    test -z "$wanted"
end
complete --command {name} --no-files
"""


def script(programs: tuple[Program, ...]) -> str:
    """The whole script."""
    return "\n".join([HEAD, *map(_program, programs)])


def _program(program: Program) -> str:
    head = FUNCTION.format(
        function=program.function, name=program.name, skipped=" ".join(flags(with_value(program.options)))
    )
    return head + "".join(f"complete --command {program.name} {line}\n" for line in _lines(program))


def _lines(program: Program) -> Iterator[str]:
    for level in (Command("", "", program.options), *program.commands):
        condition = f"__{program.function}_is '{level.name}'"
        under = f"--condition {_quoted(condition)}"
        for option in level.options:
            yield f"{under} {_option(option)}"
        if level.argument is not None:
            yield from (f"{under} {offer}" for offer in [_taken(level.argument)] if offer)
        if not level.name:
            for command in program.commands:
                about = f" --description {_quoted(command.about)}" if command.about else ""
                yield f"{under} --arguments {_quoted(command.name)}{about}"


def _option(option: Option) -> str:
    words = [
        f"--long-option {name[2:]}" if name.startswith("--") else f"--short-option {name[1:]}" for name in option.names
    ]
    if option.value is not None and not option.value.optional:
        takes = "--require-parameter" if option.value.kind == "file" else "--exclusive"
        words += [takes, *filter(None, [_taken(option.value)])]
    return " ".join([*words, f"--description {_quoted(option.about)}"])


def _taken(value: Value) -> str:
    """What may be offered, "" for nothing."""
    if value.words:
        return f"--arguments {_quoted(' '.join(value.words))}"
    return {"file": "--force-files", "folder": "--arguments '(__fish_complete_directories)'", "word": ""}[value.kind]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
