"""Rules about config.toml: which file counts, how it is read, and when it counts as broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import toml

from tests.replay_rules import reference
from tests.replay_rules.config import COMPAT_MODES, MODES, holds_date, read
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.rule import Amendment, Breaking, Reading, Rule
from tests.replay_rules.rules_bundle import asks, has_control
from tests.replay_rules.run import host_ldconfig
from tests.replay_rules.view import View, config_path

LOG_LEVELS = ("panic", "fatal", "error", "warn", "warning", "info", "debug", "trace")
MODE = "nvidia-container-runtime.mode"
COMPAT = "nvidia-container-runtime.modes.legacy.cuda-compat-mode"
LDCONFIG = "nvidia-container-cli.ldconfig"
ALLOWED = "features.allow-ldconfig-from-container"
PATHS = ("root", "path", "debug", "ldcache", "user", "ldconfig")


def package_reads_it_as_toml(text: str) -> bool:
    """Whether the package toml 0.10.2 reads the text, and finds what TOML 1.0 says."""
    try:
        tables = toml.loads(text)
    except Exception:  # noqa: BLE001  # it raises whatever happens to go wrong in it
        return False
    return bool(_plain(tables) == _plain(read(text).tables))


def _plain(value: Any) -> Any:
    """A value in which dates and floats, which compare oddly, are texts."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | bool) else str(value).replace("+00:00", "")


def _is_utf8(view: View) -> bool:
    return view.config_data.decode("utf-8", "replace").encode() == view.config_data


def _reader_refuses(view: View) -> bool:
    syntax = view.config.fault.startswith("no TOML") or not _is_utf8(view) or view.config_text.startswith("\ufeff")
    return view.works and (syntax or (not view.config.fault and not package_reads_it_as_toml(view.config_text)))


def _reader_is_kinder(view: View) -> bool:
    return view.works and not view.config.fault and holds_date(view.config.tables)


def _is_enumerated(view: View) -> bool:
    get = view.config.get
    level = get("nvidia-container-runtime.log-level", "info").lower()
    return get(MODE, "auto") in MODES and get(COMPAT, "ldconfig") in COMPAT_MODES and level in LOG_LEVELS


def _not_honoured(view: View) -> list[str]:
    """The variables that would choose the configuration and hold no absolute path."""
    names = ("NVIDIA_CTK_CONFIG_FILE_PATH", "XDG_CONFIG_HOME")
    return [name for name in names if view.hook_env.get(name) and not view.hook_env[name].startswith("/")]


def _without(view: View, names: list[str]) -> View:
    """The same without the configuration that some variables of the hook choose."""
    fewer = {name: value for name, value in view.hook_env.items() if name not in names}
    chosen = view.look(list(view.args), fewer)
    return replace(view, config=chosen.config, config_data=chosen.config_data)


def _relative_choice(view: View) -> bool:
    named = config_path(view.call, view.hook_env)[0]
    return view.works and not view.call.config and not named.startswith("/")


def _ldconfig(view: View) -> str:
    return reference.configured_ldconfig(view)


def _ldconfig_of_image(view: View) -> bool:
    return view.works and not view.config.get(ALLOWED) and not _ldconfig(view).startswith("@")


def _with_ldconfig(view: View, value: str) -> View:
    cli = {**view.config.get("nvidia-container-cli", {}), "ldconfig": value}
    return view.with_config(replace(view.config, tables={**view.config.tables, "nvidia-container-cli": cli}))


def _existing_ldconfig(view: View) -> str:
    """The configured host ldconfig, where it is an absolute path and there; else the host's own."""
    path = _ldconfig(view).removeprefix("@").removesuffix(".real")
    found = [p for p in (f"{path}.real", path) if p.startswith("/") and view.kind(p) in ("file", "program")]
    value = f"@{found[0]}" if found else host_ldconfig()
    return "{host_ldconfig}" if value == host_ldconfig() else value


def _ldconfig_gives_way(view: View) -> bool:
    return asks(view) and _ldconfig(view).startswith("@") and _existing_ldconfig(view) != reference.ldconfig(view)


def _with_existing(view: View, outcome: Outcome) -> Outcome:
    return outcome.with_value("--ldconfig", reference.PLACES.blank(_existing_ldconfig(view)))


def _entries(view: View) -> list[str]:
    return list(view.config.get("nvidia-container-cli.environment", []))


def _cli_texts(view: View) -> list[str]:
    found = [view.config.get(f"nvidia-container-cli.{name}", "") for name in PATHS]
    return [text for text in found if isinstance(text, str)]


RULES: tuple[Rule, ...] = (
    Reading(
        "a relative path in NVIDIA_CTK_CONFIG_FILE_PATH or XDG_CONFIG_HOME does not count",
        "decisions.md 7; hook.md §11.18; AC-71",
        _relative_choice,
        lambda view: _without(view, _not_honoured(view)),
    ),
    Reading(
        "an absolute ldconfig without '@' is the host's",
        "decisions.md 6; case ldconfig-without-at",
        lambda view: _ldconfig_of_image(view) and _ldconfig(view).startswith("/"),
        lambda view: _with_ldconfig(view, f"@{_ldconfig(view)}"),
    ),
    Reading(
        "the mode jit-cdi is this hook's",
        "decisions.md 25",
        lambda view: view.works and view.config.get(MODE) == "jit-cdi",
        lambda view: view.with_config(_in_mode(view, "legacy")),
    ),
    Reading("reader: a date without a time can be read", "decisions.md 11", _reader_is_kinder, lambda view: view),
    Breaking("reader: what toml 0.10.2 misreads, or TOML 1.0 forbids", "decisions.md 11 and 3", _reader_refuses),
    Breaking(
        "a broken config.toml concerns only containers that ask for a GPU",
        "decisions.md 3; cases config-stray-text, config-missing",
        lambda view: view.works and bool(view.config.fault),
    ),
    Breaking(
        "a mode or level that does not exist makes config.toml broken",
        "hook.md §11.10; decisions.md 3",
        lambda view: view.works and not view.config.fault and not _is_enumerated(view),
    ),
    Breaking(
        "a relative nvidia-container-cli.path makes config.toml broken",
        "hook.md §11.18; decisions.md 3",
        lambda view: view.works and view.config.get("nvidia-container-cli.path", "/")[:1] not in ("", "/"),
    ),
    Breaking(
        "an ldconfig that is neither '@' and a path nor absolute makes config.toml broken",
        "decisions.md 6 and 3; hook.md §11.18",
        lambda view: _ldconfig_of_image(view) and not _ldconfig(view).startswith("/"),
    ),
    Breaking(
        "an environment entry that is no NAME=value makes config.toml broken",
        "hook.md §11.10 (validate on load) and §2.1; decisions.md 3",
        lambda view: view.works and any(entry.find("=") < 1 or "\0" in entry for entry in _entries(view)),
    ),
    Breaking(
        "a control character in a path of config.toml makes it broken",
        "AC-76; decisions.md 1 and 3",
        lambda view: view.works and any(map(has_control, _cli_texts(view))),
    ),
    Amendment(
        "a host ldconfig that is absent, or not absolute, gives way to the one that exists",
        "decisions.md 6; case ldconfig-real-absent; hook.md §11.18",
        _ldconfig_gives_way,
        _with_existing,
    ),
)


def _in_mode(view: View, mode: str) -> Any:
    runtime = {**view.config.get("nvidia-container-runtime", {}), "mode": mode}
    return replace(view.config, tables={**view.config.tables, "nvidia-container-runtime": runtime})
