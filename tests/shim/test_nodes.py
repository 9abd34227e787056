"""The rule about device nodes in the specification, held against a driver: the shim writes what it predicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.replay_rules.case import Case, load
from tests.replay_rules.nodes import has_systemd, host_devices, with_devices
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.shim import look_at_shim, with_hook
from tests.shim.stand import SPEC, Stand, spec_of
from tests.test_replay import VECTORS

ARGS = ("--systemd-cgroup", "create", "--bundle", "{bundle}", "c1")
SLICE = {"cgroupsPath": "system.slice:docker:c1", "resources": {"devices": [{"allow": False, "access": "rwm"}]}}


def case_of(env: tuple[str, ...]) -> Case:
    """A recorded case's input, with this environment, and with systemd's names for cgroups."""
    recorded = next(case for case in load(VECTORS / "runtime.jsonl") if case.name == "args-bundle").members
    spec: dict[str, Any] = json.loads(json.dumps({**SPEC, "linux": SLICE}))
    spec["process"]["env"] += env
    return Case({**recorded, "args": list(ARGS), "config_json": spec})


@pytest.mark.parametrize(
    ("env", "devices"),
    [
        (("NVIDIA_VISIBLE_DEVICES=all",), 6),
        (("NVIDIA_VISIBLE_DEVICES=1",), 4),
        (("NVIDIA_VISIBLE_DEVICES=2,0",), 5),
        (("NVIDIA_VISIBLE_DEVICES=0,0",), 4),
        (("NVIDIA_VISIBLE_DEVICES=none",), 3),
        (("NVIDIA_VISIBLE_DEVICES=GPU-1b000000",), 4),
        (("NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_DRIVER_CAPABILITIES=utility"), 2),
        (("NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_DRIVER_CAPABILITIES=all"), 5),
        (("NVIDIA_VISIBLE_DEVICES=7",), 0),
    ],
)
def test_the_rule_predicts_what_the_shim_writes(gpu_stand: Stand, env: tuple[str, ...], devices: int) -> None:
    """Nodes and rules of the GPUs that were asked for, after all that was there (decisions.md 25)."""
    case = case_of(env)
    shim = look_at_shim(case)
    assert (has_systemd(shim), len(host_devices(shim, gpu_stand.root))) == (True, devices)
    hooked = with_hook(shim, Outcome(0))
    expected = with_devices(shim, hooked, gpu_stand.root).spec if devices else hooked.spec
    bundle = gpu_stand.bundle(*env, linux=SLICE)
    assert gpu_stand.create(bundle, "--systemd-cgroup").status == 0
    seen = spec_of(bundle)
    assert expected is not None
    assert expected["linux"] == seen["linux"]
    assert {**seen, "hooks": None} == {**expected, "hooks": None}


def test_the_words_go_on_as_they_are(gpu_stand: Stand) -> None:
    """With nodes in the specification as without."""
    bundle = gpu_stand.bundle("NVIDIA_VISIBLE_DEVICES=all", linux=SLICE)
    assert gpu_stand.create(bundle, "--systemd-cgroup").status == 0
    assert gpu_stand.argv == [gpu_stand.runc, "--systemd-cgroup", "create", "--bundle", str(bundle), "c1"]
