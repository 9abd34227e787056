import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import GpuhookError, UnknownDevice
from gpuhook.request.devices import choose_devices
from gpuhook.request.model import DeviceChoice
from gpuhook.settings.values import Settings
from tests.request.make import FOLDER, bundle

STRICT = Settings(accept_envvar_when_unprivileged=False)
MOUNTS = Settings(accept_volume_mounts=True)


def by_mounts(*places: str) -> tuple[str, ...] | None:
    choice, _ = choose_devices(bundle(*places), MOUNTS)
    return choice.names if choice else None


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (("0",), ("0",)),
        (("3", "1", "3"), ("3", "1")),
        (("GPU-1",), ("GPU-1",)),
        (("0:1",), ("0:1",)),
        (("a/b",), ("a/b",)),
        (("/run/nvidia-container-devices/0", "0"), ("0",)),
        (("all",), ("all",)),
        (("0", "all"), ("all",)),
        (("none", "0"), ()),
        (("cdi",), ("cdi",)),
        (("imex",), ("imex",)),
    ],
)
def test_mounts_name_devices(places: tuple[str, ...], names: tuple[str, ...]) -> None:
    """A mount of the null device below the folder asks for one device; the words mean what they mean elsewhere."""
    assert names == by_mounts(*places)


def test_the_sources_of_mounts_are_their_places() -> None:
    """Messages can say which mount asked."""
    choice, _ = choose_devices(bundle("0"), MOUNTS)

    assert DeviceChoice(names=("0",), sources=(f"{FOLDER}/0",)) == choice


@pytest.mark.parametrize(
    "place",
    [
        *(
            "void",
            "imex/0",
            "imex/0,1",
            "../../../etc",
            "../0",
            FOLDER,
            f"{FOLDER}/",
            f"{FOLDER}X/all",
            f"{FOLDER}-x/1",
        ),
        *("/x/var/run/nvidia-container-devices/0", "/elsewhere", "/proc"),
    ],
)
def test_other_mounts_are_no_request(place: str) -> None:
    """A name outside the folder, the folder itself, a channel and `void` ask for no GPU (AC-41)."""
    assert by_mounts(place) is None


@pytest.mark.parametrize("place", ["var/run/nvidia-container-devices/0", ""])
def test_a_relative_destination_is_no_request(place: str) -> None:
    """Where it would be mounted is the runtime's guess."""
    request = bundle("0")
    request = request.with_(mounts=(request.mounts[0].with_(destination=place),))

    assert (None, ()) == choose_devices(request, MOUNTS)


@pytest.mark.parametrize(
    "source", ["", "/dev/zero", "/dev//null", "/dev/../dev/null", "/dev/null/", "dev/null", "/tmp/null"]
)
def test_only_the_null_device_makes_a_request(source: str) -> None:
    """A source that is not spelled exactly /dev/null is a mount like any other (AC-41)."""
    assert (None, ()) == choose_devices(bundle("0", source=source), MOUNTS)


@pytest.mark.parametrize(
    "place",
    [
        *("0,all", "GPU-x,GPU-y", "all ", " 0", "0\xa0", "0\n1", "\u202e0"),
        *(f"{FOLDER}//all/", "./all", "x/../0", "0/", "cdi/../x", "imex/../0", "//var/run/nvidia-container-devices/0"),
        *("-x", "0 -x", "--ldconfig=@/evil"),
        *("cdi/nvidia.com/gpu=0", "cdi/nvidia.com/gpu/0", "cdi/a/b/c/d", "cdi/a", "nvidia.com/gpu=0"),
    ],
)
def test_a_mount_that_is_no_clear_request_is_refused(place: str) -> None:
    """One mount asks for one device, plainly written (AC-38 to AC-41); its place is named."""
    with pytest.raises(UnknownDevice, match="unknown device") as caught:
        by_mounts("1", place)

    assert caught.value.where.startswith("the mount at /")


def test_mounts_come_before_variables() -> None:
    """The scheduler's choice wins over the image's, also on a strict node."""
    settings = STRICT.with_(accept_volume_mounts=True)
    choice, warnings = choose_devices(bundle("1", NVIDIA_VISIBLE_DEVICES="all", CUDA_VERSION="9.0"), settings)

    assert choice is not None
    assert (("1",), ()) == (choice.names, warnings)


def test_void_as_a_mount_beats_a_variable() -> None:
    """A mount that says hands off is obeyed."""
    assert (None, ()) == choose_devices(bundle("void", NVIDIA_VISIBLE_DEVICES="all"), MOUNTS)


def test_channels_alone_leave_the_gpus_to_the_variable() -> None:
    """A mount of an IMEX channel says nothing about GPUs."""
    choice, _ = choose_devices(bundle("imex/0,1", NVIDIA_VISIBLE_DEVICES="2"), MOUNTS)

    assert choice is not None
    assert choice.names == ("2",)


def test_mounts_that_are_not_accepted_are_told() -> None:
    """The container starts without a GPU, and the log names the key."""
    choice, [(slug, text)] = choose_devices(bundle("0"), Settings())

    assert choice is None
    assert slug == "strict-mode-mismatch"
    assert "accept-nvidia-visible-devices-as-volume-mounts" in text


def test_mounts_that_are_not_accepted_do_not_disturb_a_variable() -> None:
    """Only the variable counts then."""
    choice, warnings = choose_devices(bundle("0", "x,y", NVIDIA_VISIBLE_DEVICES="all"), Settings())

    assert choice is not None
    assert (("all",), ()) == (choice.names, warnings)


words = st.sampled_from(
    ["all", "none", "void", "0", " 0 ", "-x", "cdi/a/b", "imex/0", "0,1", "../x", "a\n"]
) | st.text(max_size=6)


@given(st.lists(words, max_size=4))
def test_any_mounts_give_a_choice_or_a_reason(places: list[str]) -> None:
    """No destination crashes; each mount gives one device at most."""
    with contextlib.suppress(GpuhookError):
        assert len(by_mounts(*places) or ()) <= len(places)
