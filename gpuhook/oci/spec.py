"""Edits of a container's config.json as text: what is not edited stays as it is, byte for byte.

So order, unknown fields, long numbers and the spelling of texts survive without anybody knowing them. The text must
have passed jsontext.document, which refuses what two readers could understand differently. Pure.
"""

from __future__ import annotations

from gpuhook.errors import BadBundle
from gpuhook.jsontext import BLANKS, value_at
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOOK_STAGES = ("prestart", "createRuntime")
NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
HOOK_NAMES = (*NVIDIA_HOOKS, "gpuhook")
HINT = "config.json is written by the container engine; see the OCI runtime specification"


class Device(Value):
    """A character device for a specification: path in the container, number, and the node's mode and owner."""

    path: str
    major: int
    minor: int
    mode: int = 0o666
    uid: int = 0
    gid: int = 0


def gpu_hooks(spec: dict[str, object], names: tuple[str, ...] = HOOK_NAMES) -> list[str]:
    """The paths of the hooks in the specification that bring GPUs: ours and NVIDIA's, by the name of the program.

    An operator's wrapper keeps the program beside itself with the suffix `.real`, and counts too (case
    shim-hook-already-there). Raises BadBundle where hooks are not what they must be.
    """
    found = []
    hooks = table(spec, "hooks")
    for stage in HOOK_STAGES:
        for entry in items(hooks, stage):
            path = entry.get("path") if isinstance(entry, dict) else None
            if isinstance(path, str) and path.rstrip("/").rpartition("/")[2].removesuffix(".real") in names:
                found.append(path)
    return found


def add_hook(text: str, path: str, args: list[str], env: list[str]) -> str:
    """The text with one more prestart hook, after all others.

    env must not be empty: runc starts a hook without one in an environment that is not the hook's (AC-67).
    """
    return append(text, ("hooks", "prestart"), [{"path": path, "args": args, "env": env}])


def add_nodes(text: str, spec: dict[str, object], devices: Iterable[Device]) -> str:
    """The text with these device nodes. A node or a mount that has the path already stays in its place."""
    taken = {entry.get("path") for entry in items(table(spec, "linux"), "devices") if isinstance(entry, dict)}
    taken |= {entry.get("destination") for entry in items(spec, "mounts") if isinstance(entry, dict)}
    fresh = [_node(device) for device in devices if device.path not in taken]
    return append(text, ("linux", "devices"), fresh) if fresh else text


def add_rules(text: str, spec: dict[str, object], devices: Iterable[Device]) -> str:
    """The text with rules that let the container read and write these devices, after all others.

    Making nodes of them is no part of it. A rule that is there already is not repeated.
    """
    rules = items(table(table(spec, "linux"), "resources"), "devices")
    fresh = [rule for device in devices if (rule := _rule(device)) not in rules]
    return append(text, ("linux", "resources", "devices"), fresh) if fresh else text


def _node(device: Device) -> dict[str, object]:
    return {
        "path": device.path,
        "type": "c",
        "major": device.major,
        "minor": device.minor,
        "fileMode": device.mode,
        "uid": device.uid,
        "gid": device.gid,
    }


def _rule(device: Device) -> dict[str, object]:
    return {"allow": True, "type": "c", "major": device.major, "minor": device.minor, "access": "rw"}


def table(parent: dict[str, object], key: str) -> dict[str, object]:
    """A member of an object that is an object itself; empty where it is absent or null. Raises BadBundle."""
    value = _member(parent, key)
    if not isinstance(value, dict) and value is not None:
        raise _refusal(key, value, "an object")
    return value or {}


def items(parent: dict[str, object], key: str) -> list[object]:
    """A member of an object that is a list; empty where it is absent or null. Raises BadBundle."""
    value = _member(parent, key)
    if not isinstance(value, list) and value is not None:
        raise _refusal(key, value, "a list")
    return value or []


def _member(parent: dict[str, object], key: str) -> object:
    """A member; refused in other letters, which Go's runtimes take for the same and others do not (AC-52)."""
    for name in parent:
        if name != key and name.casefold() == key.casefold():
            raise BadBundle(
                f"the key {name!r} stands where {key!r} is meant; runtimes differ in what they read",
                where="config.json",
                hint=HINT,
            )
    return parent.get(key)


def _refusal(key: str, value: object, wanted: str) -> BadBundle:
    found = f"{type(value).__name__} {value!r:.60}"
    return BadBundle(f"{key} is {found}; it must be {wanted}", where=f"config.json: {key}", hint=HINT)


# Text


def append(text: str, path: tuple[str, ...], values: list[dict[str, object]]) -> str:
    """The text with values at the end of the list at this path; what is missing or null on the way is made.

    path: member names from the top. The values on the way must be of the right kind (`table` and `items` tell).
    """
    begin, end = _document(text)
    for depth, key in enumerate(path):
        spot = _find(text, begin, key)
        rest = _nested(path[depth + 1 :], values)
        if spot is None:
            return _insert(text, end, f"{quoted(key)}:{rest}")
        begin, end = spot
        if text[begin:end] == "null":
            return f"{text[:begin]}{rest}{text[end:]}"
    return _insert(text, end, ",".join(map(dump, values)))


def _quoter() -> Callable[[str], str]:
    try:
        from _json import encode_basestring_ascii
    except ImportError:  # another implementation of Python
        from json.encoder import py_encode_basestring_ascii as encode_basestring_ascii
    return encode_basestring_ascii


_quote = _quoter()


def quoted(text: str) -> str:
    """A text as JSON, in ASCII."""
    return _quote(text)


def dump(value: object) -> str:
    """A value as JSON: texts in ASCII, integers, booleans, lists, objects."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        members = [f"{quoted(key)}:{dump(item)}" for key, item in value.items()]
        return f"{{{','.join(members)}}}"
    return f"[{','.join(map(dump, value))}]" if isinstance(value, list) else str(value)


def _nested(path: tuple[str, ...], values: list[dict[str, object]]) -> str:
    inner = dump(values)
    for key in reversed(path):
        inner = f"{{{quoted(key)}:{inner}}}"
    return inner


def _insert(text: str, end: int, addition: str) -> str:
    """The text with another member or element in the object or list that ends before `end`."""
    close = end - 1
    spot = len(text[:close].rstrip(BLANKS))
    comma = "" if text[spot - 1] in "[{" else ","
    return f"{text[:spot]}{comma}{addition}{text[spot:]}"


def _document(text: str) -> tuple[int, int]:
    start = _after_blanks(text, 0)
    return start, value_at(text, start)[1]


def _find(text: str, begin: int, key: str) -> tuple[int, int] | None:
    """Where the value of this member of the object at `begin` begins and ends."""
    for name, start, end in _members(text, begin):
        if name == key:
            return start, end
    return None


def _members(text: str, begin: int) -> Iterator[tuple[object, int, int]]:
    at = _after_blanks(text, begin + 1)
    while text[at] != "}":
        name, at = value_at(text, at)
        start = _after_blanks(text, _after_blanks(text, at) + 1)
        end = value_at(text, start)[1]
        yield name, start, end
        at = _after_blanks(text, end)
        at = _after_blanks(text, at + 1) if text[at] == "," else at


def _after_blanks(text: str, at: int) -> int:
    while text[at] in BLANKS:
        at += 1
    return at
