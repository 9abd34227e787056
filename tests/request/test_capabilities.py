import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.refusals import UnsupportedCapability
from gpuhook.request.capabilities import choose_capabilities, nearest
from gpuhook.settings.values import CAPABILITIES, DEFAULT_CONFIG, Settings
from tests.request.make import bundle

LIMITED = Settings(supported_driver_capabilities=("utility", "compute"))


def choose(value: str, settings: Settings | None = None) -> tuple[str, ...]:
    return choose_capabilities(bundle(NVIDIA_DRIVER_CAPABILITIES=value), settings or Settings())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ("compute", "utility")),
        (",", ("compute", "utility")),
        ("  ", ("compute", "utility")),
        ("utility", ("utility",)),
        ("utility,compute", ("compute", "utility")),
        (" compute , utility ,", ("compute", "utility")),
        ("\xa0video,video", ("video",)),
        ("all", CAPABILITIES),
        ("compute,all", CAPABILITIES),
        ("all,bogus", CAPABILITIES),
    ],
)
def test_the_variable_is_a_list_of_words(value: str, expected: tuple[str, ...]) -> None:
    """Words come out once and in alphabetical order; no word at all means the default."""
    assert expected == choose(value)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ("compute", "utility")),
        ({"CUDA_VERSION": "9.0"}, CAPABILITIES),
        ({"CUDA_VERSION": "9.0", "NVIDIA_DRIVER_CAPABILITIES": ","}, CAPABILITIES),
        ({"CUDA_VERSION": "9.0", "NVIDIA_DRIVER_CAPABILITIES": ""}, ("compute", "utility")),
        ({"CUDA_VERSION": "9.0", "NVIDIA_DRIVER_CAPABILITIES": "video"}, ("video",)),
        ({"CUDA_VERSION": "9.0", "NVIDIA_REQUIRE_CUDA": "cuda>=9"}, ("compute", "utility")),
    ],
)
def test_unset_means_the_default_or_all_for_an_old_image(env: dict[str, str], expected: tuple[str, ...]) -> None:
    """Old images knew no choice; the empty string is a choice."""
    assert expected == choose_capabilities(bundle(**env), Settings())


@pytest.mark.parametrize(
    ("value", "supported", "expected"),
    [
        ("all", ("utility", "compute"), ("compute", "utility")),
        ("", ("video",), ()),
        ("", ("utility",), ("utility",)),
        ("all", (), ()),
        ("video", ("video", "compute"), ("video",)),
    ],
)
def test_the_node_limits_the_capabilities(value: str, supported: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """`all` and the default are cut down in silence to what the node allows."""
    assert expected == choose(value, Settings(supported_driver_capabilities=supported))


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("compute,ldconfig=@/opt/x", "ldconfig=@/opt/x"),
        ("--debug=/x", "--debug=/x"),
        ("../../x", "../../x"),
        ("compute/../all", "compute/../all"),
        ("compute;utility", "compute;utility"),
        ("none", "none"),
        ("ALL", "ALL"),
        ("%s{0}$(id)", "%s{0}$(id)"),
    ],
)
def test_an_unknown_word_is_refused_with_what_is_allowed(value: str, word: str) -> None:
    """The message names the variable, the word and the node's real set (AC-42)."""
    with pytest.raises(UnsupportedCapability) as caught:
        choose(value, LIMITED)

    assert "NVIDIA_DRIVER_CAPABILITIES" in caught.value.text
    assert f"'{word}'" in caught.value.text
    assert "compute, utility" in caught.value.text


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("grpahics", "graphics"),
        ("Compute", "compute"),
        ("compat", "compat32"),
        ("ALL", "all"),
        ("utilty", "utility"),
        ('"video"', "video"),
    ],
)
def test_a_typo_is_told_as_one(word: str, suggestion: str) -> None:
    """The nearest word stands in the hint."""
    with pytest.raises(UnsupportedCapability) as caught:
        choose(f"compute,{word}")

    assert f"did you mean {suggestion}?" == caught.value.hint


@pytest.mark.parametrize("word", ["x", "-", "", "bogus", "none", "compute utility", "a" * 1000])
def test_a_word_far_from_all_others_gets_no_suggestion(word: str) -> None:
    """A wrong guess would be worse than none."""
    assert nearest(word, CAPABILITIES) == ""


def test_a_word_beyond_the_limit_names_the_key_and_the_file() -> None:
    """What refuses is the node, and the message says where."""
    with pytest.raises(UnsupportedCapability) as caught:
        choose("compute,video", LIMITED)

    assert "'video'" in caught.value.text
    assert "supported-driver-capabilities" in caught.value.text
    assert DEFAULT_CONFIG in caught.value.hint


@pytest.mark.parametrize("value", ["compute\n", "\tcompute", "all\0", "compute\nutility", "\u2028all"])
def test_control_characters_are_refused(value: str) -> None:
    """They are shown escaped (AC-39)."""
    with pytest.raises(UnsupportedCapability, match="control character") as caught:
        choose(value)

    assert caught.value.render().replace("\n", "").isprintable()


@pytest.mark.parametrize("value", ["," * (1 << 20), "x," * (1 << 19), "a" * (1 << 20), "compute," * (1 << 17)])
def test_a_mebibyte_is_done_in_time(value: str) -> None:
    """A long list costs time in proportion (AC-42)."""
    started = time.process_time()
    with contextlib.suppress(UnsupportedCapability):
        choose(value)

    assert time.process_time() - started < 2


@given(st.lists(st.sampled_from([*CAPABILITIES, "all", " video ", "", "Video"]) | st.text(max_size=8)).map(",".join))
def test_only_known_words_come_out(value: str) -> None:
    """Whatever the value is, the result is an ordered part of the node's set, or an error."""
    with contextlib.suppress(UnsupportedCapability):
        result = choose(value, LIMITED)

        assert set(result) <= {"compute", "utility"}
        assert sorted(set(result)) == list(result)
