"""The base of all values."""

from __future__ import annotations

import pytest

from gpuhook.value import Value


class Point(Value):
    x: int
    y: int = 0


class Named(Point):
    name: str = "a"


class Other(Value):
    x: int
    y: int = 0


def test_fields_have_the_given_values_or_the_defaults() -> None:
    """A field is what was given, else the class's default."""
    assert (1, 0) == (Point(x=1).x, Point(x=1).y)


def test_equal_means_same_class_and_same_fields() -> None:
    """Two values with equal fields and of different classes are not equal."""
    assert Point(x=1) == Point(x=1, y=0)
    assert Point(x=1) != Point(x=1, y=1)
    assert Point(x=1) != Other(x=1)
    assert len({Point(x=1), Point(x=1), Other(x=1)}) == 2


def test_a_value_never_changes() -> None:
    """Assignment is refused."""
    point = Point(x=1)
    with pytest.raises(AttributeError, match="cannot be changed"):
        point.x = 2  # type: ignore[misc]
    assert point.x == 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({}, "lacks the field x"), ({"x": 1, "z": 2}, "no field z"), ({"y": 1}, "lacks the field x")],
)
def test_fields_must_be_those_of_the_class(fields: dict[str, int], problem: str) -> None:
    """A missing or unknown field is an error at once."""
    with pytest.raises(TypeError, match=problem):
        Point(**fields)


def test_a_copy_with_changes_leaves_the_first_alone() -> None:
    """`with_` changes a copy."""
    first = Point(x=1)
    assert (Point(x=1), Point(x=1, y=5)) == (first, first.with_(y=5))


def test_inherited_fields_come_first() -> None:
    """A subclass has its parent's fields too."""
    assert Named.fields() == ("x", "y", "name")
    assert repr(Named(x=1)) == "Named(x=1, y=0, name='a')"
