"""Which parts of the driver a container gets: NVIDIA_DRIVER_CAPABILITIES (hook.md 6 and 11.9)."""

from __future__ import annotations

from gpuhook.jsontext import is_plain
from gpuhook.refusals import UnsupportedCapability
from gpuhook.request.devices import config_file, is_legacy, length_fault, short, split_words
from gpuhook.settings.values import CAPABILITIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle
    from gpuhook.settings.values import Settings

VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
KEY = "supported-driver-capabilities"
DEFAULT = ("compute", "utility")


def choose_capabilities(bundle: Bundle, settings: Settings) -> tuple[str, ...]:
    """The driver capabilities of a GPU container, in alphabetical order. Raises UnsupportedCapability.

    A value without a single word (`,`) counts as unset; only the empty string asks an old image for less.
    """
    value = bundle.env.get(VARIABLE)
    if fault := length_fault(VARIABLE, value or ""):
        raise UnsupportedCapability(fault, where=VARIABLE)
    supported = sorted(set(settings.supported_driver_capabilities))
    words = split_words(value or "")
    if words:
        return tuple(_asked_for(value or "", words, supported, settings))
    if is_legacy(bundle.env) and value != "":
        return tuple(supported)
    return tuple(word for word in supported if word in DEFAULT)


def _asked_for(value: str, words: list[str], supported: list[str], settings: Settings) -> list[str]:
    if not is_plain(value):
        raise UnsupportedCapability(f"{VARIABLE} holds a control character", where=f"{VARIABLE}={value}")
    if "all" in words:
        return supported
    for word in words:
        if word not in supported:
            raise _refused(word, value, supported, settings)
    return sorted(set(words))


def _refused(word: str, value: str, supported: list[str], settings: Settings) -> UnsupportedCapability:
    allowed = ", ".join(supported) or "none"
    if word in CAPABILITIES:
        file = config_file(settings)
        return UnsupportedCapability(
            f"{VARIABLE} asks for {short(word)}, which this node does not allow ({KEY} allows {allowed})",
            where=f"{file}: {KEY}",
            hint=f"add {word} to {KEY} in {file}, or leave it out of {VARIABLE}",
        )
    return UnsupportedCapability(
        f"{VARIABLE} asks for {short(word)}, which is no driver capability; this node allows {allowed}",
        where=f"{VARIABLE}={value}",
        hint=_advice(word),
    )


def _advice(word: str) -> str:
    near = nearest(word, (*CAPABILITIES, "all"))
    if near:
        return f"did you mean {near}?"
    return "the words are all, or a list separated by commas, in lower case"


def nearest(word: str, known: tuple[str, ...]) -> str:
    """The known word that the given one may be a misspelling of, "" where none is near (two edits at most)."""
    if len(word) > 20:
        return ""
    text = word.lower().strip("\"'")
    distance, best = min((_distance(text, candidate), candidate) for candidate in known)
    return best if distance <= min(2, len(text) // 2) else ""


def _distance(one: str, other: str) -> int:
    """How many letters must be inserted, removed, replaced or swapped with their neighbour (both words short)."""
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, wanted in enumerate(other, 1):
            best = min(line[-1] + 1, above[column] + 1, above[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                best = min(best, before[column - 2] + 1)
            line.append(best)
        before, above = above, line
    return above[-1]
