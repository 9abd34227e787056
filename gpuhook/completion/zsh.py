"""The script for zsh: what its function _arguments takes (zshcompsys(1)), for `source` and for a folder of fpath."""

from __future__ import annotations

from gpuhook.completion.model import Command, Option, Program, Value

HEAD = """\
#compdef {names}
# gpuhook's command lines in zsh, printed by `gpuhook completion zsh`
"""
FUNCTION = """\
__{function}() {{
    local state line
    local -a commands=(
{commands}
    )
    _arguments -C \\
{options}
        '1:command:->command' \\
        '*::argument:->argument'
    case $state in
        command) _describe command commands ;;
        argument)
            case $words[1] in
{cases}
            esac
            ;;
    esac
}}
"""
TAIL = """\
_gpuhook() {
    "__${service//-/_}" "$@"
}

if [[ $funcstack[1] == _gpuhook ]]; then
    _gpuhook "$@"
elif (( $+functions[compdef] )); then
    compdef _gpuhook %s
fi
"""
ACTIONS = {"file": "_files", "folder": "_files -/", "word": " "}


def script(programs: tuple[Program, ...]) -> str:
    """The whole script."""
    names = " ".join(program.name for program in programs)
    return "\n".join([HEAD.format(names=names), *map(_program, programs), TAIL % names])


def _program(program: Program) -> str:
    rows = [_quoted(f"{_plain(command.name)}:{command.about}") for command in program.commands]
    cases = [line for command in program.commands for line in _case(command)]
    return FUNCTION.format(
        function=program.function,
        commands="\n".join(f"        {row}" for row in rows),
        options="\n".join(f"        {_option(option)} \\" for option in program.options),
        cases="\n".join(f"                {line}" for line in cases),
    )


def _case(command: Command) -> list[str]:
    rows = [_option(option) for option in command.options]
    if command.argument is not None:
        rows.append(_quoted(f"*:{_taken(command.argument)}"))
    if not rows:
        return []
    return [
        f"{command.name})",
        "    _arguments \\",
        *(f"        {row} \\" for row in rows[:-1]),
        f"        {rows[-1]}",
        "    ;;",
    ]


def _option(option: Option) -> str:
    """A specification: what it excludes, its names, what it is, its value."""
    about = f"[{_plain(option.about)}]"
    colons = "" if option.value is None else f"{'::' if option.value.optional else ':'}{_taken(option.value)}"
    names = [_name(name, option) for name in option.names]
    if option.repeated:
        return " ".join(_quoted(f"*{name}{about}{colons}") for name in names)
    if len(names) == 1:
        return _quoted(f"{names[0]}{about}{colons}")
    excluded = _quoted(f"({' '.join(option.names)})")
    return f"{excluded}{{{','.join(names)}}}{_quoted(about + colons)}"


def _name(name: str, option: Option) -> str:
    """A long option's value is the next word or attached; a short one's likewise."""
    if option.value is None:
        return name
    if name.startswith("--"):
        return f"{name}=-" if option.value.optional else f"{name}="
    return f"{name}-" if option.value.optional else f"{name}+"


def _taken(value: Value) -> str:
    action = f"({' '.join(value.words)})" if value.words else ACTIONS[value.kind]
    return f"{_plain(value.label)}:{action}"


def _plain(text: str) -> str:
    """A text without the meaning that colons and brackets have in a specification."""
    return "".join(f"\\{letter}" if letter in "\\:[]" else letter for letter in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
