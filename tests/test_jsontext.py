import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook import jsontext
from gpuhook.jsontext import NotJson, document, first_value, is_plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"{}", {}),
        (b' \t\r\n{"a": [1, -2.5, true, null, "\\u00fc"]}\n', {"a": [1, -2.5, True, None, "ü"]}),
        (b"7", 7),
        ('"ü"'.encode(), "ü"),
    ],
)
def test_document_reads_a_value_with_blanks_around(text: bytes, value: object) -> None:
    """A document is one value; blanks around it mean nothing."""
    assert value == document(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty"),
        (b"   ", "empty"),
        (b'{"a": ', "ends in the middle"),
        (b"[1,", "ends in the middle"),
        (b'{"a": 1} x', "follows the first value"),
        (b'{"a": x}', "no JSON value at character 6"),
        (b'{"a": "x', "character"),
        (b'{"a" 1}', "character"),
        (b'{"a": "\n"}', "character"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b"\xef\xbb\xbf{}", "no JSON value at character 0"),
        (b'{"a": 1, "b": {"x": 1, "x": 2}}', "'x' is given twice"),
        (b'{"a": NaN}', "NaN is no JSON value"),
        (b"-Infinity", "-Infinity is no JSON value"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "digits"),
    ],
)
def test_document_refuses_and_says_why(text: bytes, reason: str) -> None:
    """What is no JSON, or what two readers could understand differently, is refused with its reason."""
    with pytest.raises(NotJson, match=reason):
        document(text)


def test_first_value_does_not_look_at_what_follows() -> None:
    """A runtime may write anything behind the state."""
    assert {"a": 1} == first_value(' {"a": 1} {"b": 2} junk')


def test_first_value_refuses_an_empty_text() -> None:
    """Nothing at all is no value."""
    with pytest.raises(NotJson, match="empty"):
        first_value(" \n")


def test_a_bad_document_is_explained_without_the_json_package() -> None:
    """The hot path never imports json; its scanner must still be able to complain."""
    code = (
        "import sys; from gpuhook.jsontext import *\n"
        "assert 'json' not in sys.modules\n"
        "try: document(b'{\"a\" 1}')\n"
        "except NotJson as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (0, "") == (run.returncode, run.stderr)
    assert "at character 5" in run.stdout


def test_without_the_c_scanner_the_json_package_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Python has no _json: the rules hold there too."""
    monkeypatch.setitem(sys.modules, "_json", None)
    scan = jsontext._scanner()

    assert ({"a": 1}, 8) == scan('{"a": 1}', 0)
    with pytest.raises(NotJson, match="twice"):
        scan('{"a": 1, "a": 2}', 0)
    with pytest.raises(NotJson, match="NaN"):
        scan("NaN", 0)


@pytest.mark.parametrize("text", ["", "plain", "a b", "ü", "显卡", "😀", "\xa0", "\u200b", "%s ${HOME} $(id) `id`"])
def test_ordinary_text_is_plain(text: str) -> None:
    """Anything that a person may have typed can be a name."""
    assert is_plain(text)


@pytest.mark.parametrize(
    "text",
    [
        "a\nb",
        "\t",
        "\r",
        "\0",
        "\x1b[31m",
        "\x7f",
        "ü\x85",
        "ü\n",
        "\ud800",
        "a\u2028b",
        "\u2029",
        "\u202eabc",
        "\u2066",
    ],
)
def test_text_that_misleads_is_not_plain(text: str) -> None:
    """Control characters, separators, overrides and surrogates mean something else to another reader (AC-39)."""
    assert not is_plain(text)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_not_json(data: bytes) -> None:
    """Whatever the bytes are, there is a value or a reason."""
    with contextlib.suppress(NotJson):
        document(data)
