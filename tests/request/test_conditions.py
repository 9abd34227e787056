import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.refusals import BadRequirement, Unsatisfied
from gpuhook.request.conditions import Facts, Verdict, check, compare_versions, evaluate
from gpuhook.request.model import Requirement

NO_GPU = Facts(cuda="12.2", driver="535.261.03", gpus=(), ask=lambda _: ("", ""))


class Host:
    """Answers for GPUs and counts the questions."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.answers, self.asked = answers, [0] * len(answers)
        self.facts = NO_GPU.with_(gpus=tuple(f"GPU-{number}" for number in range(len(answers))), ask=self.ask)

    def ask(self, place: int) -> tuple[str, str]:
        self.asked[place] += 1
        return self.answers[place]


TESLA = Host(("9.0", "Tesla")).facts


def stated(expression: str) -> Requirement:
    return Requirement(source="NVIDIA_REQUIRE_X", expression=expression)


def judge(expression: str, facts: Facts = TESLA) -> Verdict:
    return evaluate(stated(expression), facts)


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "cuda>=12.2",
            "CUDA>=12.2",
            "cuda>=12",
            "cuda>12",
            "cuda<12.2.1",
            "cuda=12.2.0.0",
            "cuda>=012.02",
            "cuda>=12..2",
        ),
        *(
            "cuda!13",
            "cuda!=13",
            "arch>=8.0",
            "arch=9",
            "brand=tesla",
            "brand=TESLA",
            "Brand!=geforce",
            "brand!geforce",
        ),
        *("driver>=535.261.3", "driver>535.261", "driver=535.261.03.0", "cuda>=12.2."),
        "brand=tesla,driver>=470,driver<471 brand=tesla,driver>=535,driver<536",
        *("cuda>=99.0 brand=tesla,driver>=535,driver<536", "cuda>=12 foo=1", ",,cuda>=12,,,", "", " ", "   ", ","),
        *(", cuda>=99", "brand=Tesla Max", "cuda>=12 cuda", "cuda>=13 cuda>=12 )(", "cuda<99.99999999999999999999999"),
        f"cuda>={'0' * 200}12",
    ],
)
def test_these_hold(expression: str) -> None:
    """One alternative suffices, and what is behind it is not looked at."""
    assert Verdict(holds=True) == judge(expression)


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        ("cuda>=12.3", "cuda>=12.3"),
        ("CUDA>=99", "CUDA>=99"),
        ("cuda=12", "cuda=12"),
        ("cuda<=12", "cuda<=12"),
        ("cuda<12", "cuda<12"),
        ("cuda!=12.2", "cuda!=12.2"),
        ("cuda!12.2", "cuda!12.2"),
        ("driver>535.261.03", "driver>535.261.03"),
        ("brand=tesla,driver>=470,driver<471", "driver<471"),
        ("driver>=999 cuda>=99.0", "driver>=999"),
        (" cuda>=99.0", "cuda>=99.0"),
        ("cuda>=99 ,", "cuda>=99"),
        ("cuda>=13,foo=1", "cuda>=13"),
        ("brand=geforce", "brand=geforce"),
        ("arch<9", "arch<9"),
    ],
)
def test_these_do_not_hold(expression: str, condition: str) -> None:
    """An alternative stops at its first false condition, which the verdict names."""
    verdict = judge(expression)

    assert not verdict.holds
    assert condition == verdict.failures[0].condition


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "cuda==12.2",
            "cuda=>12.2",
            "cuda<>12.2",
            "cuda=<12.2",
            "cuda!!12",
            "cuda",
            "cuda>=",
            ">=12",
            "cuda>=12.x",
            "cuda>=v12",
        ),
        *(
            "cuda>=.5",
            "brand>=tesla",
            "brand<x",
            "foo>=1 cuda>=12",
            "cuda>=13 foo=1",
            "cuda >= 12",
            "arch>=x",
            "cuda=12=2",
        ),
        *(
            "cuda>=-1",
            "cuda>=+1",
            "cuda>=1e3",
            "cuda>=١٢",
            "cuda>=9999999999999999999999",
            f"cuda>={2**64 - 1}",
            "driver>=.",
            "=",
        ),
        *("cuda>=12.2,(((((", "(a+)+$>=1", "%s=1", "${HOME}=1"),
    ],
)
def test_these_are_no_requirements(expression: str) -> None:
    """What is reached and makes no sense is an error, never satisfied (AC-43)."""
    with pytest.raises(BadRequirement, match="NVIDIA_REQUIRE_X is no valid requirement"):
        judge(expression)


@pytest.mark.parametrize("length", [127, 128])
def test_a_false_condition_of_128_bytes_is_invalid(length: int) -> None:
    """nvidia-container-cli has a buffer of that size for what it reports, with two blanks."""
    expression = f"brand={'x' * (length - len('brand = '))}"
    if length < 128:
        assert not judge(expression).holds
    else:
        with pytest.raises(BadRequirement, match="longer than 127"):
            judge(expression)


def test_a_true_condition_may_be_long() -> None:
    """Only what must be reported is limited."""
    assert judge(f"cuda>=12.2{'.0' * 100}").holds


@pytest.mark.parametrize("expression", ["arch>=99", "brand=foo", "brand>foo", "arch>=x", "brand=foo,cuda>=12"])
def test_without_a_gpu_conditions_on_it_count_as_true(expression: str) -> None:
    """Driver files without a GPU: there is nothing to compare, and nothing is parsed."""
    assert judge(expression, NO_GPU).holds


@pytest.mark.parametrize("expression", ["cuda>=99", "brand=foo,driver<1"])
def test_without_a_gpu_the_driver_is_checked(expression: str) -> None:
    """CUDA and driver versions are the host's own."""
    assert not judge(expression, NO_GPU).holds


