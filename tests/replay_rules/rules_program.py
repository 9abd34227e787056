"""Rules about the command line of the hook, and about the program that it becomes."""

from __future__ import annotations

from dataclasses import replace

from tests.replay_rules.outcome import Outcome
from tests.replay_rules.reference import PLACES
from tests.replay_rules.rule import Amendment, Reading, Rule
from tests.replay_rules.rules_bundle import asks
from tests.replay_rules.view import IDLE, View

STAGES = ("prestart", *IDLE)
STEERING_PREFIXES = ("LD_", "PYTHON", "NVC_")
STEERING = ("GLIBC_TUNABLES", "OPENSSL_CONF", "CUDA_MPS_PIPE_DIRECTORY", "TMPDIR")


def _late_options(view: View) -> list[str]:
    return [word for word in view.call.late if word.startswith("-")]


def _options_first(view: View) -> View:
    """The call with everything that follows the command before it."""
    words = list(view.args)
    spot = len(words) - len(view.call.late) - 1
    return view.again([*words[:spot], *words[spot + 1 :], words[spot]])


def _as_prestart(view: View) -> View:
    spot = list(view.args).index("createRuntime")
    return view.again([*view.args[:spot], "prestart", *view.args[spot + 1 :]])


def _configured(view: View) -> dict[str, str]:
    """The configured variables; of a name given twice the last value."""
    entries = view.config.get("nvidia-container-cli.environment", [])
    return dict(entry.split("=", 1) for entry in entries if entry.find("=") > 0)


def _replaces(view: View) -> bool:
    names = [entry.partition("=")[0] for entry in view.config.get("nvidia-container-cli.environment", [])]
    return asks(view) and any(name in view.hook_env or names.count(name) > 1 for name in names)


def _replaced(view: View, outcome: Outcome) -> Outcome:
    changes = {name: PLACES.blank(value) for name, value in _configured(view).items()}
    same = [name for name, value in _configured(view).items() if view.hook_env.get(name) == value]
    changed = outcome.with_env(changes)
    if changed.env is None:
        return changed
    return replace(changed, env={name: value for name, value in changed.env.items() if name not in same})


def _steering(view: View) -> list[str]:
    names = [name for name in view.hook_env if name.startswith(STEERING_PREFIXES) or name in STEERING]
    return [name for name in names if name not in _configured(view)]


def _folders(view: View) -> list[str]:
    return view.hook_env.get("PATH", "").split(":") if view.hook_env.get("PATH") else []


def _searches_relative(view: View) -> bool:
    searches = asks(view) and not view.config.get("nvidia-container-cli.path")
    return searches and any(not folder.startswith("/") for folder in _folders(view))


def _absolute_only(view: View) -> View:
    path = ":".join(folder for folder in _folders(view) if folder.startswith("/"))
    return replace(view, hook_env={**view.hook_env, "PATH": path})


RULES: tuple[Rule, ...] = (
    Reading(
        "createRuntime does prestart's work",
        "decisions.md 7 and 12",
        lambda view: view.call.command == "createRuntime" and not view.call.fault and not view.call.talks,
        _as_prestart,
    ),
    Reading(
        "options may follow the stage, and wrong ones are refused there too",
        "hook.md §11.17",
        lambda view: view.call.command in STAGES and bool(_late_options(view)),
        _options_first,
    ),
    Reading(
        "folders of PATH that are not absolute do not count",
        "decisions.md 7; AC-70; hook.md §11.18",
        _searches_relative,
        _absolute_only,
    ),
    Amendment("a configured variable replaces an inherited one", "hook.md §11.4", _replaces, _replaced),
    Amendment(
        "variables that steer loaders, Python and the driver are dropped",
        "decisions.md 7; AC-71",
        lambda view: asks(view) and bool(_steering(view)),
        lambda view, outcome: outcome.with_env(dict.fromkeys(_steering(view))),
    ),
)
