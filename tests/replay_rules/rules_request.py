"""Rules about what a container asks for: devices, capabilities, requirements, IMEX channels, MIG."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.replay_rules import cdi, wanted
from tests.replay_rules.config import GO_BLANKS, words_of
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.rule import Amendment, Leaving, Reading, Refusal, Rule
from tests.replay_rules.rules_bundle import asks, has_control
from tests.replay_rules.view import DEVICE_FOLDER, TRUE, View

SWITCH, CAPABILITIES = "NVIDIA_DISABLE_REQUIRE", "NVIDIA_DRIVER_CAPABILITIES"
MIG = ("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES")
ON = ("1", "t", "true", "y", "yes", "on")
SHORT_FOLDER = DEVICE_FOLDER.removeprefix("/var")
SPECIAL = ("all", "none", "void")
Mount = tuple[str, str]


def by_variable(view: View) -> list[str]:
    """The devices that variables ask for; [] where mounts do, or nobody does."""
    return [] if wanted.devices_of_mounts(view) else wanted.devices(view) or []


# ---------------------------------------------------------------------------------------------------- mounts


def accepts_mounts(view: View) -> bool:
    """Whether this node takes requests by mount."""
    return view.works and bool(view.config.get("accept-nvidia-visible-devices-as-volume-mounts"))


def _any_mount(view: View, fits: Callable[[Mount], bool]) -> bool:
    return accepts_mounts(view) and any(map(fits, view.mounts))


def _without_mounts(view: View, fits: Callable[[Mount], bool]) -> View:
    return replace(view, mounts=tuple(mount for mount in view.mounts if not fits(mount)))


def _is_null_by_another_name(mount: Mount) -> bool:
    return mount[0] != "/dev/null" and wanted.clean(mount[0] or ".") == "/dev/null"


def _is_beside_the_folder(mount: Mount) -> bool:
    path = wanted.clean(mount[1] or ".")
    return path.startswith(DEVICE_FOLDER) and not f"{path}/".startswith(f"{DEVICE_FOLDER}/")


def _is_below_run(mount: Mount) -> bool:
    return mount[1].startswith("/") and wanted.clean(mount[1]).startswith(f"{SHORT_FOLDER}/")


def _below_var_run(view: View) -> View:
    return replace(view, mounts=tuple((s, f"/var{d}" if _is_below_run((s, d)) else d) for s, d in view.mounts))


def _requests(view: View) -> list[tuple[str, str]]:
    """What mounts ask for, with the destination of each."""
    found = []
    for mount in view.mounts if accepts_mounts(view) else ():
        found += [(name, mount[1]) for name in wanted.mount_requests(replace(view, mounts=(mount,)))]
    return found


def _mounted_devices(view: View) -> list[str]:
    return [name for name, _ in _requests(view) if not name.startswith("imex/")]


def _mounted_channels(view: View) -> list[str]:
    ignored = view.config.get("features.ignore-imex-channel-requests")
    return [] if ignored else [name.removeprefix("imex/") for name, _ in _requests(view) if name.startswith("imex/")]


def _counts(view: View, name: str) -> bool:
    return not name.startswith("imex/") or bool(_mounted_channels(view))


def _mount_refused(view: View, fault: Callable[[str, str], bool]) -> bool:
    """Whether a mount that counts has a fault: a predicate on its name and its destination."""
    return asks(view) and any(_counts(view, name) and fault(name, place) for name, place in _requests(view))


def _first_special(view: View) -> str:
    return next((name for name in _mounted_devices(view) if name in ("all", "none")), "")


def _all_or_none(view: View, outcome: Outcome) -> Outcome:
    none = _first_special(view) == "none"
    return outcome.without("--device=.*") if none else outcome.with_value("--device", "all")


# --------------------------------------------------------------------------------------------------- variables


def _has_twins(view: View) -> bool:
    if not asks(view):
        return False
    return any(len(set(names)) < len(names) for names in (by_variable(view), wanted.imex_channels(view)))


def _once(view: View, outcome: Outcome) -> Outcome:
    names, channels = by_variable(view) or _mounted_devices(view), wanted.imex_channels(view)
    for option, words in (("--device", names), ("--imex-channel", channels)):
        outcome = outcome.with_value(option, ",".join(dict.fromkeys(words)))
    return outcome


def _is_requirement(name: str) -> bool:
    return name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK")


def _checks(view: View) -> bool:
    return asks(view) and view.env.get(SWITCH) not in TRUE and not view.config.get("disable-require")


def _switch_is_spelled(view: View) -> bool:
    value = view.env.get(SWITCH, "")
    return view.works and value not in TRUE and value.strip(" ").lower() in ON


def _capabilities_are_blank(view: View) -> bool:
    value = view.env.get(CAPABILITIES, "")
    return view.works and value != "" and not words_of(value)


def _without_capabilities(view: View) -> View:
    return replace(view, entries=tuple(e for e in view.entries if not e.startswith(f"{CAPABILITIES}=")))


def _could_be_option(word: str) -> bool:
    return word.startswith("-") or " -" in word


def _listed(view: View) -> list[str]:
    """Every element of a list that the program gets."""
    found = [*by_variable(view), *_mounted_devices(view), *wanted.imex_channels(view)]
    return found + [word for name in MIG for word in words_of(view.env.get(name, ""))]


def _device_names(view: View) -> list[str]:
    return [*by_variable(view), *_mounted_devices(view)]


def _values(view: View) -> list[str]:
    """Every value of a variable that becomes an argument."""
    found = [view.env.get(name, "") for name in MIG]
    if not _mounted_devices(view):
        found += [view.env.get(name, "") for name in wanted.device_variables(view)]
    if words_of(view.env.get(CAPABILITIES, "")):
        found.append(view.env[CAPABILITIES])
    if _checks(view):
        found += [value for name, value in view.env.items() if _is_requirement(name)]
    if wanted.imex_channels(view) and not _mounted_channels(view):
        found.append(view.env.get("NVIDIA_IMEX_CHANNELS", ""))
    return found


RULES: tuple[Rule, ...] = (
    Reading(
        "a mount's source counts only as /dev/null, spelled so",
        "AC-41",
        lambda view: _any_mount(view, _is_null_by_another_name),
        lambda view: _without_mounts(view, _is_null_by_another_name),
    ),
    Reading(
        "a mount beside the device folder is no request",
        "hook.md §11.6; AC-41",
        lambda view: _any_mount(view, _is_beside_the_folder),
        lambda view: _without_mounts(view, _is_beside_the_folder),
    ),
    Reading(
        "/run/nvidia-container-devices is the device folder too",
        "hook.md §11.6",
        lambda view: _any_mount(view, _is_below_run),
        _below_var_run,
    ),
    Leaving(
        "a mount named void makes it no GPU container",
        "hook.md §11.6",
        lambda view: "void" in _mounted_devices(view),
    ),
    Reading(
        "NVIDIA_DISABLE_REQUIRE takes the usual spellings of true",
        "hook.md §11.16",
        _switch_is_spelled,
        lambda view: replace(view, entries=(*view.entries, f"{SWITCH}=1")),
    ),
    Reading(
        "NVIDIA_DRIVER_CAPABILITIES without a word counts as unset",
        "hook.md §11.9; case capability-allow-list",
        _capabilities_are_blank,
        _without_capabilities,
    ),
    Amendment(
        "mounts named all and none mean what they mean in a variable",
        "hook.md §11.6",
        lambda view: asks(view) and _first_special(view) != "",
        _all_or_none,
    ),
    Amendment(
        "IMEX mounts named all, none and void ask for no channel, as in a variable",
        "hook.md §11.6 and §7.5",
        lambda view: asks(view) and any(name in SPECIAL for name in _mounted_channels(view)),
        lambda _, outcome: outcome.without("--imex-channel=.*"),
    ),
    Amendment("what is asked for twice is handed over once", "hook.md §11.2; case unknown-index", _has_twins, _once),
    Amendment(
        "an empty requirement is dropped",
        "hook.md §11.3",
        lambda view: _checks(view) and any(_is_requirement(name) and not value for name, value in view.env.items()),
        lambda _, outcome: outcome.without("--require="),
    ),
    Refusal(
        "a mount request that holds a comma",
        "decisions.md 5; AC-40",
        lambda view: _mount_refused(view, lambda name, _: "," in name),
    ),
    Refusal(
        "a mount request with a blank at an end",
        "AC-40",
        lambda view: _mount_refused(view, lambda name, _: name != name.strip(GO_BLANKS)),
    ),
    Refusal(
        "a mount request whose path is not written plainly",
        "AC-41",
        lambda view: _mount_refused(view, lambda _, to: to != wanted.clean(to)),
    ),
    Refusal(
        "a control character in a mount request",
        "decisions.md 1; AC-39",
        lambda view: _mount_refused(view, lambda name, _: has_control(name)),
    ),
    Refusal(
        "a mount request for a CDI device",
        "decisions.md 1; hook.md §11.7",
        lambda view: view.works and any(name.startswith("cdi/") for name in _mounted_devices(view)),
    ),
    Refusal(
        "a CDI name",
        "decisions.md 1; hook.md §11.7 and §11.13",
        lambda view: asks(view) and any(map(cdi.is_name, _device_names(view))),
    ),
    Refusal(
        "an element of a list that could be an option",
        "decisions.md 1; AC-38; AC-48",
        lambda view: asks(view) and any(map(_could_be_option, _listed(view))),
    ),
    Refusal(
        "a control character in a value that becomes an argument",
        "decisions.md 1; AC-39; AC-42",
        lambda view: asks(view) and any(map(has_control, _values(view))),
    ),
    Refusal(
        "the device folder as the name of a device",
        "case volume-mounts-not-accepted",
        lambda view: asks(view) and any(n.rstrip("/") in (DEVICE_FOLDER, SHORT_FOLDER) for n in by_variable(view)),
    ),
)
