import pytest

from gpuhook.refusals import BadRequirement, Unsatisfied
from gpuhook.request.conditions import LONGEST, Facts, check
from gpuhook.request.model import Requirement

TESLA = Facts(cuda="12.2", driver="535.261.03", gpus=("GPU-0",), ask=lambda _: ("9.0", "Tesla"))


def stated(expression: str) -> Requirement:
    return Requirement(source="NVIDIA_REQUIRE_X", expression=expression)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (
            "cuda>=12.8 brand=tesla,driver>=470,driver<471",
            ["NVIDIA_REQUIRE_X", "CUDA >= 12.8", "12.2", "535.261.03", "branch 570"],
        ),
        ("brand=tesla,driver<471 cuda>=12.8", ["CUDA >= 12.8", "branch 570", "mostly run"]),
        ("cuda>=13.0", ["branch 580"]),
        ("cuda>12.2", ["CUDA > 12.2", "branch 545"]),
        ("cuda>12.5", ["branch 560"]),
        ("cuda>=99.9", ["CUDA >= 99.9", "update the driver, use an image for CUDA 12.2 or older"]),
        ("cuda>=99.9999999999999999999999999999", ["update the driver"]),
        ("cuda<12", ["CUDA < 12", "another image"]),
        ("driver>=550", ["a driver >= 550", "535.261.03", "update the driver to 550 or newer"]),
        ("arch>=10.0", ["compute capability >= 10.0", "GPU-0 has 9.0", "another GPU"]),
        ("brand=geforce", ["brand = geforce", "GPU-0 has Tesla"]),
    ],
)
def test_an_unmet_requirement_says_what_is_needed_and_what_is_there(expression: str, says: list[str]) -> None:
    """The condition that an update of the driver cures comes first; the switch is always named."""
    with pytest.raises(Unsatisfied) as caught:
        check((stated("cuda>=1"), stated(expression)), TESLA)

    message = f"{caught.value.text}\n{caught.value.hint}"
    assert [text for text in [*says, "NVIDIA_DISABLE_REQUIRE"] if text not in message] == []
    assert caught.value.where == f"NVIDIA_REQUIRE_X={expression}"


def test_alternatives_for_other_gpus_stay_out_of_the_first_line() -> None:
    """What is written for data-centre cards is noise on another host."""
    facts = Facts(cuda="9.1", driver="390.87", gpus=("GPU-0",), ask=lambda _: ("7.0", "Tesla"))
    with pytest.raises(Unsatisfied) as caught:
        check((stated("cuda>=10.0 brand=tesla,driver>=384,driver<385"),), facts)
    first, rest = caught.value.render().split("\n", 1)

    assert [text for text in ("385", "brand", "tesla") if text in first] == []
    assert [text for text in ("10.0", "9.1", "390.87") if text not in first] == []
    assert "410" in rest


def test_the_requirement_of_an_old_image_names_cuda_version() -> None:
    """The user finds CUDA_VERSION in the image, not the requirement that follows from it."""
    with pytest.raises(Unsatisfied, match=r"CUDA_VERSION needs CUDA >= 12\.4") as caught:
        check((Requirement(source="CUDA_VERSION", expression="cuda>=12.4"),), TESLA)

    assert caught.value.where.startswith("CUDA_VERSION, which means cuda>=12.4")


def test_a_driver_of_unknown_version_is_said_to_be_one() -> None:
    """The message does not show an empty version."""
    with pytest.raises(Unsatisfied, match="of unknown version"):
        check((stated("cuda>=12"),), TESLA.with_(cuda="", driver=""))


def test_a_bad_requirement_is_raised_by_check() -> None:
    """An expression that is none is not said to be unmet."""
    with pytest.raises(BadRequirement):
        check((stated("x"),), TESLA)


def test_the_33rd_requirement_is_refused() -> None:
    """As nvidia-container-cli does (AC-43)."""
    check((stated("cuda>=12"),) * 32, TESLA)
    with pytest.raises(BadRequirement, match="33 requirements"):
        check((stated("cuda>=12"),) * 33, TESLA)


def test_requirements_of_a_mebibyte_are_refused() -> None:
    """Work is bounded before it begins (AC-43)."""
    with pytest.raises(BadRequirement, match="characters, more than"):
        check((stated("cuda>=12 " * (LONGEST // 9)), stated("cuda>=12")), TESLA)
