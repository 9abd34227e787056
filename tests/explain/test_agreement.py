"""Explain tells what the hook does, on every recorded case; and what its engine would do on the sample bundles.

test_explain.py has the sample bundles with nvidia-container-cli.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from gpuhook.backend.engine import prepare
from gpuhook.errors import GpuhookError
from gpuhook.explain.decide import explain
from gpuhook.explain.executable import LONGEST, require_executable
from gpuhook.explain.subject import from_bundle, from_variables
from gpuhook.hook import _decide, main
from gpuhook.oci.bundle import read_bundle
from gpuhook.oci.state import State
from gpuhook.request.build import build_request
from tests.replay_rules.case import load
from tests.replay_rules.mixtures import mixture, parts

PROJECT = Path(__file__).resolve().parents[2]
BUNDLES = PROJECT / "fixtures" / "bundles"
VECTORS = PROJECT / "fixtures" / "vectors"
PARTS = 8


def answers(file: Path, part: int = 0, parts: int = 1) -> dict[str, int]:
    """How often each decision was taken on the cases of a file; there must be no disagreement."""
    argv = [sys.executable, "-m", "tests.explain.agreement", str(file), str(part), str(parts)]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["disagreements"] == []
    counts: dict[str, int] = found["counts"]
    return counts


@pytest.mark.parametrize("part", range(PARTS))
def test_explain_and_hook_agree_on_every_recorded_case(part: int) -> None:
    """Left alone, refused for the same cause, or the very command line, each in the case's own surroundings."""
    counts = answers(VECTORS / "hook.jsonl", part, PARTS)
    assert counts["inject"] > 60
    assert counts["refuse"] > 40
    assert counts["skip"] > 8
    assert counts["unasked"] + counts.get("elsewhere", 0) < 25


def test_explain_and_hook_agree_on_the_cases_of_the_rules() -> None:
    """Those that nobody recorded and the deviation rules speak of."""
    assert answers(VECTORS / "rules.jsonl")["inject"] > 8


def test_explain_and_hook_agree_on_mixtures(tmp_path: Path) -> None:
    """Parts of recorded cases, put together anew."""
    found = parts(load(VECTORS / "hook.jsonl"))
    file = tmp_path / "mixtures.jsonl"
    file.write_text("".join(f"{json.dumps(mixture(1000 + seed, found).members)}\n" for seed in range(100)))
    assert answers(file)["inject"] > 10


