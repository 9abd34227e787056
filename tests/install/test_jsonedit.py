"""Edits of JSON texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.install.jsonedit import Node, NotJson, put, read, replaced, without

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
INDENTS = st.sampled_from([None, 0, 1, 4, "\t"])


@given(OBJECTS, INDENTS, st.text(max_size=4), VALUES)
def test_a_member_is_put_in_and_taken_out_again(old: dict[str, Any], indent: Any, key: str, value: Any) -> None:
    """The text means the same with one member more; without that one it means what it did."""
    text = json.dumps(old, indent=indent)
    after = put(text, read(text), key, value)
    assert json.loads(after) == {**old, key: value}
    root = read(after)
    assert json.loads(without(after, root, root.members[-1])) == old


@given(OBJECTS.filter(bool), INDENTS, VALUES)
def test_a_value_is_replaced(old: dict[str, Any], indent: Any, value: Any) -> None:
    """Where it stands, and nothing else."""
    text = json.dumps(old, indent=indent)
    member = read(text).members[0]
    assert json.loads(replaced(text, member.value, value)) == {**old, member.key: value}


@given(OBJECTS.filter(bool), INDENTS, st.data())
def test_any_member_is_taken_out(old: dict[str, Any], indent: Any, data: Any) -> None:
    """With the one comma that belongs to it."""
    text = json.dumps(old, indent=indent)
    root = read(text)
    member = data.draw(st.sampled_from(root.members))
    left = {key: value for key, value in old.items() if key != member.key}
    assert json.loads(without(text, root, member)) == left


@given(st.text(max_size=12, alphabet='{}[]",:0123456789.eE+-truefalsnl \n\\u/x'))
def test_the_reader_reads_what_python_reads(text: str) -> None:
    """No more and no less, NaN aside."""
    try:
        json.loads(text, parse_constant=lambda _: int(""))
        right = True
    except (ValueError, RecursionError):
        right = False
    assert right == _reads(text)


def _reads(text: str) -> bool:
    try:
        node = read(text)
    except NotJson:
        return False
    return isinstance(node, Node)


def test_depth_is_bounded() -> None:
    """Where recursion would end otherwise."""
    with pytest.raises(NotJson, match="deep"):
        read("[" * 100000)
