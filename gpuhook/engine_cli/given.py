"""What a command line said: its options in their order, and the checks of values that are made while reading."""

from __future__ import annotations

import posix
from errno import EINVAL, ENOENT, ERANGE

from gpuhook.engine_cli.options import MODES
from gpuhook.errors import GpuhookError

SPACES = " \t\n\v\f\r"
HIGHEST_PID, HIGHEST_ID = (1 << 31) - 1, (1 << 32) - 1
MOST_REQUIREMENTS = 32


class Refusal(GpuhookError):
    """Something that nvidia-container-cli refuses in words of its own: prefix and detail (engine.md 1.8 and 9)."""

    reference = "usage"

    def __init__(self, prefix: str, text: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(text, where=where, hint=hint)
        self.prefix = prefix


class Given:
    """The options of one level as (name, value), and its other words."""

    def __init__(self) -> None:
        self.options: list[tuple[str, str | None]] = []
        self.words: list[str] = []

    def has(self, name: str) -> bool:
        """Whether this option was given."""
        return any(name == given for given, _ in self.options)

    def each(self, name: str) -> list[str]:
        """The values of this option in their order."""
        return [value for given, value in self.options if given == name and value is not None]

    def last(self, name: str, default: str = "") -> str:
        """The last value of this option, the one that counts."""
        return [default, *self.each(name)][-1]

    def elements(self, name: str) -> tuple[str, ...]:
        """The elements of all comma-separated values of this option, without empty ones and repetitions."""
        return tuple(dict.fromkeys(part for value in self.each(name) for part in value.split(",") if part))


def check(given: Given, name: str, value: str | None) -> None:
    """Refuse a bad value when it is reached, as argp's callbacks do. Raises Refusal."""
    if name == "pid":
        parse_pid(value or "")
    elif name == "user":
        parse_user(value)
    elif name == "require" and len(given.each("require")) > MOST_REQUIREMENTS:
        raise Refusal("input error", "too many requirements", hint="put several conditions into one, with commas")
    elif name == "cuda-compat-mode" and value not in MODES:
        raise Refusal("input error", f"invalid cuda-compat-mode: {value}", hint="use mount, ldconfig or disabled")


def _number(text: str, lowest: int, highest: int) -> int:
    """A decimal number as strtol(3) takes it: blanks and a sign in front. Raises OSError, EINVAL or ERANGE."""
    digits = text.lstrip(SPACES)
    sign = -1 if digits.startswith("-") else 1
    digits = digits[1:] if digits.startswith(("-", "+")) else digits
    if not (digits.isascii() and digits.isdecimal()):
        raise OSError(EINVAL, posix.strerror(EINVAL))
    value = sign * int(digits[:30])
    if len(digits) > 30 or not lowest <= value <= highest:
        raise OSError(ERANGE, posix.strerror(ERANGE))
    return value


def lowered(error: OSError) -> str:
    """What an error is in the C library's words, in lower case."""
    return posix.strerror(error.errno or 0).lower()


def parse_pid(text: str) -> int:
    """A process id; zero and negative ones mean our parent (engine.md 1.5). Raises Refusal."""
    try:
        return _number(text, -HIGHEST_PID - 1, HIGHEST_PID)
    except OSError as error:
        raise Refusal("input error", f"parse pid failed: {lowered(error)}", where=f"--pid={text}") from None


def parse_user(text: str | None) -> tuple[int, int]:
    """UID[:GID] as numbers or names; None means ourselves, no group the user's own one. Raises Refusal."""
    if text is None:
        return posix.geteuid(), posix.getegid()
    try:
        user, _, group = text.partition(":")
        uid, own_group = _user(user)
        if group:
            return uid, _group(group)
        if own_group is None:
            own_group = _group_of(uid)
    except OSError as error:
        raise Refusal("input error", f"parse user/group failed: {lowered(error)}", where=f"--user={text}") from None
    return uid, own_group


def _absent() -> OSError:
    return OSError(ENOENT, posix.strerror(ENOENT))


def _user(text: str) -> tuple[int, int | None]:
    """The id that a number or a name means, and with a name the user's own group."""
    if text[:1].isdigit():
        return _number(text, 0, HIGHEST_ID), None
    from pwd import getpwnam

    try:
        entry = getpwnam(text)
    except (KeyError, ValueError):
        raise _absent() from None
    return entry.pw_uid, entry.pw_gid


def _group(text: str) -> int:
    if text[:1].isdigit():
        return _number(text, 0, HIGHEST_ID)
    from grp import getgrnam

    try:
        return getgrnam(text).gr_gid
    except (KeyError, ValueError):
        raise _absent() from None


def _group_of(uid: int) -> int:
    from pwd import getpwuid

    try:
        return getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        raise _absent() from None
