import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.refusals import BadImex
from gpuhook.request.imex import MOST, check_channels, choose_channels
from gpuhook.settings.values import Settings
from tests.request.make import FOLDER, bundle

STRICT = Settings(accept_envvar_when_unprivileged=False)
MOUNTS = Settings(accept_volume_mounts=True)


def by_variable(value: str) -> tuple[str, ...]:
    channels, warnings = choose_channels(bundle(NVIDIA_IMEX_CHANNELS=value), Settings())

    assert () == warnings
    return channels


@pytest.mark.parametrize(
    ("value", "channels"),
    [
        ("0", ("0",)),
        (" 1 , 0 ,", ("1", "0")),
        ("1,1", ("1",)),
        ("", ()),
        (",", ()),
        ("all", ()),
        ("0, all", ()),
        ("none", ()),
        ("void,0", ()),
        ("0-3", ("0-3",)),
        ("channel0", ("channel0",)),
    ],
)
def test_the_variable_names_channels(value: str, channels: tuple[str, ...]) -> None:
    """A list without repetition; the words for sets of GPUs mean no channel."""
    assert channels == by_variable(value)


def test_an_old_image_asks_for_no_channel() -> None:
    """No image of that age knows IMEX."""
    assert ((), ()) == choose_channels(bundle(CUDA_VERSION="11.0.3", NVIDIA_VISIBLE_DEVICES="all"), Settings())


@pytest.mark.parametrize("value", ["-1", "0,-1", "0 -x", "--x"])
def test_a_word_that_could_be_an_option_is_refused(value: str) -> None:
    """Nothing that begins with a dash reaches a program (AC-48)."""
    with pytest.raises(BadImex, match="'-'"):
        by_variable(value)


@pytest.mark.parametrize("value", ["0\n", "\0", "0,\x1b1", "\u20280"])
def test_control_characters_are_refused(value: str) -> None:
    """They are shown escaped (AC-39)."""
    with pytest.raises(BadImex, match="control character") as caught:
        by_variable(value)

    assert caught.value.render().replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("places", "channels"),
    [
        (("imex/3",), ("3",)),
        (("0", "imex/1", "imex/5", "/run/nvidia-container-devices/imex/1"), ("1", "5")),
        (("imex/none",), ()),
        (("imex/all", "imex/0"), ()),
        (("imex/a/b",), ("a/b",)),
        (("0", "IMEX/0"), ("9",)),
    ],
)
def test_mounts_come_before_the_variable(places: tuple[str, ...], channels: tuple[str, ...]) -> None:
    """Where a mount names a channel the variable does not count."""
    assert (channels, ()) == choose_channels(bundle(*places, NVIDIA_IMEX_CHANNELS="9"), MOUNTS)


@pytest.mark.parametrize("place", ["imex/-1", "imex/0,1", "imex/ 0", "imex/0\n", f"{FOLDER}/imex//0/"])
def test_a_mount_that_is_no_clear_request_is_refused(place: str) -> None:
    """One mount asks for one channel, plainly written (AC-40, AC-41)."""
    with pytest.raises(BadImex) as caught:
        choose_channels(bundle(place), MOUNTS)

    assert caught.value.where.startswith("the mount at /")


def test_mounts_that_are_not_accepted_do_not_count() -> None:
    """Then only the variable is looked at."""
    assert (("9",), ()) == choose_channels(bundle("imex/0,1", NVIDIA_IMEX_CHANNELS="9"), Settings())


@pytest.mark.parametrize(
    "settings", [Settings(ignore_imex_channel_requests=True), MOUNTS.with_(ignore_imex_channel_requests=True)]
)
def test_a_node_may_ignore_requests(settings: Settings) -> None:
    """Then nothing of them is looked at, not even faults."""
    assert ((), ()) == choose_channels(bundle("imex/-1", NVIDIA_IMEX_CHANNELS="-1\n"), settings)


def test_a_strict_node_ignores_the_variable_with_a_warning() -> None:
    """The same rule as for GPUs."""
    channels, warnings = choose_channels(bundle(NVIDIA_IMEX_CHANNELS="0"), STRICT)

    assert ((), "strict-mode-mismatch") == (channels, warnings[0][0])
    assert "NVIDIA_IMEX_CHANNELS" in warnings[0][1]


def test_a_strict_node_obeys_a_privileged_container() -> None:
    """Privileged containers may ask by variable."""
    assert (("0",), ()) == choose_channels(bundle(NVIDIA_IMEX_CHANNELS="0").with_(privileged=True), STRICT)


def test_a_strict_node_says_nothing_without_a_request() -> None:
    """`all` asks for no channel."""
    assert ((), ()) == choose_channels(bundle(NVIDIA_IMEX_CHANNELS="all"), STRICT)


def test_numbers_are_channels() -> None:
    """The engine gets numbers, each once."""
    assert (0, 1048575, 7) == check_channels(("0", "1048575", "007", "00"))


@pytest.mark.parametrize(
    "name", ["-1", "1048576", "0x1", "1e3", "+1", "../0", "", " 0", "0-3", "all", "١", "²", "9" * 5000]
)
def test_what_is_no_channel_number_is_refused(name: str) -> None:
    """A number of 20 bits in decimal digits, nothing else (AC-48)."""
    with pytest.raises(BadImex, match="no channel number"):
        check_channels(("0", name))


def test_thousands_of_channels_are_refused() -> None:
    """Each is a device node in the container (AC-48)."""
    assert MOST == len(check_channels(tuple(map(str, range(MOST)))))
    with pytest.raises(BadImex, match="5000 IMEX channels"):
        check_channels(tuple(map(str, range(5000))))


@given(st.lists(st.sampled_from(["0", "1", "all", " 2 ", "-1"]) | st.text(max_size=5)).map(",".join))
def test_any_value_gives_channels_or_a_reason(value: str) -> None:
    """No value crashes, on either path."""
    with contextlib.suppress(BadImex):
        numbers = check_channels(by_variable(value))

        assert all(0 <= number < 1 << 20 for number in numbers)


@pytest.mark.parametrize("value", ["-1", "0", "all", "0,-x"])
def test_a_variable_that_does_not_count_is_not_judged(value: str) -> None:
    """Where variables are ignored, what they hold cannot make a container fail."""
    channels, _ = choose_channels(bundle(NVIDIA_IMEX_CHANNELS=value), STRICT)
    assert channels == ()
