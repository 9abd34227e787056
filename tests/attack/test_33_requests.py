"""Requests that claim rights, or come in odd forms and great numbers (threats.md 3.3, AC-45 to AC-48)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.driver.build import build
from tests.attack.rig import ALL, CONTROL, UVM, Lab
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import GPUS

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

NO_VARIABLES = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
ADMIN = "CAP_SYS_ADMIN"
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def init(lab: Lab) -> Iterator[Init]:
    with Init(make_rootfs(f"{lab.folder}/rootfs")) as init:
        yield init


def with_sets(**sets: list[object] | None) -> Edit:
    """These capability sets, None for no capabilities at all."""

    def edit(spec: dict[str, Any]) -> None:
        if sets.get("bounding", []) is None:
            del spec["process"]["capabilities"]
        else:
            spec["process"]["capabilities"] = {"bounding": ["CAP_CHOWN"], **sets}

    return edit


SPOOFS: dict[str, tuple[Edit, str]] = {
    "unprivileged": (with_sets(), "not-privileged"),
    "effective": (with_sets(effective=[ADMIN]), "not-privileged"),
    "permitted": (with_sets(permitted=[ADMIN]), "not-privileged"),
    "ambient": (with_sets(ambient=[ADMIN], inheritable=[ADMIN]), "not-privileged"),
    "all but bounding": (with_sets(effective=[ADMIN], permitted=[ADMIN], ambient=[ADMIN]), "not-privileged"),
    "lower case": (with_sets(bounding=["cap_sys_admin"]), "not-privileged"),
    "without prefix": (with_sets(bounding=["SYS_ADMIN"]), "not-privileged"),
    "a number": (with_sets(bounding=[21]), "bad-bundle"),
    "in a word": (with_sets(bounding=["CAP_CHOWN,CAP_SYS_ADMIN"]), "not-privileged"),
    "no capabilities": (with_sets(bounding=None), "not-privileged"),
}


@pytest.mark.parametrize("variable", ["NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"])
@pytest.mark.parametrize("form", SPOOFS)
def test_ac_45_privilege_spoofing(lab: Lab, init: Init, form: str, variable: str) -> None:
    """FAIL: only CAP_SYS_ADMIN in the bounding set, by its name, is a privilege."""
    edit, slug = SPOOFS[form]
    run = lab.hook(init, env=(f"{variable}=all",), edit=edit)
    assert run.slug == slug
    assert run.changes == ()


def test_ac_45_under_the_runtime(lab: Lab) -> None:
    """FAIL: the container is not created, no capability node appears."""
    run = lab.start(env=("NVIDIA_MIG_CONFIG_DEVICES=all",))
    assert (run.started, run.slug) == (False, "not-privileged")


@pytest.mark.parametrize(
    "env",
    [
        ("NVIDIA_VISIBLE_DEVICES=all",),
        ("CUDA_VERSION=8.0.61",),
        ("DOCKER_RESOURCE_GPU=all", "NVIDIA_VISIBLE_DEVICES=all"),
        ("NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices",),
        ("NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all",),
    ],
    ids=str,
)
@pytest.mark.parametrize("spoof", ["", "effective", "all but bounding", "lower case", "no capabilities"])
def test_ac_46_refused_environment_request(lab: Lab, env: tuple[str, ...], spoof: str) -> None:
    """SAFE without a GPU, with a warning where something was asked for: never a grant.

    A runtime refuses most of the spoofed sets by itself, after its hooks; the hook is asked about those without one.
    """
    config = lab.config(f'{NO_VARIABLES}swarm-resource = "DOCKER_RESOURCE_GPU"\n', **{"no-cgroups": False})
    if spoof:
        with Init(make_rootfs(f"{lab.folder}/rootfs")) as init:
            run = lab.hook(init, gpus=None, env=env, config=config, edit=SPOOFS[spoof][0])
            assert run.report.status == 0
            assert run.changes == ()
            assert "/dev/nvidia" not in str(init.mount_points)
    else:
        run = lab.start(gpus=None, env=env, config=config, granted=frozenset())
        assert run.started
        assert run.result.seen.devices == {}
    assert run.warnings == ["strict-mode-mismatch"]


def test_ac_47_the_last_value_wins(lab: Lab) -> None:
    """SAFE: runtime and hook agree on the last of two values; other spellings are other variables."""
    env = (
        "NVIDIA_VISIBLE_DEVICES=all", "nvidia_visible_devices=2", "NVIDIA_VISIBLE_DEVICES=0",
        "NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_VISIBLE_DEVICES =all",
    )  # fmt: skip
    run = lab.start("env", gpus=None, env=env, granted=ALL - {(195, 1), (195, 2)})
    assert run.started
    assert "/dev/nvidia0" in run.result.seen.devices  # GPU 1 is minor 0
    assert "NVIDIA_VISIBLE_DEVICES=1" in run.result.seen.env


@pytest.mark.parametrize(
    "entries", [("NVIDIA_VISIBLE_DEVICES",), ("=all",), ("",), ("=",), ("NVIDIA_DRIVER_CAPABILITIES",)]
)
def test_ac_47_entries_without_a_name_or_a_value(lab: Lab, init: Init, entries: tuple[str, ...]) -> None:
    """SAFE: they are ignored with a note, and do not stand for a value."""
    run = lab.hook(init, gpus="1", env=entries)
    assert run.report.status == 0
    assert "ignored" in run.said
    assert sorted(path for path in init.mount_points if path.startswith("/dev/nvidia")) == [
        "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidiactl",
    ]  # fmt: skip


def test_ac_47_a_million_entries(lab: Lab, init: Init) -> None:
    """SAFE within the limits of time and memory: the last value counts."""
    entries = tuple(f"V{number}=" for number in range(999_998))
    run = lab.hook(init, gpus="all", env=(*entries, "NVIDIA_VISIBLE_DEVICES=1"))
    assert run.report.status == 0
    assert "/dev/nvidia1" not in init.mount_points


def test_ac_47_too_many_entries(lab: Lab, init: Init) -> None:
    """FAIL: a config.json above the limit is not read to its end."""
    entries = tuple(f"VARIABLE_{number}=something" for number in range(1_000_000))
    run = lab.hook(init, env=entries)
    assert run.slug == "bad-bundle"
    assert run.report.memory < 64 << 10


CHANNELS = [
    "-1",
    "1048576",
    "0x1",
    "1e3",
    "+1",
    "../0",
    " 1 2",
    "1.0",
    "٣",
    ",".join(map(str, range(5000))),
    "9" * 5000,
]


@pytest.fixture
def with_channels(lab: Lab) -> str:
    """The configuration of a node whose driver has the IMEX channels 0 and 1 of 2."""
    driver = build(f"{lab.folder}/driver", gpus=GPUS, imex_channels=(0, 1))
    params = Path(f"{driver.root}/proc/driver/nvidia/params")
    params.write_text(params.read_text() + "ImexChannelCount: 2\n")
    return lab.config(root=driver.root, **{"no-cgroups": False})


@pytest.mark.parametrize("value", [*CHANNELS, "2", "1048575"], ids=lambda value: ascii(value[:20]))
def test_ac_48_imex_channels_that_are_none(lab: Lab, with_channels: str, value: str) -> None:
    """FAIL: not a number, a number beyond a minor's, too many, or none that this driver offers; no node is made."""
    nodes = f"{lab.folder}/driver/dev/nvidia-caps-imex-channels"
    before = sorted(path.name for path in Path(nodes).iterdir())
    run = lab.start(env=(f"NVIDIA_IMEX_CHANNELS={value}",), config=with_channels)
    assert (run.started, run.slug) == (False, "imex")
    assert sorted(path.name for path in Path(nodes).iterdir()) == before


def test_ac_48_imex_channels_that_there_are(lab: Lab, with_channels: str) -> None:
    """SAFE: the node of this channel, and a rule for it alone."""
    driver = Path(f"{lab.folder}/driver/proc/devices").read_text().splitlines()
    major = next(int(line.split()[0]) for line in driver if line.endswith("nvidia-caps-imex-channels"))
    granted = frozenset({*CONTROL, *UVM, (195, 0), (major, 1)})
    run = lab.start(
        "stat:/dev/nvidia-caps-imex-channels/channel1", gpus="1", env=("NVIDIA_IMEX_CHANNELS=1",),
        config=with_channels, granted=granted,
    )  # fmt: skip
    assert run.started
    seen = run.result.seen.stat("/dev/nvidia-caps-imex-channels/channel1")
    assert (seen["kind"], seen["major"], seen["minor"]) == ("char", major, 1)
