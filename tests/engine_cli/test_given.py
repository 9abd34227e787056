"""Values that are checked while the command line is read."""

from __future__ import annotations

import os
import pwd

import pytest

from gpuhook.engine_cli.given import Given, Refusal, check, parse_pid, parse_user

INVALID, RANGE = "invalid argument", "numerical result out of range"
ABSENT = "no such file or directory"


@pytest.mark.parametrize(
    ("text", "pid"),
    [("1", 1), ("0", 0), ("-1", -1), ("+7", 7), (" 7", 7), ("007", 7), ("2147483647", (1 << 31) - 1)],
)
def test_a_pid_is_a_number_as_c_has_it(text: str, pid: int) -> None:
    """Blanks, a sign and zeros in front are taken, as strtol(3) takes them."""
    assert parse_pid(text) == pid


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, INVALID) for text in ("", "x", "1x", "1 ", "0x10", "1.0", "--1", "+", "١", "²")),
        *((text, RANGE) for text in ("2147483648", "-2147483649", "9" * 5000)),
    ],
)
def test_a_pid_that_is_none(text: str, why: str) -> None:
    """The C library's own words say why."""
    with pytest.raises(Refusal) as caught:
        parse_pid(text)
    assert (caught.value.prefix, caught.value.text) == ("input error", f"parse pid failed: {why}")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0:0", (0, 0)),
        ("12345:54321", (12345, 54321)),
        ("root", (0, 0)),
        ("root:", (0, 0)),
        ("0", (0, 0)),
        ("0:", (0, 0)),
        ("root:7", (0, 7)),
        ("7:root", (7, 0)),
        ("4294967295:0", (4294967295, 0)),
    ],
)
def test_a_user_is_ids_or_names(text: str, ids: tuple[int, int]) -> None:
    """Numbers need not exist where a group is given; without one it is the user's own."""
    assert parse_user(text) == ids


def test_a_user_without_a_value_is_ourselves() -> None:
    """Our effective ids."""
    assert parse_user(None) == (os.geteuid(), os.getegid())


def test_a_users_own_group_comes_from_the_password_database() -> None:
    """Of a user whose group has another number than the user."""
    other = next((entry for entry in pwd.getpwall() if entry.pw_uid != entry.pw_gid), None)
    if other is None:
        pytest.skip("every user here has a group of the same number")
    assert parse_user(str(other.pw_uid)) == parse_user(other.pw_name) == (other.pw_uid, other.pw_gid)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(
            (text, ABSENT)
            for text in ("", ":", "nobody-of-this-name", "54321", "54321:", "0:no-such-group", "-1", "a\0b")
        ),
        *((text, INVALID) for text in ("1x", "1x:0", "0:1x", "1 :0")),
        *((text, RANGE) for text in ("4294967296", "0:4294967296", "99999999999999999999:0")),
    ],
)
def test_a_user_that_is_none(text: str, why: str) -> None:
    """Unknown names, unknown ids without a group, numbers with more behind them, numbers that are too large."""
    with pytest.raises(Refusal) as caught:
        parse_user(text)
    assert (caught.value.prefix, caught.value.text) == ("input error", f"parse user/group failed: {why}")


def test_what_was_given_can_be_asked_in_all_ways() -> None:
    """The last value, every value, the elements of all of them together."""
    given = Given()
    given.options = [("device", "0,,1"), ("csv", None), ("device", "1,2"), ("device", "")]
    assert given.has("csv")
    assert not given.has("json")
    assert given.each("device") == ["0,,1", "1,2", ""]
    assert given.elements("device") == ("0", "1", "2")
    assert (given.last("device", "x"), given.last("root", "/")) == ("", "/")


def test_thirty_two_requirements_are_the_most() -> None:
    """The next one is refused."""
    given = Given()
    for number in range(32):
        given.options.append(("require", f"cuda>={number}"))
        check(given, "require", "")
    given.options.append(("require", ""))
    with pytest.raises(Refusal, match="too many requirements"):
        check(given, "require", "")


@pytest.mark.parametrize("mode", ["mount", "ldconfig", "disabled"])
def test_known_compat_modes(mode: str) -> None:
    """The three modes of recent releases."""
    check(Given(), "cuda-compat-mode", mode)


@pytest.mark.parametrize("mode", ["", "hook", "Mount", "none"])
def test_unknown_compat_modes(mode: str) -> None:
    """Anything else is refused with the three words."""
    with pytest.raises(Refusal) as caught:
        check(Given(), "cuda-compat-mode", mode)
    assert "mount, ldconfig or disabled" in caught.value.hint
