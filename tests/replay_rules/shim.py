"""A case of the runtime shim: its command line, its specification, and what the hook would see of both."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from tests.replay_rules import wanted
from tests.replay_rules.case import PATH, Case, Places
from tests.replay_rules.config import DEFAULTS
from tests.replay_rules.document import Document, member
from tests.replay_rules.outcome import REFUSED, Outcome
from tests.replay_rules.shapes import is_readable
from tests.replay_rules.view import BASE, View, look_at

VALUED = ("--root", "--log", "--log-format", "--criu", "--rootless", "-b", "--bundle")
GPU_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
CHOOSERS = ("NVIDIA_CTK_CONFIG_FILE_PATH", "XDG_CONFIG_HOME")


class Launcher(str):
    """A path that stands for our own hook's launcher, wherever that is."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.endswith("/gpuhook")

    __hash__ = str.__hash__


OWN_HOOK = Launcher("{gpuhook}")


@dataclass(frozen=True)
class Shim:
    """The input. args and spec have placeholders; hook: what the hook would look at; env: of the program."""

    args: tuple[str, ...]
    spec: Any
    hook: View
    env: dict[str, str]
    stub_exit: int

    @property
    def command(self) -> str:
        """The first word that is neither an option nor an option's value; "" for none."""
        words = iter(self.args)
        for word in words:
            if word in VALUED:
                next(words, None)
            elif not word.startswith("-"):
                return word
        return ""

    @property
    def makes(self) -> bool:
        """Whether the command makes a container."""
        return self.command in ("create", "run")

    @property
    def readable(self) -> bool:
        """Whether config.json has the shape that the hook reads."""
        return is_readable(replace(self.hook, entries=tuple(entry for entry in self.hook.entries if "=" in entry)))

    @property
    def asks(self) -> bool:
        """Whether a container that asks for a GPU is to be made."""
        return self.makes and self.readable and wanted.devices(self.hook) is not None

    @property
    def asks_by_default(self) -> bool:
        """The same if there were no configuration."""
        return self.makes and self.readable and wanted.devices(self.hook.with_config(DEFAULTS)) is not None

    def entries(self, stage: str) -> list[Any]:
        """The specification's hooks of a stage."""
        return list(member(member(self.spec, "hooks"), stage) or [])

    def has_hook(self, names: tuple[str, ...], *stages: str) -> bool:
        """Whether one of these stages has a hook whose program has one of these names."""
        paths = [str(member(entry, "path")) for stage in stages for entry in self.entries(stage)]
        return any(posixpath.basename(path.rstrip("/")) in names for path in paths)

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the configuration."""
        return self.hook.config.get(key, default)


def look_at_shim(case: Case) -> Shim:
    """The input of a runtime case."""
    bundle = Places(BASE).marks["{bundle}"]
    state = Document(json.dumps({"pid": 1, "id": "c1", "bundle": bundle}).encode())
    hook = replace(look_at(case).again(["prestart"]), state=state)
    spec = case.members.get("config_json")
    if spec is None:
        spec = Document(str(case.members.get("config_json_raw", "")).encode("utf-8", "surrogatepass")).value
    return Shim(
        args=tuple(case.members["args"]),
        spec=spec,
        hook=hook,
        env=case.environment(Places(BASE)),
        stub_exit=case.members.get("stub_exit", 0),
    )


# Outcomes


def untouched(shim: Shim, _outcome: Outcome) -> Outcome:
    """The low-level runtime is called, and config.json stays."""
    return Outcome(shim.stub_exit, ("{runc}", *shim.args))


def with_hook(shim: Shim, _outcome: Outcome) -> Outcome:
    """The low-level runtime is called, and config.json has one more hook: the configured one, without a variable."""
    given = str(shim.get("nvidia-container-runtime-hook.path", ""))
    path = Places(BASE).blank(given) if given.startswith("/") else OWN_HOOK
    spec = deepcopy(shim.spec)
    hooks = spec["hooks"] = spec.get("hooks") or {}
    entry = {"path": path, "args": [posixpath.basename(given) if path != OWN_HOOK else "gpuhook", "prestart"]}
    hooks["prestart"] = [*(hooks.get("prestart") or []), entry]
    return replace(untouched(shim, _outcome), spec=spec)


def refused(_shim: Shim, _outcome: Outcome) -> Outcome:
    """A failure, and nothing handed over."""
    return REFUSED


def broken(shim: Shim, outcome: Outcome) -> Outcome:
    """What a configuration that cannot be used means (decisions.md 3): no GPU, but everything else."""
    return REFUSED if shim.asks_by_default or not shim.readable else untouched(shim, outcome)


def last_hook(outcome: Outcome, shim: Shim) -> dict[str, Any] | None:
    """The hook that was added, in the outcome's own specification; None where none was."""
    entries = member(member(outcome.spec, "hooks"), "prestart") or []
    return entries[-1] if len(entries) > len(shim.entries("prestart")) else None


def changed_hook(shim: Shim, outcome: Outcome, **changes: Any) -> Outcome:
    """The outcome with other members in the hook that was added."""
    outcome = replace(outcome, spec=deepcopy(outcome.spec))
    entry = last_hook(outcome, shim)
    if entry is not None:
        entry.update(changes)
    return outcome


def hook_environment(shim: Shim) -> list[str]:
    """What the hook gets: the folders of PATH that are absolute, and which configuration counts."""
    folders = [folder for folder in shim.env.get("PATH", PATH).split(":") if folder.startswith("/")]
    given = {"PATH": ":".join(folders), **{name: shim.env.get(name, "") for name in CHOOSERS}}
    return [Places(BASE).blank(f"{name}={value}") for name, value in given.items() if value]


def numbers(value: Any) -> Iterator[int | float]:
    """Every number in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