SETTINGS = {
    "default": "",
    "mounts": "accept-nvidia-visible-devices-as-volume-mounts = true\n",
    "strict": "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n",
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """A driver with the GPUs that the sample bundles name."""
    return build(str(tmp_path_factory.mktemp("driver")), gpus=2)


@pytest.mark.parametrize("settings", sorted(SETTINGS))
@pytest.mark.parametrize("name", sorted(path.parent.name for path in BUNDLES.glob("*/config.json")))
def test_explain_and_engine_agree_on_every_bundle(
    name: str, settings: str, driver: FakeDriver, tmp_path: Path
) -> None:
    """Where the embedded engine does the work: the same cause, or the same operations in the same order."""
    config = tmp_path / "config.toml"
    text = f'[nvidia-container-cli]\nroot = "{driver.root}"\nload-kmods = false\n[gpuhook]\nbackend = "embedded"\n'
    config.write_text(SETTINGS[settings] + text)
    told = explain(from_bundle(str(BUNDLES / name)), str(config))
    outcome = [told.verdict, *(told.plan if told.error is None else [told.error.reference])]
    assert outcome == engine(str(BUNDLES / name), str(config))


def engine(path: str, config: str) -> list[str]:
    """What the hook and its engine decide, up to the first change: "skip", "refuse" and why, "inject" and the plan."""
    bundle = read_bundle(path)
    try:
        settings, choice, warnings = _decide(bundle, config)
        if choice is None:
            return ["skip"]
        request = build_request(State(pid=1 << 22, bundle=path), bundle, settings, choice, warnings)
        return ["inject", *(op.describe() for op in prepare(request, settings).plan.ops)]
    except GpuhookError as error:
        return ["refuse", error.reference]


ODD: dict[str, object] = {
    "null": None,
    "number": 5,
    "text": "x",
    "list": [1],
    "object": {"a": 1},
    "nested": {"prestart": [["x"], 5, None, {"path": 7}]},
    "surrogate": "\ud800",
}
UNREAD = (
    ("hooks",),
    ("hooks", "prestart"),
    ("linux",),
    ("linux", "devices"),
    ("linux", "resources"),
    ("annotations",),
    ("root", "readonly"),
    ("process", "rlimits"),
    ("process", "selinuxLabel"),
)


@pytest.mark.parametrize("odd", sorted(ODD))
@pytest.mark.parametrize("place", UNREAD, ids="-".join)
def test_what_the_hook_does_not_read_does_not_stop_explain(place: tuple[str, ...], odd: str, tmp_path: Path) -> None:
    """Sections of config.json that are the runtime's affair may hold anything."""
    spec: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]},
        "root": {"path": "rootfs"},
    }
    table = spec
    for key in place[:-1]:
        table = table.setdefault(key, {})
    table[place[-1]] = ODD[odd]
    (tmp_path / "config.json").write_text(json.dumps(spec))
    config = tmp_path / "config.toml"
    config.write_text('[nvidia-container-cli]\npath = "/bin/true"\n')
    told = explain(from_bundle(str(tmp_path)), str(config))
    assert told.verdict == "inject"
    assert not [one for one in (*told.warnings, *told.notes) if "check itself failed" in one.text]


def test_names_that_are_no_text_can_be_told_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """JSON can spell half of a character; an image's author may have done so."""
    spec = {
        "ociVersion": "1.0.2",
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=0\ud800", "NVIDIA_REQUIRE_X=\udfff"]},
        "root": {"path": "rootfs"},
    }
    (tmp_path / "config.json").write_text(json.dumps(spec))
    assert main(["explain", "--json", str(tmp_path)]) == 1
    assert json.loads(capfd.readouterr().out)["error"]["reference"] == "unknown-device"


def test_a_program_that_is_too_old_for_imex_is_foreseen(tmp_path: Path) -> None:
    """As the hook refuses it: a release that has no such option."""
    program = tmp_path / "nvidia-container-cli"
    program.write_bytes(Path(sys.executable).read_bytes()[:64] + b"--cuda-compat-mode")
    program.chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text(f'[nvidia-container-cli]\npath = "{program}"\n')
    told = explain(from_variables(["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_IMEX_CHANNELS=0"]), str(config))
    assert told.error is not None
    assert told.error.reference == "hook-binary-missing"
    assert "too old for IMEX channels" in told.error.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Exec format error"),
        (b"no program\n", "Exec format error"),
        (b"#!\n", "Exec format error"),
        (b"#!/does/not/exist -x\n", "No such file or directory"),
        (b"#! /bin/sh\n", ""),
        (b"\x7fELF...", ""),
    ],
)
def test_a_program_that_cannot_be_started_is_foreseen(text: bytes, why: str, tmp_path: Path) -> None:
    """By its first bytes, as the kernel does it."""
    program = tmp_path / "nvidia-container-cli"
    program.write_bytes(text)
    assert refusal((str(program), "configure")) == why


def test_an_argument_that_is_too_long_is_foreseen() -> None:
    """The kernel counts the byte after it."""
    assert refusal(("/bin/sh", "x" * (LONGEST - 1))) == ""
    assert refusal(("/bin/sh", "x" * LONGEST)) == "Argument list too long"


def refusal(argv: tuple[str, ...]) -> str:
    """Why a command cannot be started, without the program's name."""
    try:
        require_executable(argv)
    except GpuhookError as error:
        return error.text.rpartition(": ")[2]
    return ""
