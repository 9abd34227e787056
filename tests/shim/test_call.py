"""The command line of an OCI runtime, as the runtime itself reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.runtime.call import Call, parse_call
from tests.rig.needs import need
from tests.rig.process import run


def words(line: str) -> list[str]:
    """The words of a line; '' stands for an empty one."""
    return ["" if word == "''" else word for word in line.split()]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", ""),
        ("create c1", "create"),
        ("--root /r --log l --log-format json --systemd-cgroup create c1", "create"),
        ("--root=/r -debug create c1", "create"),
        ("-- create c1", "create"),
        ("--debug=false run c1", "run"),
        ("state create", "state"),
        ("delete --force create", "delete"),
        ("exec c1 create --bundle /b", "exec"),
        ("--root create state c1", "state"),
        ("--log create --log-format run kill c1", "kill"),
        ("kill -- create", "kill"),
        ("start -b create", "start"),
        ("CREATE c1", "CREATE"),
        ("--new-option value create c1", "create"),
        ("--new-option=value create c1", "create"),
        ("--new-option create c1", "create"),
    ],
)
@pytest.mark.parametrize("runtime", ["/usr/bin/runc", "/usr/bin/crun"])
def test_the_command_is_the_first_word_that_is_no_option(line: str, command: str, runtime: str) -> None:
    """Values of options, names of containers and words of programs inside are no commands (AC-80)."""
    call = parse_call(words(line), runtime)
    assert (call.command, call.makes_container) == (command, command in ("create", "run"))


@pytest.mark.parametrize("line", ["create --help", "run -h", "--help create", "--version", "create c1 --help"])
def test_who_asks_for_help_makes_no_container(line: str) -> None:
    """Nothing is changed then, and no config.json is needed."""
    assert not parse_call(words(line), "/usr/bin/runc").makes_container


def test_the_runtimes_own_log_is_known() -> None:
    """Engines name the file, and its form, before the command."""
    line = words("--root /r --log /l.json --log-format=json --debug --systemd-cgroup create c1")
    assert parse_call(line, "runc") == Call(
        command="create", log="/l.json", log_format="json", debug=True, systemd=True
    )
    assert parse_call(words("--cgroup-manager=systemd --log /l create c"), "crun") == Call(
        command="create", log="/l", systemd=True
    )


@pytest.mark.parametrize(("line", "version"), [("--version", True), ("-v", True), ("exec c p --version", False)])
def test_a_version_is_asked_for_before_the_command(line: str, version: bool) -> None:
    """The option of a program inside is its own."""
    assert parse_call(words(line), "runc").version is version


# Of each runtime, command lines and the bundle that it looks for; None: it refuses the line.
BOTH = {
    "create -b /nx c1": "/nx",
    "create --bundle /nx c1": "/nx",
    "create --bundle=/nx c1": "/nx",
    "run -b /nx -d c1": "/nx",
    "-- create -b /nx c1": "/nx",
    "create -b /a -b /nx c1": "/nx",
    "create --bundle --help c1": "--help",
    "create --bundle create c1": "create",
    "create --bundle -x --pid-file p c1": "-x",
    "--log create create -b /nx c1": "/nx",
    "--root /r/create create -b /nx create": "/nx",
    "create --pid-file /p --console-socket /s --preserve-fds 1 -b /nx c1": "/nx",
    "--log-format json --debug create --no-pivot -b /nx c1": "/nx",
    "create --bundle": None,
}
RUNC = {
    **BOTH,
    "create c1 --bundle /nx": "/nx",
    "create -bundle /nx c1": "/nx",
    "create -b=/nx c1": "/nx",
    "create c1 -b /nx --no-pivot": "/nx",
    "--systemd-cgroup=false create -b /nx c1": "/nx",
    "create --bundle /a c1 --bundle=/nx": "/nx",
    "create c1 --bundle -x --pid-file p": "-x",
    "create c1 --no-pivot -b /nx": "/nx",
    "create -b /nx c1 --bundle=/nx": None,
}
CRUN = {
    **BOTH,
    "create --bund /nx c1": "/nx",
    "create -b/nx c1": "/nx",
    "create -bn c1": "n",
    "create -b=/nx c1": "=/nx",
    "create --bundle= c1": None,
    "create -f /x.json -b /nx c1": None,
    "run -db /nx c1": "/nx",
}


@pytest.mark.parametrize(("line", "bundle"), RUNC.items())
def test_runcs_options_are_read_as_go_reads_them(line: str, bundle: str | None) -> None:
    """One dash or two, and after the container's name as well; the last one counts."""
    assert parse_call(words(line), "/usr/bin/runc").bundle == bundle


@pytest.mark.parametrize(("line", "bundle"), CRUN.items())
def test_cruns_options_are_read_as_the_c_library_reads_them(line: str, bundle: str | None) -> None:
    """Abbreviations and clusters, and nothing after the container's name."""
    assert parse_call(words(line), "/opt/bin/crun-1.20").bundle == bundle


@pytest.mark.runtime
@pytest.mark.parametrize(
    ("runtime", "line", "bundle"),
    [("runc", *pair) for pair in RUNC.items()]
    + [("crun", *pair) for pair in CRUN.items() if not pair[0].startswith("create -f")],
)
def test_the_runtimes_themselves_agree(runtime: str, line: str, bundle: str | None, tmp_path: Path) -> None:
    """The real runtime complains about the very bundle that we would have edited, or about the line."""
    need(runtime)
    result = run([runtime, *words(line)], cwd=str(tmp_path))
    assert result.status != 0
    told = " ".join(path.read_text() for path in tmp_path.iterdir()) + result.stderr + result.stdout
    asked = (f"chdir {bundle}:", f"chdir `{bundle}` failed", f"realpath `{bundle}` failed")
    assert any(text in told for text in asked) if bundle else "chdir" not in told


def test_no_bundle_is_the_current_folder() -> None:
    """So it is with an empty one, for runc."""
    assert parse_call(["create", "c1"], "runc").bundle == ""
    assert parse_call(["create", "--bundle=", "c1"], "runc").bundle == ""
