"""The script for bash: one function a program, with what can be offered written out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.completion.model import Command, Option, Program, Value, flags, with_value

HEAD = """\
# gpuhook's command lines in bash, printed by `gpuhook completion bash`
"""
# Bash breaks words at "=", so that `--config=x` comes as three words.
FUNCTION = """\
_{function}() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" words="" at word
    for ((at = 1; at < COMP_CWORD; at++)); do
        word="${{COMP_WORDS[at]}}"
        case "$word" in
            {skipped}) [[ "${{COMP_WORDS[at+1]}}" == = ]] || ((at++)) ;;
            =) ((at++)) ;;
            -*) ;;
            *) command="$word"; break ;;
        esac
    done
    if [[ $current == = ]]; then
        current=""
    elif [[ $before == = ]]; then
        before="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    case "$command $before" in
{values}
    esac
    if [[ $current == -* ]]; then
        case "$command" in
{options}
        esac
    else
        case "$command" in
{arguments}
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F _{function} {name}
"""
FILES = {"file": "-f", "folder": "-d"}


def script(programs: tuple[Program, ...]) -> str:
    """The whole script."""
    return "\n".join([HEAD, *map(_program, programs)])


def _program(program: Program) -> str:
    takers = flags(with_value(program.options))
    levels = [Command("", "", program.options), *program.commands]
    top = " ".join(command.name for command in program.commands)
    arguments = [f'"") words="{top}" ;;', *(line for command in program.commands for line in _argument(command))]
    options = [f'"{level.name}") words="{" ".join(flags(level.options))}" ;;' for level in levels if level.options]
    return FUNCTION.format(
        function=program.function,
        name=program.name,
        skipped=" | ".join(takers),
        values=_lines(8, [line for level in levels for option in level.options for line in _value(level, option)]),
        options=_lines(12, options),
        arguments=_lines(12, arguments),
    )


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(f"{' ' * indent}{line}" for line in lines)


def _value(level: Command, option: Option) -> Iterator[str]:
    if option in with_value((option,)):
        assert option.value is not None  # noqa: S101  # for the type checker
        patterns = " | ".join(f'"{level.name} {name}"' for name in option.names)
        yield f"{patterns}) {_offer(option.value)}return ;;"


def _argument(command: Command) -> Iterator[str]:
    if command.argument is not None:
        offer = _offer(command.argument)
        if offer:
            yield f'"{command.name}") {offer}return ;;'


def _offer(value: Value) -> str:
    """A command that sets the reply, "" where nothing can be offered."""
    if value.words:
        return f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(value.words)}" -- "$current"); '
    if value.kind == "word":
        return ""
    return f'mapfile -t COMPREPLY < <(compgen {FILES[value.kind]} -- "$current"); compopt -o filenames 2> /dev/null; '
