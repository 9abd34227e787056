"""IMEX channels: memory shared between nodes, asked for by number (hook.md 7.5, AC-48)."""

from __future__ import annotations

from gpuhook.jsontext import is_plain
from gpuhook.refusals import BadImex
from gpuhook.request.devices import (
    accepts_variables,
    could_be_option,
    ignored,
    length_fault,
    mount_fault,
    requested_by_mount,
    short,
    split_words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle
    from gpuhook.settings.values import Settings

    Warnings = tuple[tuple[str, str], ...]

VARIABLE = "NVIDIA_IMEX_CHANNELS"
HIGHEST = (1 << 20) - 1  # a device's minor number has 20 bits
MOST = 256  # channels of one container: each is a device node
HINT = f"channels are decimal numbers from 0 to {HIGHEST}, separated by commas"


def choose_channels(bundle: Bundle, settings: Settings) -> tuple[tuple[str, ...], Warnings]:
    """The channels that a GPU container asks for, as written, without repetition; and (slug, text) warnings.

    `all`, `none` and `void` mean no channel: only a number names one. Raises BadImex for what a program could
    mistake; whether they are numbers is for check_channels or nvidia-container-cli.
    """
    if settings.ignore_imex_channel_requests:
        return (), ()
    if settings.accept_volume_mounts and (mounts := [m for m in requested_by_mount(bundle) if _is_channel(m)]):
        return _meaning(_mounted(mounts), f"the mount at {mounts[0][1]}"), ()
    value = bundle.env.get(VARIABLE, "")
    if fault := length_fault(VARIABLE, value):
        raise BadImex(fault, where=VARIABLE, hint=HINT)
    if not accepts_variables(bundle, settings):
        return (), (ignored(VARIABLE, settings),) if _names_any(split_words(value)) else ()
    words = _meaning(split_words(value), VARIABLE)
    if words and not is_plain(value):
        raise BadImex(f"{VARIABLE} holds a control character", where=f"{VARIABLE}={value}", hint=HINT)
    return words, ()


def check_channels(names: tuple[str, ...]) -> tuple[int, ...]:
    """The channels' numbers, for the embedded engine. Raises BadImex for what is none and for too many."""
    if len(names) > MOST:
        raise BadImex(f"{len(names)} IMEX channels are asked for, more than {MOST}", where=VARIABLE, hint=HINT)
    for name in names:
        if not (name.isascii() and name.isdigit() and len(name) <= 7 and int(name) <= HIGHEST):
            raise BadImex(f"the IMEX channel {short(name)} is no channel number", where=VARIABLE, hint=HINT)
    return tuple(dict.fromkeys(int(name) for name in names))


def _is_channel(pair: tuple[str, str]) -> bool:
    return pair[0].startswith("imex/")


def _mounted(mounts: list[tuple[str, str]]) -> list[str]:
    for name, place in mounts:
        fault = mount_fault(name, place)
        if fault:
            raise BadImex(f"the IMEX channel {short(name)} cannot be taken: {fault}", where=f"the mount at {place}")
    return [name.removeprefix("imex/") for name, _ in mounts]


def _names_any(words: list[str]) -> bool:
    """Whether the words name channels at all: only numbers do."""
    return bool(words) and not {"all", "none", "void"} & set(words)


def _meaning(words: list[str], where: str) -> tuple[str, ...]:
    if not _names_any(words):
        return ()
    for word in words:
        if could_be_option(word):
            raise BadImex(f"the IMEX channel {short(word)} begins with '-'", where=where, hint=HINT)
    return tuple(dict.fromkeys(words))
