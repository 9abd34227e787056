import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.replay_rules.case import load
from tests.replay_rules.mixtures import mixture, parts

VECTORS = Path(__file__).parent.parent / "fixtures" / "vectors"
FORKED = ("--fork", "--preload", "gpuhook.settings.decide")
ENTRY = "gpuhook.cli:main"
SCRIPT = str(Path(sys.executable).parent / "gpuhook")
LAST_LINE = re.compile(r"(\d+) passed, (\d+) failed")


def replay(*args: str) -> tuple[int, int, str]:
    """How many cases passed and failed, and all that was printed."""
    command = [sys.executable, "-m", "tests.replay", *args]
    done = subprocess.run(command, cwd=VECTORS.parent.parent, capture_output=True, text=True, timeout=570, check=False)
    assert "" == done.stderr
    last = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert last is not None
    passed, failed = map(int, last.groups())
    assert done.returncode == (1 if failed else 0)
    return passed, failed, done.stdout


def write(path: Path, *cases: Mapping[str, object]) -> str:
    """A vector file of these cases."""
    path.write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    return str(path)


def test_every_recorded_case_of_the_hook_is_explained() -> None:
    """It does what the reference did, or what a rule says."""
    passed, failed, text = replay(*FORKED, str(VECTORS / "hook.jsonl"), ENTRY)

    assert 0 == failed, text
    assert 1400 < passed


def test_cases_made_for_the_rules_are_explained() -> None:
    """So it is with inputs that nobody recorded and that the rules speak of."""
    passed, failed, text = replay(*FORKED, str(VECTORS / "rules.jsonl"), ENTRY)

    assert 0 == failed, text
    assert 20 < passed


def test_mixtures_of_recorded_cases_are_explained(tmp_path: Path) -> None:
    """Rules hold together, too, and for inputs that they were not written for."""
    found = parts(load(VECTORS / "hook.jsonl"))
    file = write(tmp_path / "mixtures.jsonl", *(mixture(seed, found).members for seed in range(400)))

    passed, failed, text = replay(*FORKED, file, ENTRY)

    assert 0 == failed, text
    assert 400 == passed


def test_the_installed_script_does_the_same() -> None:
    """A sample goes the whole way: a process of its own, as a runtime starts it."""
    passed, failed, text = replay("--every", "20", str(VECTORS / "hook.jsonl"), SCRIPT)

    assert 0 == failed, text
    assert 60 < passed


CASE = {
    "kind": "hook",
    "name": "one",
    "tags": ["a"],
    "env_of_hook": {"PATH": "{path}"},
    "config_toml": '[nvidia-container-cli]\npath = "{cli}"\n',
    "state": {"pid": 7, "bundle": "{bundle}"},
    "config_json": {
        "ociVersion": "1.0.2",
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]},
        "root": {"path": "{rootfs}"},
    },
    "expect": {"exit": 0, "exec": True, "argv": ["{cli}", "--require=b", "--require=a", "{rootfs}"], "extra_env": {}},
}
REFUSED = {**CASE, "name": "two", "tags": ["b"], "expect": {"exit": 1, "exec": False}}
HANDS_OVER = """\
import os, sys
spec = os.getcwd()
cli = os.path.join(os.path.dirname(spec), "bin", "nvidia-container-cli")
os.execve(cli, [cli, {words}, os.path.join(spec, "rootfs")], {{**os.environ, **{changes}}})
"""


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (HANDS_OVER.format(words="'--require=a', '--require=b'", changes={}), ""),
        (HANDS_OVER.format(words="'--require=a'", changes={}), "argv lacks '--require=b'"),
        (HANDS_OVER.format(words="'--require=b', '--require=a', '--evil'", changes={}), "argv has '--evil'"),
        (
            HANDS_OVER.format(words="'--require=a', '--require=b'", changes={"X": "1"}),
            "variable X: expected unchanged",
        ),
        ("", "it handed over: False, expected: True"),
        ("raise SystemExit('gpuhook: no')", "exit 1, expected 0"),
        ("import time; raise ValueError", "it ended in a traceback"),
    ],
)
def test_what_differs_is_told(tmp_path: Path, program: str, told: str) -> None:
    """Another argument, variable, status or manner is a failure."""
    fake = tmp_path / "fake.py"
    fake.write_text(program)

    _, failed, text = replay(write(tmp_path / "v.jsonl", CASE), sys.executable, str(fake))

    assert bool(told) == bool(failed), text
    assert told in text


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("raise SystemExit('gpuhook: no')", ""),
        ("raise SystemExit(1)", "it failed without a line that begins with 'gpuhook: '"),
        ("", "exit 0, expected a failure"),
        (HANDS_OVER.format(words="'x'", changes={}), "it handed over: True, expected: False"),
    ],
)
def test_a_refusal_is_a_failure_that_says_why(tmp_path: Path, program: str, told: str) -> None:
    """Any status but 0 will do, but not without a message, and nothing may be handed over."""
    fake = tmp_path / "fake.py"
    fake.write_text(program)

    _, failed, text = replay(write(tmp_path / "v.jsonl", REFUSED), sys.executable, str(fake))

    assert bool(told) == bool(failed), text
    assert told in text


def test_a_rule_whose_prediction_is_not_met_is_a_failure(tmp_path: Path) -> None:
    """A rule excuses nothing: what it predicts must happen."""
    fake = tmp_path / "fake.py"
    fake.write_text(HANDS_OVER.format(words="'--require=a', '--require=b'", changes={}))
    state = {"pid": 0, "bundle": "{bundle}"}

    _, failed, text = replay(write(tmp_path / "v.jsonl", {**CASE, "state": state}), sys.executable, str(fake))

    assert 1 == failed
    assert "under the rule: a pid of 0 or less" in text


def test_cases_can_be_chosen(tmp_path: Path) -> None:
    """--only takes a tag or a part of the name, and may be given several times."""
    file = write(tmp_path / "v.jsonl", CASE, REFUSED)
    fake = [sys.executable, "-c", "raise SystemExit('gpuhook: no')"]

    assert (1, 0) == replay("--only", "b", file, *fake)[:2]
    assert (1, 1) == replay("--only", "b", "--only", "on", file, *fake)[:2]
    assert (0, 0) == replay("--only", "c", file, *fake)[:2]


def test_a_need_that_this_machine_lacks_skips_the_case(tmp_path: Path) -> None:
    """A case says what the machine must be for it to hold."""
    file = write(tmp_path / "v.jsonl", {**CASE, "needs": ["another planet"]})

    passed, failed, text = replay(file, sys.executable, "-c", "")

    assert (0, 0) == (passed, failed)
    assert "skipped one: the need 'another planet' is unknown" in text


@pytest.mark.parametrize("name", ["runtime.jsonl", "docker-wrapper.jsonl"])
def test_cases_of_the_other_programs_can_be_replayed(name: str) -> None:
    """The same format serves the shim and the wrapper; a program that does nothing fails nearly all."""
    passed, failed, _ = replay("--jobs", "2", str(VECTORS / name), sys.executable, "-c", "")

    assert passed < 20 < failed
