from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import ConfigBroken
from gpuhook.settings.reader import read_toml

PACKAGED = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
#swarm-resource = "DOCKER_RESOURCE_GPU"

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
load-kmods = true
ldconfig = "@/sbin/ldconfig"

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc", 'crun'] # in this order

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = [
  "cdi.k8s.io/", # of Kubernetes
]
default-kind = "nvidia.com/gpu"
"""

WORDS = [
    "=",
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    "#",
    "\\",
    "\n",
    "\r",
    "\t",
    "\0",
    '"""',
    "'''",
    "é",
    "[[",
    "x=1",
]


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("", {}),
        ("# only a comment", {}),
        ("a = 1\r\nb = true\r\n", {"a": 1, "b": True}),
        ("a = \"x # y\" # z\nb = 'C:\\d'", {"a": "x # y", "b": "C:\\d"}),
        ('a = """\nx\ny"""', {"a": "x\ny"}),
        ('a = "\\u00e9\\t"', {"a": "é\t"}),
        ('a = ["x, y", "z]"]', {"a": ["x, y", "z]"]}),
        ("a = [ # one\n 1,\n 2,\n]", {"a": [1, 2]}),
        ("a = { b = 'x', c = { d = false } }", {"a": {"b": "x", "c": {"d": False}}}),
        ("a.b.c = 1\na.b.d = 2", {"a": {"b": {"c": 1, "d": 2}}}),
        ("[a.b]\nx = 1\n[a]\ny = 2", {"a": {"b": {"x": 1}, "y": 2}}),
        ("[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 3", {"a": [{"x": 1}, {"x": 2, "b": {"y": 3}}]}),
        ('["quoted name"]\n"a key" = 1', {"quoted name": {"a key": 1}}),
        ("a = 0xff\nb = 1_000\nc = 1.5e3", {"a": 255, "b": 1000, "c": 1500.0}),
    ],
)
def test_valid_files_are_read(text: str, table: dict[str, object]) -> None:
    """What TOML 1.0 and the package both understand comes out as the package reads it."""
    assert table == read_toml(text, "/c").table


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = {", 1),
        ("b = 1\na = { b = 1", 2),
        ("a = { b = 1, }", 1),
        ("a == 1", 1),
        ("b = 1\n\na = [1,,2]", 3),
        ("a = [1, 2\n\n[b]\nc = 1", 1),
        ("a = [", 1),
        ("a =", 1),
        ("a", 1),
        ("= 1", 1),
        ("b = 1\nsome words, left here\n", 2),
        ('b = 1\na = "x', 2),
        ('a = "x\ny"', 1),
        ('a = """x\ny', 1),
        ('a = "\\x41"', 1),
        ('a = "\\ud800"', 1),
        ('a = "\\U00110000"', 1),
        ("a = 'it''s'", 1),
        ("a = True", 1),
        ("a = yes", 1),
        ("a = 01", 1),
        ("a = 1.", 1),
        ("a = 1;", 1),
        ("a = true true", 1),
        ("b = 1\na = 99999999999999999999", 2),
        ("b = 1\na = 1979-13-45", 2),
        ("a = 1\na = 2", 2),
        ('a = 1\n"a" = 2', 2),
        ("[a]\n\n[a]", 3),
        ("a = 1\n[a]", 2),
        ("a = {}\n[a.b]", 2),
        ("a = {}\na.b = 1", 2),
        ("a.b = 1\n[a]\nc = 1", 2),
        ("a = []\n[[a]]", 2),
        ("[[a]]\n[a]", 2),
        ("[a]\n[[a]]", 2),
        ("[a.b]\nx = 1\n[a]\nb.y = 1", 4),
        ("[a", 1),
        ("[]", 1),
        ("[a..b]", 1),
        ("[a] b = 1", 1),
        ("[[a]", 1),
        ("ü = 1", 1),
        ("a b = 1", 1),
        ('"""a""" = 1', 1),
        ("b = 1\na = '\x01'", 2),
        ("# a comment with \x7f", 1),
        ("a = 1\rb = 2", 1),
        ("\ufeffa = 1", 1),
        ("a = " + "[" * 40 + "]" * 40, 1),
        (".".join("a" * 40) + " = 1", 1),
        ("[" + ".".join("a" * 5000) + "]", 1),
        ("a = " + "[" * 100_000, 1),
        ("b = 1\na = '" + "x" * 70_000 + "'", 2),
    ],
)
def test_broken_files_are_refused_with_the_line(text: str, line: int) -> None:
    """What is no TOML is an error of ours that names file and line, also where the package accepts it."""
    with pytest.raises(ConfigBroken) as broken:
        read_toml(text, "/etc/c.toml")

    assert f"/etc/c.toml:{line}" == broken.value.where
    assert "/etc/c.toml" in broken.value.text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('b = 1\na = [1, "x"]', 2),  # a mixed list: TOML 1.0 allows it
        ("b = 1\na . x = 1", 2),  # blanks around a dot become part of the name
        ('b = 1\nc = "\\"\\"x"', 2),  # quotes at the beginning are taken for a text of several lines
    ],
)
def test_what_the_package_cannot_read_is_refused(text: str, line: int) -> None:
    """Valid TOML that the package refuses or misreads is refused with its line, never half understood."""
    with pytest.raises(ConfigBroken) as broken:
        read_toml(text, "/c")

    assert f"/c:{line}" == broken.value.where


