"""Repairs: shown, asked for, done, and the finding is gone."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.cli import main
from gpuhook.doctor.command import examine
from gpuhook.doctor.fix import Repair, repairs
from gpuhook.doctor.node import Node
from gpuhook.doctor.repairs import LdconfigFailed, corrected

Host = Callable[[str], Node]


def fix(node: Node, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What --fix says with this answer to every question."""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n" * 9))
    main(["doctor", "--fix", "--root", node.root])
    return capsys.readouterr().out


def slugs(node: Node) -> set[str]:
    """What is left on a host."""
    return {finding.slug for finding in examine(Node(node.root)).findings if finding.level != "ok"}


@pytest.mark.parametrize(
    ("name", "slug", "shown"),
    [
        ("no-dev-char-links", "systemd-reload-loses-gpu", "ln -s ../nvidiactl /dev/char/195:255"),
        ("config-unknown-key", "config-toml-broken", '+swarm-resource = "DOCKER_RESOURCE_GPU"'),
        ("podman-without-hook", "podman-hooks-dir", "+++ "),
        ("crio-without-hook", "crio-hooks-dir", "+[crio.runtime.runtimes.nvidia]"),
        ("containerd-without-runtime", "containerd-config", "runtimes.nvidia"),
    ],
)
def test_a_repair_is_shown_and_done(
    name: str,
    slug: str,
    shown: str,
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The change is printed first; after it the finding is gone."""
    node = host(name)
    assert slug in slugs(node)
    out = fix(node, "y", monkeypatch, capsys)
    assert shown in out
    assert out.index(shown) < out.index("do it? [y/N]")
    assert slug not in slugs(node)


@pytest.mark.parametrize("answer", ["", "n", "perhaps"])
def test_nothing_is_done_without_a_yes(
    answer: str, host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where standard input is at its end."""
    node = host("no-dev-char-links")
    fix(node, answer, monkeypatch, capsys)
    assert not Path(node.root, "dev/char").exists()


def test_docker_is_registered_as_install_does_it(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One repair for both findings: the programs and daemon.json, shown as a diff."""
    node = host("docker-without-hook")
    found = list(repairs(examine(node), node))
    assert [one.slug for one in found] == ["engine-no-gpu-driver"]
    assert '"path": "/usr/local/bin/gpuhook-runtime"' in found[0].shows
    fix(node, "y", monkeypatch, capsys)
    [left] = [one for one in examine(Node(node.root)).findings if one.slug == "engine-no-gpu-driver"]
    assert "was installed after dockerd was started" in left.text
    assert "gpuhook-runtime" in Path(node.root, "etc/docker/daemon.json").read_text()


def test_links_come_back_at_every_boot(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By tmpfiles.d, for the numbers that stay the same; and the links that exist are left alone."""
    node = host("no-dev-char-links")
    (Path(node.root) / "dev/char").mkdir(parents=True)
    (Path(node.root) / "dev/char/195:0").symlink_to("../elsewhere")
    fix(node, "y", monkeypatch, capsys)
    lines = Path(node.root, "etc/tmpfiles.d/gpuhook-dev-char.conf").read_text().splitlines()
    assert lines == ["L+ /dev/char/195:255 - - - - ../nvidiactl"]
    assert os.readlink(f"{node.root}/dev/char/195:0") == "../elsewhere"
    assert os.readlink(f"{node.root}/dev/char/508:0") == "../nvidia-uvm"


@pytest.mark.skipif(os.geteuid() != 0, reason="ldconfig -r takes root")
def test_ldconfig_makes_the_cache_anew(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The host's own, for a tree with -r."""
    node = host("ldcache-stale")
    out = fix(node, "y", monkeypatch, capsys)
    assert f"ldconfig -r {node.root}" in out
    assert "ldcache-stale" not in slugs(node)


def test_the_old_config_is_kept_beside(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mode and all."""
    node = host("config-unknown-key")
    path = Path(node.root, "etc/nvidia-container-runtime/config.toml")
    before, mode = path.read_bytes(), path.stat().st_mode
    fix(node, "y", monkeypatch, capsys)
    assert path.with_name("config.toml.before-gpuhook").read_bytes() == before
    assert path.stat().st_mode == mode


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("disable-requires = true\n", "disable-require = true\n"),
        (
            '[nvidia-container-cli]\nldconfi = "@/sbin/ldconfig" # why\n',
            '[nvidia-container-cli]\nldconfig = "@/sbin/ldconfig" # why\n',
        ),
        ("disable-requires = true\r\n", "disable-require = true\r\n"),
        ("ldconfig = 1\n", "ldconfig = 1\n"),  # of another table: not a matter of spelling
        ("something-else = 1\n", "something-else = 1\n"),
        ("disable-require = true\ndisable-requires = true\n", "disable-require = true\ndisable-requires = true\n"),
        ("disable-requires = 7\n", "disable-requires = 7\n"),  # right spelling would make it wrong
        ("no toml", "no toml"),
    ],
)
def test_only_spelling_is_corrected(before: str, after: str) -> None:
    """Everything else stays, byte for byte."""
    assert corrected(before) == after


def test_where_nothing_can_be_repaired_it_is_said(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is asked."""
    out = fix(host("driver-mismatch"), "y", monkeypatch, capsys)
    assert "nothing here that gpuhook can repair" in out
    assert "do it?" not in out


@pytest.mark.parametrize("stdin", [None, io.StringIO("")])
def test_nobody_to_ask_is_a_no(
    stdin: io.StringIO | None, host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard input closed, or at its end (a job of cron)."""
    node = host("no-dev-char-links")
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["doctor", "--fix", "--root", node.root]) == 1
    assert capsys.readouterr().out.endswith("do it? [y/N] \n")
    assert not Path(node.root, "dev/char").exists()


def test_new_programs_are_named_and_not_shown(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a person has to judge is the change of a file of theirs."""
    out = fix(host("docker-without-hook"), "n", monkeypatch, capsys)
    assert re.search(r"^new file /usr/local/bin/nvidia-container-runtime-hook \(\d+ lines\)$", out, re.MULTILINE)
    assert '"path": "/usr/local/bin/gpuhook-runtime"' in out
    assert "#!" not in out
    assert len(out.splitlines()) < 70


def test_a_repair_that_fails_leaves_the_others_their_turn(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the exit status tells."""

    def refused(*_: object) -> None:
        raise LdconfigFailed("it ended with \x1b[2J", hint="run it by hand")

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/dev/char")

    done: list[str] = []
    kinds: list[tuple[str, Callable[[], None]]] = [
        ("a", lambda: refused()),
        ("b", lambda: denied()),
        ("c", lambda: done.append("c")),
    ]
    monkeypatch.setattr("gpuhook.doctor.fix.repairs", lambda *_: [Repair(s, s, "shown\n", do) for s, do in kinds])
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 3))
    assert main(["doctor", "--fix", "--root", host("healthy-docker").root]) == 2
    out = capsys.readouterr().out
    assert "not done: it ended with \\x1b[2J (run it by hand)" in out
    assert "not done: Permission denied: /dev/char" in out
    assert done == ["c"]


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_repairs_are_for_people(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What programs read is not mixed with questions."""
    assert main(["doctor", "--fix", form]) == 2
    assert "--fix asks a person" in capfd.readouterr().err
