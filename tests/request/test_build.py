import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook import note
from gpuhook.errors import BadBundle, BadState, GpuhookError
from gpuhook.oci.bundle import Bundle
from gpuhook.oci.state import State
from gpuhook.refusals import BadImex, BadRequirement, NotPrivileged, UnsupportedCapability, WrongMode
from gpuhook.request.build import build_request
from gpuhook.request.devices import choose_devices
from gpuhook.request.model import DeviceChoice, Request, Requirement
from gpuhook.settings.values import Settings
from tests.request.make import bundle

STATE = State(pid=7, bundle="/b", id="c1")
ALL = DeviceChoice(names=("all",), sources=("NVIDIA_VISIBLE_DEVICES",))


def build(request: Bundle, settings: Settings | None = None, state: State = STATE, *, tegra: bool = False) -> Request:
    return build_request(state, request, settings or Settings(), ALL, platform_is_tegra=tegra)


def test_a_request_holds_everything_that_was_said() -> None:
    """Each part of the environment and of the settings finds its place."""
    asked = bundle(
        NVIDIA_DRIVER_CAPABILITIES="video,compute",
        NVIDIA_REQUIRE_CUDA="cuda>=12",
        NVIDIA_MIG_CONFIG_DEVICES="all",
        NVIDIA_MIG_MONITOR_DEVICES="0",
        NVIDIA_IMEX_CHANNELS="3",
    ).with_(privileged=True)

    assert Request(
        container="c1",
        pid=7,
        rootfs="/b/rootfs",
        devices=ALL,
        capabilities=("compute", "video"),
        requirements=(Requirement(source="NVIDIA_REQUIRE_CUDA", expression="cuda>=12"),),
        mig_config="all",
        mig_monitor="0",
        imex_channels=("3",),
        privileged=True,
    ) == build(asked)


def test_warnings_of_all_rooms_are_collected() -> None:
    """Settings first, then devices, requirements, channels."""
    settings = Settings(warnings=(("a", "1"),), accept_envvar_when_unprivileged=False)
    asked = bundle(NVIDIA_DISABLE_REQUIRE="maybe", NVIDIA_IMEX_CHANNELS="0")
    request = build_request(STATE, asked, settings, ALL, (("b", "2"),))

    assert ["a", "b", "requirement-cuda", "strict-mode-mismatch"] == [slug for slug, _ in request.warnings]


@pytest.mark.parametrize("pid", [0, -1, -(2**31)])
def test_a_container_without_a_process_is_refused(pid: int) -> None:
    """nvidia-container-cli would take its own parent for the container."""
    with pytest.raises(BadState, match=f"pid is {pid}"):
        build(bundle(), state=STATE.with_(pid=pid))


FAULTS = [
    (BadState, {}),
    (BadBundle, {}),
    (NotPrivileged, {"NVIDIA_MIG_CONFIG_DEVICES": "all"}),
    (NotPrivileged, {"NVIDIA_MIG_MONITOR_DEVICES": "all"}),
    (UnsupportedCapability, {"NVIDIA_DRIVER_CAPABILITIES": "x"}),
    (BadRequirement, {"NVIDIA_REQUIRE_A": "\n"}),
    (BadImex, {"NVIDIA_IMEX_CHANNELS": "-1"}),
    (WrongMode, {}),
]


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_first_is_told(first: int) -> None:
    """State, bundle, MIG, capabilities, requirements, channels, mode: always in this order."""
    env = {name: value for _, variables in FAULTS[first:] for name, value in variables.items()}
    asked = bundle(**env).with_(root_path="" if first <= 1 else "rootfs")

    with pytest.raises(FAULTS[first][0]):
        build(asked, Settings(mode="cdi"), STATE.with_(pid=0 if first == 0 else 7))


@pytest.mark.parametrize("mode", ["auto", "legacy", "jit-cdi"])
def test_these_modes_mean_the_hook(mode: str) -> None:
    """The shim puts the hook in for each of them, and the hook reads the same file."""
    assert ALL == build(bundle(), Settings(mode=mode)).devices


@pytest.mark.parametrize("mode", ["cdi", "csv", "", "LEGACY", " legacy", "bogus"])
def test_other_modes_are_another_programs_work(mode: str) -> None:
    """The message says what to use in place of the hook, and where the mode is set."""
    with pytest.raises(WrongMode, match=f"'{mode}'") as caught:
        build(bundle(), Settings(mode=mode, source="/x/config.toml"))

    assert "--runtime=nvidia" in caught.value.hint
    assert "/x/config.toml" in caught.value.where


@pytest.mark.parametrize(("mode", "served"), [("auto", False), ("legacy", True)])
def test_a_tegra_needs_another_mode_unless_told(mode: str, served: bool) -> None:
    """Automatic detection stops there; an explicit mode is obeyed."""
    if served:
        assert ALL == build(bundle(), Settings(mode=mode), tegra=True).devices
    else:
        with pytest.raises(WrongMode, match="Tegra"):
            build(bundle(), Settings(mode=mode), tegra=True)


def test_the_mode_check_can_be_skipped() -> None:
    """skip-mode-detection means that the administrator knows better."""
    assert ALL == build(bundle(), Settings(mode="cdi", skip_mode_detection=True), tegra=True).devices


def test_entries_that_are_no_variables_are_noted(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are ignored, and a person who debugs sees it (AC-47)."""
    monkeypatch.setattr(note, "debug", True)
    build(bundle().with_(ignored=("FOO\n", "x")))

    assert "2 entries of process.env are no NAME=value and ignored, first 'FOO\\n'" in capfd.readouterr().err


names = st.sampled_from(
    [
        *(
            "NVIDIA_VISIBLE_DEVICES",
            "NVIDIA_DRIVER_CAPABILITIES",
            "NVIDIA_REQUIRE_CUDA",
            "CUDA_VERSION",
            "NVIDIA_IMEX_CHANNELS",
        ),
        *("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_DISABLE_REQUIRE"),
    ]
)
values = st.sampled_from(["all", "none", "0", "0,1", "compute", "12.4", "cuda>=12", "true", "-x", "\n"]) | st.text(
    max_size=6
)


@given(st.dictionaries(names, values), st.booleans())
def test_any_environment_gives_a_request_or_a_reason(env: dict[str, str], privileged: bool) -> None:
    """No environment crashes; nothing that comes out holds a control character or begins with a dash."""
    asked = bundle(**env).with_(privileged=privileged)
    with contextlib.suppress(GpuhookError):
        choice, warnings = choose_devices(asked, Settings())
        if choice:
            request = build_request(STATE, asked, Settings(), choice, warnings)
            words = [*request.devices.names, *request.imex_channels, request.mig_config]

            assert not any(word.startswith("-") or "\n" in word or "\0" in word for word in words)