@pytest.mark.parametrize(
    ("data", "line"),
    [(b"# \xe9t\xe9", 1), (b'a = 1\nb = "\xff"', 2), ("a = 1".encode("utf-16"), 1), (b"\xef\xbb\xbfa = 1", 1)],
)
def test_other_encodings_are_refused_with_the_line(data: bytes, line: int) -> None:
    """Only UTF-8 without a byte order mark is TOML."""
    with pytest.raises(ConfigBroken) as broken:
        read_toml(data, "/c")

    assert f"/c:{line}" == broken.value.where


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("disable-require",), 2),
        (("nvidia-container-cli",), 6),
        (("nvidia-container-cli", "ldconfig"), 10),
        (("nvidia-container-runtime", "runtimes", 1), 15),
        (("nvidia-container-runtime", "modes"), 17),
        (("nvidia-container-runtime", "modes", "cdi", "annotation-prefixes", 0), 19),
        (("nvidia-container-cli", "absent"), 6),
        (("absent",), 1),
    ],
)
def test_every_key_has_its_line(path: tuple[str | int, ...], line: int) -> None:
    """Keys, tables and list elements are found; what is absent is looked for in the table above."""
    assert line == read_toml(PACKAGED, "/c").line(*path)


def line_of_refusal(data: str | bytes) -> int:
    """The line that the refusal names, or 0 where the file is read."""
    try:
        read_toml(data, "/c")
    except ConfigBroken as broken:
        return int(broken.where.removeprefix("/c:"))
    return 0


@given(
    st.lists(
        st.tuples(st.integers(0, len(PACKAGED)), st.integers(0, 9), st.sampled_from(WORDS) | st.text(max_size=3)),
        min_size=1,
        max_size=6,
    )
)
def test_a_damaged_file_is_read_or_refused(damage: list[tuple[int, int, str]]) -> None:
    """Whatever is done to a real file, the outcome is a table or ConfigBroken with a line."""
    text = PACKAGED
    for at, gone, word in damage:
        text = text[:at] + word + text[at + gone :]
    assert line_of_refusal(text) in range(text.count("\n") + 2)


@given(st.text(alphabet=st.sampled_from("ab=\"'[]{},.#\\\n \t1-:T0tue"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text ends in another exception than ConfigBroken."""
    assert line_of_refusal(text) in range(text.count("\n") + 2)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No bytes end in another exception than ConfigBroken."""
    assert line_of_refusal(data) in range(data.count(b"\n") + 2)
