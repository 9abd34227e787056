"""The container state that a runtime writes to a hook's stdin (OCI runtime specification, "State")."""

from __future__ import annotations

import posix
from time import monotonic

from gpuhook.errors import BadState
from gpuhook.jsontext import NotJson, first_value, is_plain
from gpuhook.value import Value

LIMIT = 1 << 20  # bytes; the largest states seen hold annotations of some KiB
CHUNK = 1 << 16  # bytes read at once: a pipe holds as many
KEYS = ("pid", "bundle", "bundlePath", "id")
LOWERED = tuple(key.casefold() for key in KEYS)
DEADLINE = 5.0  # seconds that we wait for the runtime to write it
HINT = "the hook is started by a container runtime, which writes the container's state to its stdin"


class State(Value):
    """What the hook needs of the state.

    pid: of the container's first process, 0 where the state has none; bundle: absolute path; id: for messages.
    """

    pid: int
    bundle: str
    id: str = ""


def read_state(fd: int = 0, deadline: float = DEADLINE) -> State:
    """The state on stdin, without waiting for its end: some runtimes keep the pipe open.

    deadline: seconds. Raises BadState.
    """
    return parse_state(_first_value_on(fd, deadline))


def _first_value_on(fd: int, deadline: float) -> object:
    data = b""
    fault = "nothing was written"
    give_up = monotonic() + deadline
    while (part := _read(fd, give_up)) is not None:
        data += part
        if len(data) > LIMIT:
            raise BadState(f"the state is larger than {LIMIT >> 20} MiB", where="stdin", hint=HINT)
        if part and b"}" not in part:
            continue
        try:
            return first_value(data.decode())
        except UnicodeDecodeError as error:
            fault = f"byte {error.start} is not UTF-8"
        except NotJson as error:
            fault = str(error)
        if not part:
            raise BadState(f"the state is not JSON: {fault}", where="stdin", hint=HINT)
    raise BadState(f"no complete state within {deadline:g} s: {fault}", where="stdin", hint=HINT)


def _read(fd: int, give_up: float) -> bytes | None:
    """The next bytes, b"" at the end, None when it is too late.

    In the usual case the state has been written before we look, and `select` need not be imported.
    """
    try:
        blocking = posix.get_blocking(fd)
        posix.set_blocking(fd, False)
        try:
            return _read_when_ready(fd, give_up)
        finally:
            posix.set_blocking(fd, blocking)
    except OSError as error:
        raise BadState(f"cannot read it: {error.strerror}", where="stdin", hint=HINT) from error


def _read_when_ready(fd: int, give_up: float) -> bytes | None:
    try:
        return posix.read(fd, CHUNK)
    except BlockingIOError:
        from select import select

        return posix.read(fd, CHUNK) if select([fd], [], [], max(0.0, give_up - monotonic()))[0] else None


def parse_state(value: object) -> State:
    """The state out of its JSON value. Raises BadState for what is missing, of another type, or ambiguous."""
    if not isinstance(value, dict):
        raise BadState(f"the state is no JSON object but {type(value).__name__}", where="stdin", hint=HINT)
    for key in value:
        if key not in KEYS and key.casefold() in LOWERED:
            text = f"the key {key!r} is one of {', '.join(KEYS)} in other letters; runtimes differ in what they read"
            raise BadState(text, where="stdin", hint=HINT)
    pid = value.get("pid", 0)
    if type(pid) is not int or not -(2**31) <= pid < 2**31:
        raise BadState(f"pid is {pid!r:.40}, not a whole number of 32 bits", where="stdin: pid", hint=HINT)
    return State(pid=pid, bundle=_bundle(value), id=_text(value, "id"))


def _bundle(value: dict[str, object]) -> str:
    bundle, older = _text(value, "bundle"), _text(value, "bundlePath")
    if bundle and older and bundle != older:
        raise BadState(f"bundle is {bundle!r} but bundlePath is {older!r}", where="stdin", hint=HINT)
    path = bundle or older
    if not path.startswith("/") or ".." in path.split("/"):
        raise BadState(
            f"the bundle is {path!r}, not an absolute path without '..'" if path else "the state names no bundle",
            where="stdin: bundle",
            hint=HINT,
        )
    return path


def _text(value: dict[str, object], key: str) -> str:
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str) or not is_plain(text):
        raise BadState(f"{key} is {text!r:.80}, not plain text", where=f"stdin: {key}", hint=HINT)
    return text