def test_every_gpu_must_pass() -> None:
    """The first GPU for which nothing holds is named."""
    host = Host(("9.0", "Tesla"), ("9.0", "Tesla"), ("7.5", "GeForce"))
    verdict = judge("arch>=8 brand=nvidia", host.facts)

    assert [("arch", "7.5", "GPU-2"), ("brand", "GeForce", "GPU-2")] == [
        (f.key, f.found, f.gpu) for f in verdict.failures
    ]


def test_gpus_are_not_asked_without_need() -> None:
    """Brand and architecture are slow to find out: a condition that is not reached does not cost that."""
    host = Host(("9.0", "Tesla"), ("7.5", "GeForce"))
    assert judge("cuda>=12 brand=tesla", host.facts).holds
    assert not judge("cuda>=99,brand=tesla", host.facts).holds
    with pytest.raises(BadRequirement):
        judge("arch>=x", host.facts)
    with pytest.raises(BadRequirement):
        judge("brand>=x", host.facts)

    assert [0, 0] == host.asked


def test_each_gpu_is_asked_once() -> None:
    """One answer serves all requirements."""
    host = Host(("9.0", "Tesla"), ("9.0", "Tesla"))
    check((stated("brand!=a,brand!=b,arch>=8"), stated("arch>=9")), host.facts)

    assert [1, 1] == host.asked


def test_what_is_not_known_does_not_hold() -> None:
    """A driver that does not tell its version satisfies no condition on it; a bad expression stays bad."""
    unknown = TESLA.with_(cuda="")

    assert not judge("cuda!=1", unknown).holds
    with pytest.raises(BadRequirement):
        judge("cuda>=x", unknown)


@pytest.mark.parametrize(
    ("one", "other", "sign"),
    [
        *(
            ("1", "1", 0),
            ("1.0", "1", 0),
            ("1.2", "1.10", -1),
            ("2", "1.9.9", 1),
            ("1..2", "1.2", 0),
            ("01", "1", 0),
            ("1.", "1", 0),
        ),
        *(
            ("1", "", None),
            ("", "1", None),
            ("1", ".1", None),
            ("1", "1a", None),
            ("1", "1.99999999999999999999", None),
        ),
        *(
            ("1", "2.99999999999999999999", -1),
            ("1", f"{2**64 - 2}", -1),
            ("1", f"{2**64 - 1}", None),
            ("1", "1" * 5000, None),
        ),
    ],
)
def test_versions_compare_number_by_number(one: str, other: str, sign: int | None) -> None:
    """What is behind the first difference is not looked at; None is for what is no version."""
    assert sign == compare_versions(one, other)


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "cuda>=99 " * 120_000,
            "brand!=x," * 120_000,
            "," * (1 << 20),
            " " * (1 << 20),
            "<" * (1 << 20),
            "a" * (1 << 20),
        ),
        *(
            f"driver>={'.'.join('1' * 100_000)}",
            f"driver>=535.261.3{'.0' * 100_000}",
            f"cuda>={'9' * (1 << 20)}",
            "(a|a)*" * 100_000,
        ),
        " ".join(f"arch>={number}" for number in range(100, 100_000)),
    ],
    ids=lambda text: text[:12],
)
def test_a_mebibyte_is_judged_in_time(expression: str) -> None:
    """The time grows with the length and no faster (AC-43)."""
    started = time.process_time()
    with contextlib.suppress(BadRequirement):
        judge(expression, Host(*[("9.0", "Tesla")] * 16).facts)

    assert time.process_time() - started < 5


parts = st.sampled_from(
    ["cuda", "driver", "arch", "brand", "Foo", ">=", "<", "=", "!", "12.2", "535", "tesla", " ", ",", ".", "9" * 30]
)


@given(
    st.lists(parts | st.text(max_size=3), max_size=12).map("".join),
    st.sampled_from([TESLA, NO_GPU, Host(("9.0", ""), ("x", "y")).facts]),
)
def test_any_expression_gives_a_verdict_or_a_reason(expression: str, facts: Facts) -> None:
    """No expression crashes, and what does not hold names at least one failure."""
    with contextlib.suppress(BadRequirement):
        verdict = judge(expression, facts)

        assert verdict.holds is not bool(verdict.failures)


@given(st.lists(parts, max_size=12).map("".join))
def test_check_agrees_with_evaluate(expression: str) -> None:
    """Whatever does not hold has words for a person."""
    try:
        holds = judge(expression).holds
    except BadRequirement:
        holds = True
    with contextlib.suppress(BadRequirement) if holds else pytest.raises(Unsatisfied):
        check((stated(expression),), TESLA)
