"""One of each case about strings under the runtime: the container is not created (threats.md 3.3, AC-38 to AC-44)."""

from __future__ import annotations

import pytest

from tests.attack.rig import Lab
from tests.attack.test_33_strings import BY_MOUNT, CAPABILITIES, DEVICES, FOLDER, TEXTS

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]


def refused_under_runc(lab: Lab, variable: str, value: str) -> str:
    """The slug of a start with this variable, which fails."""
    gpus = None if variable == DEVICES else "0"
    run = lab.start(gpus=gpus, env=(f"{variable}={value}",))
    assert not run.started
    return run.slug


def test_ac_38_under_the_runtime(lab: Lab) -> None:
    """FAIL."""
    assert refused_under_runc(lab, DEVICES, "0 --ldconfig=@/evil") == "unknown-device"


def test_ac_39_under_the_runtime(lab: Lab) -> None:
    """FAIL."""
    assert refused_under_runc(lab, CAPABILITIES, "compute\nutility\x1b[2J") == "unsupported-capability"


@pytest.mark.parametrize("name", ["0,all", "GPU-x,GPU-y"])
def test_ac_40_under_the_runtime(lab: Lab, name: str) -> None:
    """FAIL."""
    lab.ignore = lambda path: "nvidia-container-devices" in path or path.endswith("/rootfs/var/run")
    mount = {"destination": f"{FOLDER}/{name}", "type": "bind", "source": "/dev/null", "options": ["bind"]}
    config = lab.config(BY_MOUNT, **{"no-cgroups": False})
    run = lab.start(gpus=None, mounts=[mount], config=config)
    assert (run.started, run.slug) == (False, "unknown-device")


def test_ac_41_under_the_runtime(lab: Lab) -> None:
    """SAFE without a GPU: a folder whose name only begins as the right one does."""
    mount = {"destination": f"{FOLDER}X/all", "type": "bind", "source": "/dev/null", "options": ["bind"]}
    config = lab.config(BY_MOUNT, **{"no-cgroups": False})
    run = lab.start(gpus=None, mounts=[mount], config=config, granted=frozenset())
    assert (run.started, run.result.seen.devices) == (True, {})


def test_ac_42_under_the_runtime(lab: Lab) -> None:
    """FAIL."""
    assert refused_under_runc(lab, CAPABILITIES, "compute/../all") == "unsupported-capability"


def test_ac_43_under_the_runtime(lab: Lab) -> None:
    """FAIL."""
    assert refused_under_runc(lab, "NVIDIA_REQUIRE_X", "cuda>=9999999999999999999999") == "bad-requirement"


def test_ac_44_under_the_runtime(lab: Lab) -> None:
    """FAIL."""
    assert refused_under_runc(lab, DEVICES, TEXTS) == "unknown-device"
