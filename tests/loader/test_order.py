from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.loader.order import flags_of, may_overflow, order
from gpuhook.refusals import NotCovered
from tests.loader.model import compare

# Few letters, so that names share prefixes; bytes on both sides of a char's sign; numbers that overflow 32 bits.
PIECES = ["lib", "a", "b", "-", ".so.", "0", "1", "09", "10", "é", "\udc80", "\udcff", "~"]
LONG = ["2147483647", "2147483648", "3000000000", "4294967295", "4294967297", "00000000001"]
ALL_NAMES = st.lists(st.sampled_from([*PIECES, *LONG]), max_size=8).map("".join)
NAMES = st.lists(st.sampled_from(PIECES), max_size=8).map("".join).filter(lambda name: not may_overflow([name]))


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


def raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


@given(NAMES, NAMES, st.booleans())
def test_keys_compare_as_the_loader_compares(first: str, second: str, signed: bool) -> None:
    """Two keys stand to each other as the loader says of the two names, as long as no number overflows."""
    machine = "x86_64" if signed else "aarch64"
    a, b = order(first, machine), order(second, machine)

    assert sign(compare(raw(first), raw(second), signed=signed)) == (a > b) - (a < b)


@given(ALL_NAMES, ALL_NAMES, st.booleans())
def test_keys_are_equal_where_the_loader_sees_one_name(first: str, second: str, signed: bool) -> None:
    """Of all names, those with numbers that overflow included, equal keys have just those that are equal to it."""
    machine = "x86_64" if signed else "aarch64"

    assert (compare(raw(first), raw(second), signed=signed) == 0) == (order(first, machine) == order(second, machine))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], False),
        ([""], False),
        (["libx.so.123456789", "liby.so.1", "2", "3"], False),
        (["1234567", "890"], False),
        (["liby.so", "libx.so.1234567890"], True),
        (["lib\udcff2147483648x"], True),
    ],
)
def test_long_numbers_are_noticed(names: list[str], expected: bool) -> None:
    """Ten digits in a row within one name may overflow; digits of two names do not add up."""
    assert may_overflow(names) is expected


@given(NAMES, NAMES, NAMES)
def test_the_loaders_order_is_a_strict_weak_order(a: str, b: str, c: str) -> None:
    """The comparison is antisymmetric, and both "less" and "equal" carry over, which a search by halves needs."""
    x, y, z = raw(a), raw(b), raw(c)

    assert sign(compare(x, y)) == -sign(compare(y, x))
    if compare(x, y) <= 0 and compare(y, z) <= 0:
        assert compare(x, z) <= 0
    if compare(x, y) == 0:
        assert sign(compare(x, z)) == sign(compare(y, z))


@pytest.mark.parametrize(
    ("less", "greater"),
    [
        ("libx.so.9", "libx.so.10"),
        ("libx.so", "libx.so.1"),
        ("libx.so.535.54.03", "libx.so.535.104.05"),
        ("libxz", "libx0"),
        ("libA", "liba"),
        ("", "l"),
    ],
)
def test_numbers_count_as_numbers(less: str, greater: str) -> None:
    """Runs of digits compare by value and are greater than other characters."""
    assert order(less) < order(greater)


@pytest.mark.parametrize("name", ["libcuda.so.01", "libcuda.so.4294967297", "libcuda.so.0000000001"])
def test_other_texts_can_be_the_same_name(name: str) -> None:
    """Leading zeros and overflow make a name that the loader takes for another."""
    assert order(name) == order("libcuda.so.1")


@pytest.mark.parametrize("name", ["libcuda.so.2147483649", "libcuda.so.4294967295", "libcuda.so.10", "libcuda.so1"])
def test_most_texts_are_other_names(name: str) -> None:
    """Overflow keeps 32 bits of a number: fewer would throw more names together than the loader does."""
    assert order(name) != order("libcuda.so.1")


def test_a_char_has_a_sign_on_x86_only() -> None:
    """A byte above 127 is less than the end of a name on x86, and greater elsewhere."""
    assert order("libé", "x86_64") < order("lib", "x86_64")
    assert order("libé", "aarch64") > order("lib", "aarch64")


def test_an_unknown_machine_is_refused() -> None:
    """Flags are not guessed: a machine without a row is not covered, named with its bits."""
    with pytest.raises(NotCovered, match="32-bit libraries of ppc64le"):
        flags_of("ppc64le", 32)
