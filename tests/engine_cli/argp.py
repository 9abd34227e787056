"""glibc's own argp over the same table of options: what it prints is what our parser has to print."""

from __future__ import annotations

from pathlib import Path

from fixtures.driver.native_build import compiled
from gpuhook.engine_cli.options import Command

# Mistakes end argp; the words are counted as the command would. argv[0] is given by whoever starts it.
SOURCE = """
#include <argp.h>
#include <stdio.h>

static struct argp_option options[] = {%(rows)s {0}};
const char *argp_program_version = "version";

static error_t take(int key, char *value, struct argp_state *state)
{
	int n;
	if (key == ARGP_KEY_ARG) {
		if (state->arg_num >= %(words)s)
			return ARGP_ERR_UNKNOWN;
		printf("word %%s\\n", value);
		for (; %(in_order)d && state->next < state->argc; state->next++)
			printf("word %%s\\n", state->argv[state->next]);
		return 0;
	}
	for (n = 0; options[n].name; n++)
		if (options[n].key == key) {
			printf("%%s %%s\\n", options[n].name, value ? value : "-");
			return 0;
		}
	return ARGP_ERR_UNKNOWN;
}

static struct argp argp = {options, take, "ROOTFS", "about"};

int main(int count, char **words)
{
	argp_err_exit_status = 1;
	setvbuf(stdout, NULL, _IONBF, 0);
	return argp_parse(&argp, count, words, %(flags)s, 0, 0);
}
"""


def oracle(folder: Path, command: Command, *, in_order: bool) -> str:
    """The path of a program that parses this command's options with argp. in_order: up to the first other word."""
    rows = "".join(
        f'{{"{option.name}", {ord(option.letter) if option.letter else 256 + number}, '
        f'{quoted(option.value)}, {"OPTION_ARG_OPTIONAL" if option.optional else 0}, "help", 0}},\n'
        for number, option in enumerate(command.options)
    )
    flags, words = ("ARGP_IN_ORDER", 1000) if in_order else ("0", 1)
    source = folder / f"argp-{command.name or 'top'}.c"
    source.write_text(SOURCE % {"rows": rows, "flags": flags, "words": words, "in_order": in_order})
    program = source.with_suffix("")
    program.write_bytes(compiled(str(source), ["-O1"]))
    program.chmod(0o755)
    return str(program)


def quoted(text: str) -> str:
    """A C string, or 0 for none."""
    return f'"{text}"' if text else "0"
