"""A docker command line, as docker reads it."""

from __future__ import annotations

import pytest

from gpuhook.docker_cli import Line, parse_line


@pytest.mark.parametrize(
    ("line", "command", "at"),
    [
        ("run img", "run", 1),
        ("create img", "create", 1),
        ("version", "version", 1),
        ("container run img", "run", 2),
        ("container create img", "create", 2),
        ("-H tcp://h run img", "run", 3),
        ("-Htcp://h run img", "run", 2),
        ("--host=tcp://h run img", "run", 2),
        ("-D --tls --log-level debug run img", "run", 5),
        ("-Dl debug run img", "run", 3),
        ("-c run run img", "run", 3),
        ("--context run ps", "", 0),
        ("--config /run/create run img", "run", 3),
        ("--tlscacert a --tlscert b --tlskey c create img", "create", 7),
        ("container --help run", "run", 3),
        ("--some-new-switch run img", "run", 2),
        ("", "", 0),
        ("--version", "", 0),
        ("-v", "", 0),
        ("exec c run", "", 0),
        ("help run", "", 0),
        ("compose run svc", "", 0),
        ("service create img", "", 0),
        ("volume create v", "", 0),
        ("network create n", "", 0),
        ("image build --target run .", "", 0),
        ("build -t run .", "", 0),
        ("container exec c run", "", 0),
        ("container", "", 0),
        ("-- run img", "", 0),
        ("RUN img", "", 0),
        ("runx img", "", 0),
        ("- run", "", 0),
        ("-H", "", 0),
    ],
)
def test_only_dockers_own_command_counts(line: str, command: str, at: int) -> None:
    """Its place is after the global options, whose values are no commands; groups and plug-ins are left alone."""
    found = parse_line(line.split())
    assert (found.command, found.insert_at) == (command, at)


@pytest.mark.parametrize(
    ("line", "name", "values"),
    [
        ("run --runtime runc img", "runtime", ["runc"]),
        ("run --runtime=runc img", "runtime", ["runc"]),
        ("run -it --rm -eA=b -e C=d --env E=f -e=G img -e no", "env", ["A=b", "C=d", "E=f", "G"]),
        ("run -itev A=b img", "env", ["v"]),
        ("run -ite A=b img", "env", ["A=b"]),
        ("run --privileged --gpus all img", "gpus", ["all"]),
        ("run --privileged img", "privileged", ["true"]),
        ("run --privileged=false img", "privileged", ["false"]),
        ("run -v --runtime=x img", "runtime", []),
        ("run --name --runtime=x img", "runtime", []),
        ("run img --runtime=x", "runtime", []),
        ("run -- --runtime=x", "runtime", []),
        ("run --env-file f --env-file=g img", "env-file", ["f", "g"]),
        ("run -w=/x --runtime=x img", "runtime", ["x"]),
        ("run -d=false --runtime=x img", "runtime", ["x"]),
        ("run --runtime", "runtime", [""]),
    ],
)
def test_the_users_own_options_are_seen(line: str, name: str, values: list[str]) -> None:
    """In every spelling, up to the image; what follows it is the container's."""
    assert parse_line(line.split()).values(name) == values


def test_a_line_without_options() -> None:
    """Nothing is found then."""
    assert parse_line(["run"]) == Line(command="run", insert_at=1)
