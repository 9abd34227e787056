"""The launcher's shell part and Python decide alike: the same low-level runtime, words, environment and output."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from statistics import median

import pytest

from gpuhook.runtime.kept import keep
from tests.rig.process import PATH, run
from tests.shim.stand import Stand, write_launchers, write_program

WORDS = (
    "create", "run", "state", "kill", "delete", "exec", "list", "c1", "--root", "--root=create", "-b", "--bundle",
    "--", "--help", "-h", "-v", "-V", "--v", "--version", "-version", "-version=1", "-v=true", "-vq", "-dv", "--log",
    "x", "", "a b", "*", "$(x)", "\\", "'", "\n", "ü", "--debug", "--systemd-cgroup", "-f", "-",
)  # fmt: skip
NOISE = ("PWD", "OLDPWD", "SHLVL", "_", "NVIDIA_CTK_CONFIG_FILE_PATH")


@pytest.fixture
def ways(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Two environments: with the one the shell decides as far as it may, with the other Python decides always."""
    monkeypatch.setattr("gpuhook.runtime.kept.SETTLED", 0)
    config, kept = Path(stand.config()), stand.folder / "kept"
    os.utime(config, ns=(then := time.time_ns() - 10**11, then))
    stand.shim = write_launchers(stand.folder, config=str(config), kept=str(kept))
    path = f"{stand.folder}:{PATH}"  # where Python finds the same runtime by its usual name
    keep(stand.runc, {b"PATH": path.encode()}, default=str(config), folder=str(kept))
    return [{"PATH": path}, {"PATH": path, "NVIDIA_CTK_CONFIG_FILE_PATH": str(config)}]


def outcome(stand: Stand, words: list[str], env: dict[str, str], bundle: Path) -> object:
    """All that a caller and the low-level runtime see."""
    stand.forget()
    result = run([stand.shim, *words], env=env, cwd=str(bundle))
    environ = {name: value for name, value in stand.environ.items() if name not in NOISE} if stand.argv else {}
    return result.status, result.stdout, result.stderr, stand.argv, environ


@pytest.mark.parametrize("seed", range(4))
def test_both_ways_come_to_the_same(stand: Stand, ways: list[dict[str, str]], seed: int) -> None:
    """Whatever the words are, in whatever order."""
    chance, bundle = random.Random(seed), stand.bundle()  # no secret
    for _ in range(25):
        words = [chance.choice(WORDS) for _ in range(chance.randint(0, 6))]
        shell, python = (outcome(stand, words, env, bundle) for env in ways)
        assert shell == python, words


@pytest.mark.parametrize("way", [0, 1], ids=["shell", "python"])
@pytest.mark.parametrize("name", ["TERM", "KILL", "INT"])
def test_a_signal_is_the_low_level_runtimes(stand: Stand, ways: list[dict[str, str]], way: int, name: str) -> None:
    """It is the process that was started, so it dies of what it gets, and nobody is left."""
    write_program(Path(stand.runc), f"#!/bin/sh\nkill -{name} $$\nsleep 5\n")
    number = {"TERM": 15, "KILL": 9, "INT": 2}[name]
    assert run([stand.shim, "state", "c1"], env=ways[way]).status == -number


@pytest.mark.runtime
def test_what_makes_no_container_costs_next_to_nothing(stand: Stand, ways: list[dict[str, str]]) -> None:
    """Less than the 4 ms of NVIDIA's shim, in the middle of many pairs with the runtime alone."""
    write_program(Path(stand.runc), "#!/bin/true\n")
    differences = []
    for _ in range(60):
        alone = run([stand.runc, "state", "c1"], env=ways[0])
        through = run([stand.shim, "state", "c1"], env=ways[0])
        assert (alone.status, through.status) == (0, 0)
        differences.append(through.seconds - alone.seconds)
    assert median(differences) < 0.004
