"""The case of fixtures/cases about rootless engines, in the user's own runc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.rootless.test_runc import MAPPED, Bundle, bundle
from tests.engine.test_cases import FOLDER, config_of, driver_of, patched, warnings

__all__ = ["bundle"]  # a fixture
pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

CASE = json.loads((FOLDER / "rootless-default.json").read_text())
RUNS = {run["name"]: (patched(CASE["given"], run.get("change", {})), run["expect"]) for run in CASE["runs"]}


def config(bundle: Bundle, given: dict[str, Any], log: str) -> str:
    """The case's configuration, with its driver, and for the other backend a program that tells what it was given."""
    text = config_of(given, driver_of(given, Path(bundle.folder, "driver"))).replace("no-cgroups = true\n", "")
    if given.get("backend") == "cli":
        program = bundle.user.script(f'echo "$@" > {log}\n')
        text = text.replace('backend = "embedded"', 'backend = "nvidia-container-cli"')
        text = text.replace("[nvidia-container-cli]\n", f'[nvidia-container-cli]\npath = "{program}"\n')
    path = bundle.user.log()
    Path(path).write_text(text)
    return path


@pytest.mark.parametrize("name", RUNS)
def test_rootless_default(bundle: Bundle, name: str) -> None:
    """Nothing has to be configured, and what is configured wrongly is said and does not stop the container."""
    given, expected = RUNS[name]
    log = bundle.user.log()
    alone = len(given["host"]["uid_map"]) == 1
    mapped = [dict(each) for each in MAPPED[: 1 if alone else None]]
    done = bundle.run(
        "/bin/probe", "devices", config=config(bundle, given, log), uidMappings=mapped, gidMappings=mapped
    )
    assert done.status == expected["exit"], done.stderr
    slugs = warnings(bundle.said)
    assert set(expected.get("warns", [])) <= set(slugs)
    assert set(expected.get("warns_not", [])).isdisjoint(slugs)
    assert [text for text in expected.get("says", []) if text not in bundle.said] == []
    words = Path(log).read_text().split()
    assert [word for word in expected.get("cli_args", []) if word not in words] == []
    if not words:
        nodes = {f"/dev/nvidia{gpu['minor']}" for gpu in given["host"]["gpus"] if gpu["uuid"] in expected["gpus"]}
        assert nodes == {path for path in done.seen.devices if path[len("/dev/nvidia") :].isdecimal()}
