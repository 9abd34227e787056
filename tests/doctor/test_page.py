"""The report as people read it: on terminals and in pipes, in any locale, with whatever names containers have."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.cli import main
from gpuhook.doctor.model import Finding, Report, tell
from gpuhook.doctor.node import Node
from gpuhook.doctor.render import markdown, page, verdict_of
from tests.rig.process import run

Host = Callable[[str], Node]
GPUHOOK = str(Path(sys.executable).with_name("gpuhook"))
SGR = re.compile(r"\x1b\[\d*m")


def report(*findings: Finding, verdict: str = "failure", container: str = "") -> Report:
    return Report.model_validate({"verdict": verdict, "container": container, "findings": findings})


def on_a_terminal(*words: str, **env: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    leader, follower = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LC_ALL": "C.UTF-8", **env}
    with subprocess.Popen([GPUHOOK, *words], stdout=follower, stderr=follower, stdin=follower, env=environ) as done:
        os.close(follower)
        said = b""
        try:
            while part := os.read(leader, 65536):
                said += part
        except OSError:  # the other end is closed (EIO)
            pass
    os.close(leader)
    assert done.returncode is not None
    return said.decode().replace("\r\n", "\n")


def test_colours_take_no_room_and_mean_nothing_by_themselves(host: Host) -> None:
    """The same lines with colours, with NO_COLOR, on a terminal that has none, and in a pipe."""
    words = ("doctor", "--root", host("docker-without-hook").root)
    coloured, plain = on_a_terminal(*words), on_a_terminal(*words, NO_COLOR="1")
    piped = run([GPUHOOK, *words], env={**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8"}).stdout
    assert "\x1b[31m✗\x1b[0m" in coloured
    assert "\x1b" not in plain + piped + on_a_terminal(*words, TERM="dumb")

    def timeless(text: str) -> str:
        return re.sub(r"in [\d.]+ s", "", SGR.sub("", text))

    assert timeless(coloured) == timeless(plain) == timeless(piped)
    assert max(map(len, piped.splitlines())) <= 80


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "words",
    [
        ("doctor", "--root", "{}"),
        ("doctor", "--markdown", "--root", "{}"),
        ("doctor", "--list"),
        ("why",),
        ("why", "nonstandard-ldcache"),
        ("explain", "--env", "NVIDIA_VISIBLE_DEVICES=…"),
        ("ps",),
    ],
    ids=" ".join,
)
def test_a_locale_without_our_signs_gets_others(words: tuple[str, ...], encoding: str, host: Host) -> None:
    """A page, and not a fault of gpuhook (a service's locale, an old terminal)."""
    root = host("driver-mismatch").root
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = run([GPUHOOK, *(word.format(root) for word in words)], env=env)
    assert "internal" not in done.stderr
    assert done.stdout
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    "words", [("doctor", "--json", "--container", "é\udcff"), ("why", "--json"), ("ps", "--json")]
)
def test_json_is_ascii_in_every_locale(words: tuple[str, ...]) -> None:
    """An escape of ours would not be one of JSON's; and names need not be text."""
    done = run([GPUHOOK, *words], env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.stdout.isascii(), done.stderr
    json.loads(done.stdout)


def test_the_verdict_is_the_containers_where_only_it_has_a_fault() -> None:
    """The node's own faults come first."""
    bad = tell("unknown-device", "failure", "container web: GPU 7 was requested")
    assert verdict_of(report(bad, container="web")) == "container web does not start, or gets no GPU: 1 failure"
    of_node = tell("gpu-lost", "failure", "GPU 1 does not answer")
    assert verdict_of(report(bad, of_node, container="web")).startswith("GPU containers will not work on this node")
    assert verdict_of(report(of_node)).endswith(": 1 failure")


def test_hostile_names_cannot_steer_a_terminal_or_a_page() -> None:
    """Of containers, of files, in logs: escaped on the screen, and no HTML in an issue."""
    evil = "\x1b[2J\u202e|<img src=x>\nok"
    one = tell("apparmor", "failure", f"container {evil}: {evil}", (evil, evil, evil), advice=evil)
    text = "\n".join(page(report(one, container=evil)))
    assert "\\x1b[2J\\u202e" in text
    assert "\x1b[2J" not in text
    issue = "\n".join(markdown(report(one, container=evil), Node()))
    assert "<img" not in issue
    assert "\x1b" not in issue
    rows = [line for line in issue.splitlines() if line.startswith("| failure")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [5]


def test_a_containers_name_is_masked_wherever_it_stands() -> None:
    """In the place of what was seen as well."""
    one = tell(
        "caps-compute", "warning", "container rosebud: only utility", ("docker inspect rosebud: Config.Env[0]",)
    )
    assert "rosebud" not in "\n".join(markdown(report(one, container="rosebud", verdict="warning"), Node()))


def test_what_is_fine_is_no_wall_of_text(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """No empty line between them."""
    main(["doctor", "-v", "--root", host("healthy-docker").root])
    lines = capsys.readouterr().out.splitlines()
    fine = [number for number, line in enumerate(lines) if line.startswith("✓ ") and number]
    assert len(fine) > 5
    assert "" not in lines[fine[0] : fine[-1]]


def test_the_last_lines_say_what_may_be_typed_next(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Repairs only where there are some."""
    for name, offered in (("docker-without-hook", True), ("driver-mismatch", False), ("config-unknown-key", True)):
        main(["doctor", "--root", host(name).root])
        out = capsys.readouterr().out
        assert "gpuhook why REFERENCE" in out
        assert ("`gpuhook doctor --fix` offers repairs" in out) == offered


@pytest.mark.parametrize(
    ("slug", "words"),
    [
        ("driver-lib-missmatch", "did you mean driver-lib-mismatch?"),
        ("gpus-quoting", "gpuhook why gpus-quoting"),
        ("caps-compute", "--container NAME"),
    ],
)
def test_a_slug_that_is_no_check_of_this_run(slug: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Never "no fault found" for a check that was not made."""
    assert main(["doctor", "--only", slug]) == 2
    assert words in capfd.readouterr().err


def test_lists_are_a_line_an_entry_for_programs_and_fit_a_terminal() -> None:
    """`gpuhook doctor --list | while read slug title`."""
    for words in (("doctor", "--list"), ("why",)):
        piped = run([GPUHOOK, *words]).stdout.splitlines()
        assert all(re.match(r"[a-z0-9-]+  *\S", line) for line in piped)
        assert max(map(len, on_a_terminal(*words).splitlines())) <= 80
