"""The cases of fixtures/cases in which engines call the shim: what becomes of the specification, and who is called."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.driver.build import build
from tests.engine.test_cases import FOLDER, patched
from tests.rig.needs import need
from tests.rig.process import PATH, Result, run
from tests.shim.stand import Stand, spec_of

pytestmark = pytest.mark.engine

STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
GPU_NAMES = ("nvidia-container-runtime-hook", "nvidia-container-toolkit", "gpuhook")
# An ordinary host of the cases runs systemd; here that is seen inside a mount namespace only.
ON_SYSTEMD = 'mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec "$0" "$@"'


def runs() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, what is given, and what is expected, for each run of the shim."""
    for file in sorted(FOLDER.glob("*.json")):
        case = json.loads(file.read_text())
        for each in case["runs"]:
            given = patched(case["given"], each.get("change", {}))
            if given.get("entry") == "runtime":
                yield f"{case['id']}: {each['name']}", given, each["expect"]


RUNS = {name: (given, expected) for name, given, expected in runs()}


class Node(Stand):
    """A node as a case describes it, with a recorder as runc."""

    def call(self, given: dict[str, Any], bundle: Path) -> Result:
        """Call the shim as the case says, where systemd runs."""
        lines = given.get("config_toml", [])
        text = "\n".join([*lines, "" if lines else "[nvidia-container-runtime]"])
        config = self.write("config.toml", f'{text}\n[nvidia-container-cli]\nroot = "{self.root}"\n')
        words = [str(bundle) if word == "@BUNDLE@" else word for word in given["argv"]]
        env = {"PATH": f"{self.folder}:{PATH}", "NVIDIA_CTK_CONFIG_FILE_PATH": config}
        return run(["unshare", "--mount", "sh", "-c", ON_SYSTEMD, self.shim, *words], env=env, cwd=str(bundle))


def bundle_of(given: dict[str, Any], folder: Path) -> Path:
    """The case's bundle."""
    (folder / "rootfs").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(given["spec"], indent=2))
    return folder


def gpu_hooks(spec: dict[str, Any]) -> list[str]:
    """The paths of all GPU hooks, in every stage."""
    paths = [entry["path"] for stage in STAGES for entry in spec.get("hooks", {}).get(stage, [])]
    return [path for path in paths if path.rpartition("/")[2].removesuffix(".real") in GPU_NAMES]


def rules(spec: dict[str, Any]) -> dict[str, str]:
    """The allow rules of character devices: "c 195:0" → letters."""
    found = spec["linux"]["resources"].get("devices", [])
    return {
        f"c {rule['major']}:{rule['minor']}": rule["access"] for rule in found if rule["allow"] and "major" in rule
    }


def check(expected: dict[str, Any], given: dict[str, Any], spec: dict[str, Any]) -> None:
    """What stands in the specification now."""
    nodes = {node["path"]: node for node in spec["linux"].get("devices", [])}
    if "gpus" in expected:
        minors = [gpu["minor"] for gpu in given["host"]["gpus"] if gpu["uuid"] in expected["gpus"]]
        assert {path for path in nodes if path[-1].isdigit()} == {f"/dev/nvidia{minor}" for minor in minors}
        assert len(gpu_hooks(spec)) == 1
    assert len(gpu_hooks(spec)) == expected.get("gpu_hooks", len(gpu_hooks(spec)))
    assert set(expected.get("spec_devices", [])) <= set(nodes)
    assert set(expected.get("spec_devices_not", [])).isdisjoint(nodes)
    for rule in expected.get("spec_rules", []):
        device, _, letters = rule.rpartition(" ")
        assert set(letters) <= set(rules(spec)[device])


@pytest.mark.parametrize("name", RUNS)
def test_case(tmp_path: Path, name: str) -> None:
    """The low-level runtime gets the words unchanged, and the specification is the right one for the user."""
    need("gcc", "unshare")
    given, expected = RUNS[name]
    host = given["host"]
    node = Node(tmp_path)
    node.root = build(str(tmp_path / "driver"), version=host["driver"]["module"], gpus=host["gpus"]).root
    bundle = bundle_of(given, tmp_path / "bundle")
    before = (bundle / "config.json").read_bytes()
    result = node.call(given, bundle)
    assert result.status == 0, result.stderr
    assert node.argv == [node.runc, *(str(bundle) if word == "@BUNDLE@" else word for word in given["argv"])]
    assert expected["decision"] in ("inject", "pass-through")
    if expected["decision"] == "pass-through":
        assert (bundle / "config.json").read_bytes() == before
    else:
        check(expected, given, spec_of(bundle))


def test_all_cases_of_the_shim_are_here() -> None:
    """A case that is added is run, and its expectations are all understood."""
    known = {
        "decision", "exit", "gpus", "capabilities", "warns", "spec_unchanged", "spec_devices", "spec_devices_not",
        "spec_rules", "gpu_hooks",
    }  # fmt: skip
    assert len(RUNS) >= 10
    assert set().union(*(expected.keys() for _, expected in RUNS.values())) <= known
