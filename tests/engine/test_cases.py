"""The cases of fixtures/cases: what users ran into, with the embedded engine, on a real process and a fake driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.driver.build import build
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import RULES, Node, state_of

pytestmark = pytest.mark.engine

FOLDER = Path(__file__).resolve().parents[2] / "fixtures/cases"
USUAL_CONFIG = "/etc/nvidia-container-runtime/config.toml"
TABLE = "[nvidia-container-cli]"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
# Case or run → why it is not run here.
ELSEWHERE = {
    "image-has-driver-files": "tests/engine/test_whole.py has its image",
    "ldconfig-real-absent": "the engine runs no ldconfig; tests/backend/test_cli.py has the search for one",
    "rootless-default": "tests/daemons/rootless/test_case.py has it",
    "config-missing: named file is absent": "tests/bad_input/test_settings.py has it",
}


def patched(value: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    base = value if isinstance(value, dict) else {}
    merged = {**base, **{key: patched(base.get(key), item) for key, item in patch.items()}}
    return {key: item for key, item in merged.items() if item is not None or key not in patch}


def runs() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, what is given, and what is expected, for each run of the hook with this engine."""
    for file in sorted(FOLDER.glob("*.json")):
        case = json.loads(file.read_text())
        for run in case["runs"]:
            given = patched(case["given"], run.get("change", {}))
            served = given.get("entry", "hook") == "hook" and given.get("backend", "engine") == "engine"
            name = f"{case['id']}: {run['name']}"
            if served and case["id"] not in ELSEWHERE and name not in ELSEWHERE:
                expected = run["expect"]
                yield name, given, expected[0] if isinstance(expected, list) else expected


RUNS = {name: (given, expected) for name, given, expected in runs()}


def config_of(given: dict[str, Any], root: str) -> str:
    """The case's config.toml, with the driver root and this engine at the ends of their tables."""
    lines = list(given.get("config_toml", []))
    place = lines.index(TABLE) + 1 if TABLE in lines else len(lines)
    while place < len(lines) and not lines[place].startswith("["):
        place += 1
    rules = [f"{key} = true" for key in RULES if not any(line.startswith(key) for line in lines)]
    ours = [*([] if TABLE in lines else [TABLE]), f'root = "{root}"', *rules]
    return "\n".join([*lines[:place], *ours, *lines[place:], "[gpuhook]", 'backend = "embedded"', ""])


def driver_of(given: dict[str, Any], folder: Path) -> str:
    """The driver root of the case's host."""
    host = given["host"]["driver"]
    cuda = tuple(int(part) for part in host["cuda"].split("."))
    return build(
        str(folder), version=host["module"], libraries_version=host["libraries"], cuda=(cuda[0], cuda[1]),
        gpus=given["host"]["gpus"], imex_channels=channels_in(given["host"].get("files", ())),
    ).root  # fmt: skip


def channels_in(paths: Iterable[str]) -> list[int]:
    """The numbers of the IMEX channels among these nodes."""
    return [int(path.removeprefix(CHANNEL)) for path in paths if path.startswith(CHANNEL)]


def warnings(stderr: str) -> list[str]:
    return [line.split(": ")[2] for line in stderr.splitlines() if line.startswith("gpuhook: warning: ")]


def check_texts(expected: dict[str, Any], stderr: str) -> None:
    """What is said, and what is not."""
    said = stderr.lower()
    for text in expected.get("says", []):
        choices = text if isinstance(text, list) else [text]
        assert any(choice.lower() in said for choice in choices), (choices, stderr)
    assert [text for text in expected.get("says_not", []) if text.lower() in said] == []
    first = said.partition("\n")[0]
    assert [text for text in expected.get("first_line_says_not", []) if text.lower() in first] == []
    slugs = warnings(stderr)
    if "warns" in expected:
        assert set(slugs) == set(expected["warns"])
    assert set(slugs).isdisjoint(expected.get("warns_not", []))


def check_injection(expected: dict[str, Any], given: dict[str, Any], init: Init, rules: list[str]) -> None:
    """The GPUs, files and device rules that the container has now."""
    points = init.mount_points
    minors = {path.removeprefix("/dev/nvidia") for path in points if path.startswith("/dev/nvidia")}
    gpus = [gpu["uuid"] for gpu in given["host"]["gpus"] if str(gpu["minor"]) in minors]
    assert gpus == expected["gpus"]
    assert channels_in(points) == expected.get("imex_channels", [])
    names = {path.rpartition("/")[2] for path in points}
    assert set(expected.get("injects", [])) <= names
    assert names.isdisjoint(expected.get("injects_not", []))
    if "device_rules" in expected and init.group_path:
        assert (init.rules != rules) == (expected["device_rules"] == "written")


@pytest.mark.parametrize("name", RUNS)
def test_case(node: Node, tmp_path: Path, name: str) -> None:
    """The outcome is the right one for the user, and a container that is skipped or refused is left as it was."""
    given, expected = RUNS[name]
    config = tmp_path / "config.toml"
    config.write_text(config_of(given, driver_of(given, tmp_path / "driver")))
    spec = given["spec"]
    with Init(make_rootfs(str(tmp_path / "rootfs"), "debian"), group=not RULES) as init:
        changes = {key: spec[key] for key in ("linux", "mounts") if key in spec}
        process = {**spec["process"], "args": ["true"]}
        files, mounts, rules = state_of(init.rootfs), init.mounts, init.rules if init.group_path else []
        done = node.prestart(init, config=str(config), process=process, ociVersion=spec["ociVersion"], **changes)
        assert done.status == (1 if expected["decision"] == "refuse" else 0), done.stderr
        check_texts(expected, done.stderr.replace(str(config), USUAL_CONFIG))
        if expected["decision"] == "inject":
            check_injection(expected, given, init, rules)
        else:
            assert files.differences(state_of(init.rootfs)) == []
            assert (init.mounts, init.rules if init.group_path else []) == (mounts, rules)
    if "reference" in expected:
        assert done.stderr.startswith(f"gpuhook: {expected['reference']}: ")
