import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.refusals import BadRequirement
from gpuhook.request.model import Requirement
from gpuhook.request.requirements import LONGEST, choose_requirements, cuda_version
from gpuhook.settings.values import Settings
from tests.request.make import bundle


def choose(**env: str) -> list[tuple[str, str]]:
    requirements, warnings = choose_requirements(bundle(**env), Settings())

    assert () == warnings
    return [(requirement.source, requirement.expression) for requirement in requirements]


def test_requirements_come_in_the_order_of_their_names() -> None:
    """Every variable of the family is one, unchanged, whatever its suffix; the order never changes."""
    assert [
        ("NVIDIA_REQUIRE_", " x "),
        ("NVIDIA_REQUIRE_A", "--device=all"),
        ("NVIDIA_REQUIRE_B", "cuda>=9"),
        ("NVIDIA_REQUIRE_jetpack", "y"),
    ] == choose(
        NVIDIA_REQUIRE_B="cuda>=9",
        NVIDIA_REQUIRE_jetpack="y",
        NVIDIA_REQUIRE_A="--device=all",
        NVIDIA_REQUIRE_=" x ",
        NVIDIA_REQUIRE="no",
        X_NVIDIA_REQUIRE_C="no",
        nvidia_require_c="no",
    )


def test_empty_and_jetpack_requirements_are_dropped() -> None:
    """Nothing is demanded by an empty value; JetPack's are for another kind of machine."""
    assert [] == choose(NVIDIA_REQUIRE_A="", NVIDIA_REQUIRE_JETPACK="x", NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS="y")


def test_an_old_image_requires_its_cuda_version_last() -> None:
    """CUDA_VERSION counts where NVIDIA_REQUIRE_CUDA does not say better."""
    assert [("NVIDIA_REQUIRE_Z", "driver>=1"), ("CUDA_VERSION", "cuda>=11.4")] == choose(
        CUDA_VERSION="11.4.0", NVIDIA_REQUIRE_CUDA="", NVIDIA_REQUIRE_Z="driver>=1"
    )


def test_a_newer_image_does_not() -> None:
    """Then CUDA_VERSION is only information, and may be junk."""
    assert [("NVIDIA_REQUIRE_CUDA", "cuda>=12")] == choose(CUDA_VERSION="junk", NVIDIA_REQUIRE_CUDA="cuda>=12")


@pytest.mark.parametrize("value", ["1", "t", "T", "true", "TRUE", "True", "tRUE", " true ", "yes", "on", "Y"])
def test_the_usual_words_switch_requirements_off(value: str) -> None:
    """The container's user decides, and a bad CUDA_VERSION does not matter then."""
    assert [] == choose(NVIDIA_DISABLE_REQUIRE=value, NVIDIA_REQUIRE_A="cuda>=99", CUDA_VERSION="junk")


@pytest.mark.parametrize("value", ["", "0", "f", "false", "False", "no", "off", "n"])
def test_the_usual_words_leave_them_on(value: str) -> None:
    """A clear no is no, without a word."""
    assert [("NVIDIA_REQUIRE_A", "x")] == choose(NVIDIA_DISABLE_REQUIRE=value, NVIDIA_REQUIRE_A="x")


@pytest.mark.parametrize("value", ["2", "01", "1.0", "enabled", '"true"', "1\n", "١", "-1"])
def test_any_other_word_is_told(value: str) -> None:
    """It leaves the requirements on, and the log says that it was not understood."""
    requirements, warnings = choose_requirements(
        bundle(NVIDIA_DISABLE_REQUIRE=value, NVIDIA_REQUIRE_A="x"), Settings()
    )

    assert (Requirement(source="NVIDIA_REQUIRE_A", expression="x"),) == requirements
    [(slug, text)] = warnings
    assert slug == "requirement-cuda"
    assert "NVIDIA_DISABLE_REQUIRE" in text


def test_the_node_switches_requirements_off() -> None:
    """disable-require in the configuration wins over the container's no."""
    env = bundle(NVIDIA_DISABLE_REQUIRE="false", NVIDIA_REQUIRE_A="x", CUDA_VERSION="junk")

    assert ((), ()) == choose_requirements(env, Settings(disable_require=True))


@pytest.mark.parametrize("value", ["cuda>=9\ndriver>=1", "\0", "\x1b[0m", "cuda>=9\u2028", "\ud800"])
def test_control_characters_are_refused(value: str) -> None:
    """They are shown escaped (AC-39)."""
    with pytest.raises(BadRequirement, match="control character") as caught:
        choose(NVIDIA_REQUIRE_A=value)

    assert "NVIDIA_REQUIRE_A" in caught.value.text
    assert caught.value.render().replace("\n", "").isprintable()


def test_a_requirement_that_no_program_could_be_given_is_refused() -> None:
    """Linux hands over arguments of less than 128 KiB (AC-43)."""
    assert [("NVIDIA_REQUIRE_A", "ü" * (LONGEST // 2))] == choose(NVIDIA_REQUIRE_A="ü" * (LONGEST // 2))
    with pytest.raises(BadRequirement, match="longer than"):
        choose(NVIDIA_REQUIRE_A="ü" * (LONGEST // 2 + 1))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8.0", (8, 0)),
        ("9.0.176", (9, 0)),
        ("12", (12, 0)),
        ("v12.4", (12, 4)),
        ("012.04.1", (12, 4)),
        ("12.4.1-rc1+b1", (12, 4)),
        ("12-4", (12, 0)),
        ("4294967295.1", (4294967295, 1)),
    ],
)
def test_cuda_versions(text: str, version: tuple[int, int]) -> None:
    """Only the first two numbers count."""
    assert version == cuda_version(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "V12.4",
            "12.4.1.2",
            "12.",
            ".4",
            "12..4",
            "-12.4",
            "+12.4",
            "12,4",
            "12 4",
            " 12.4",
            "12.4 ",
            "twelve",
            "12.x",
        ),
        *(
            "12.4a",
            "12.4.1-",
            "12.4.1+",
            "12.4.1-01",
            "12.4.1-a_b",
            "12.4.1-ubuntu22.04",
            "${VERSION}",
            "١٢.4",
            "0x0c.4",
        ),
        *("4294967296.1", "12.4294967296", "1.2.18446744073709551616", "9" * 5000),
    ],
)
def test_what_is_no_cuda_version_is_refused_by_name(text: str) -> None:
    """The message names the variable, the value and two ways out."""
    assert cuda_version(text) is None
    if text:
        with pytest.raises(BadRequirement, match="CUDA_VERSION is") as caught:
            choose(CUDA_VERSION=text)

        assert "NVIDIA_DISABLE_REQUIRE" in caught.value.hint


def test_thousands_of_requirements_are_collected_in_time() -> None:
    """They are handed over or refused later; collecting them costs little (AC-43)."""
    assert 10_000 == len(choose(**{f"NVIDIA_REQUIRE_{number}": "cuda>=9" for number in range(10_000)}))


@given(st.dictionaries(st.sampled_from(["NVIDIA_REQUIRE_A", "CUDA_VERSION", "NVIDIA_DISABLE_REQUIRE"]), st.text()))
def test_any_values_give_requirements_or_a_reason(env: dict[str, str]) -> None:
    """No value crashes, and no requirement that comes out is empty."""
    with contextlib.suppress(BadRequirement):
        requirements, _ = choose_requirements(bundle(**env), Settings())

        assert all(requirement.expression for requirement in requirements)
