"""Edits of TOML texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.install.tomledit import Raw, Table, Toml, appended, block, merged, with_key, without, written

NAMES = st.text(alphabet='ab.-" é', min_size=1, max_size=3)
SCALARS = (
    st.booleans() | st.text(max_size=5).filter(str.isprintable) | st.integers(0, 99).map(lambda n: Raw(text=str(n)))
)
TABLES = st.recursive(
    st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=2), max_size=3),
    lambda inner: st.dictionaries(NAMES, inner | SCALARS, max_size=3),
    max_leaves=6,
)


def text_of(table: Table) -> str:
    """A table as a document."""
    plain = "".join(f"{written(k)} = {written(v)}\n" for k, v in table.items() if not isinstance(v, dict))
    return plain + "".join("\n".join([*block((k,), v), "", ""]) for k, v in table.items() if isinstance(v, dict))


@given(TABLES)
def test_a_table_written_is_the_table_read(table: Table) -> None:
    """Blocks, quoting and escapes."""
    assert table == Toml(text_of(table)).table


@given(TABLES, SCALARS)
def test_a_key_of_the_root_comes_and_goes(table: Table, value: object) -> None:
    """Before the first header, whatever there is."""
    text = text_of(table)
    after = with_key(text, (), "new", value)
    assert Toml(after).table == {**table, "new": value}
    assert Toml(without(after, ("new",))).table == table


@given(TABLES, SCALARS)
def test_a_table_comes_and_goes(table: Table, value: object) -> None:
    """At the end; taken out, the text is as it was but for line ends at its end."""
    text = text_of(table)
    after = appended(text, block(("new", "x"), {"k": value}))
    assert Toml(after).table == {**table, "new": {"x": {"k": value}}}
    assert without(after, ("new", "x")).rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ("a = 1\n", ("a",), "a = 2\n"),
        ("a = 1 # why\n", ("a",), "a = 2 # why\n"),
        ("a = [\n 1,\n]\nb = 1\n", ("a",), "a = 2\nb = 1\n"),
        ("[t]\n  a = 1\n[u]\n", ("t", "b"), "[t]\n  a = 1\n  b = 2\n[u]\n"),
        ("[t]\n[u]\n", ("t", "b"), "[t]\n  b = 2\n[u]\n"),
        ("[t.u]\nx = 1", ("t", "b"), "[t.u]\nx = 1\n\n[t]\n  b = 2\n"),
        ("# head\n\n# of t\n[t]\n", ("b",), "# head\n\nb = 2\n# of t\n[t]\n"),
        ("# only a comment", ("b",), "# only a comment\nb = 2\n"),
        ("", ("b",), "b = 2\n"),
        ("[t]\na = 1", ("t", "b"), "[t]\na = 1\nb = 2\n"),
    ],
)
def test_where_a_key_goes(before: str, path: tuple[str, ...], after: str) -> None:
    """Where it stands, after its neighbours, or in a table of its own; comments stay."""
    assert after == with_key(before, path[:-1], path[-1], Raw(text="2"))


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ("a = 1\nb = 2\n", ("a",), "b = 2\n"),
        ("[x]\na = 1\n\n[t]\nb = 1\n\n[t.u]\nc = 1\n\n# of y\n[y]\n", ("t",), "[x]\na = 1\n\n# of y\n[y]\n"),
        ("t.a = 1\nt.b = 2\nc = 3\n", ("t",), "c = 3\n"),
        ("[t]\na = 1", ("t",), ""),
        ("a = 1\n", ("b",), "a = 1\n"),
    ],
)
def test_what_goes_with_a_table(before: str, path: tuple[str, ...], after: str) -> None:
    """All that is in it, and the empty line that set it off; the comment of what follows stays."""
    assert after == without(before, path)


def test_merging_changes_neither() -> None:
    """Key by key, the later one winning."""
    base: Table = {"a": {"b": True, "c": [True]}, "d": "x"}
    over: Table = {"a": {"b": False}, "d": {"e": "y"}}
    assert merged(base, over) == {"a": {"b": False, "c": [True]}, "d": {"e": "y"}}
    assert base == {"a": {"b": True, "c": [True]}, "d": "x"}
