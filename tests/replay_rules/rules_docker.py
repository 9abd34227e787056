"""Rules about the nvidia-docker wrapper."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.replay_rules.case import Case
from tests.replay_rules.outcome import REFUSED, Outcome
from tests.replay_rules.steps import Step

VALUED = (
    "--config", "-c", "--context", "-H", "--host", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey",
)  # fmt: skip
KEYS = ("run", "create", "version", "--")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/=-]*")
VARIABLE = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Call:
    """The input: the words after the program's name, and the wrapper's variables."""

    args: tuple[str, ...]
    gpus: str
    docker: str

    @property
    def key(self) -> int:
        """Where the reference finds its key word; -1 for nowhere."""
        return next((number for number, word in enumerate(self.args) if word in KEYS), -1)

    @property
    def command(self) -> int:
        """Where docker finds its command, that of `container` included; -1 for nowhere."""
        at = 0
        while at < len(self.args) and self.args[at].startswith("-"):
            if self.args[at] == "--":
                return -1
            at += 2 if self.args[at] in VALUED else 1
        if self.args[at : at + 1] == ("container",):
            at += 1
        return at if at < len(self.args) else -1

    @property
    def starts(self) -> bool:
        """Whether it is docker's own run or create."""
        return self.command >= 0 and self.args[self.command] in ("run", "create")

    @property
    def names(self) -> list[str]:
        """The elements of NV_GPU, each once."""
        return list(dict.fromkeys(word for word in re.split(r"[\s,]+", self.gpus) if word))

    def gives(self, *options: str) -> bool:
        """Whether one of the words after the command is one of these, or begins with it and an equals sign."""
        after = self.args[self.command + 1 :]
        return any(word == option or word.startswith(f"{option}=") for word in after for option in options)

    @property
    def sets_variable(self) -> bool:
        """Whether the user sets the variable himself."""
        return any(word.partition("=")[0] == VARIABLE for word in self.args)


def look_at_docker(case: Case) -> Call:
    """The input of a wrapper case."""
    env = case.members.get("env", {})
    return Call(tuple(case.members.get("args", ())), env.get("NV_GPU", ""), env.get("NV_DOCKER", ""))


def _change(change: Callable[[Call, list[str]], list[str]]) -> Callable[[Call, Outcome], Outcome]:
    def amend(call: Call, outcome: Outcome) -> Outcome:
        return outcome if outcome.argv is None else outcome.with_argv(change(call, list(outcome.argv)))

    return amend


def _as_given(call: Call, argv: list[str]) -> list[str]:
    """The words without the inserted ones."""
    inserted = 1 + 2 * bool(call.gpus) if call.args[call.key] in ("run", "create") else 0
    return [*argv[: len(argv) - len(call.args) - inserted], *call.args]


def _without_runtime(_call: Call, argv: list[str]) -> list[str]:
    at = argv.index("--runtime=nvidia")
    return [*argv[:at], *argv[at + 1 :]]


def _without_variable(_call: Call, argv: list[str]) -> list[str]:
    at = argv.index("-e")
    return [*argv[:at], *argv[at + 2 :]]


def _with_clean_list(call: Call, argv: list[str]) -> list[str]:
    at = argv.index("-e")
    return [*argv[: at + 1], f"{VARIABLE}={','.join(call.names)}", *argv[at + 2 :]]


def _own_splitting(call: Call, argv: list[str]) -> list[str]:
    """NV_DOCKER split as a shell would read it if it were typed; what follows it stays."""
    globs = [path for path in argv if path.startswith("{dir}/x")]
    before = len(call.docker.split()) - bool(globs) + len(globs)
    return [*shlex.split(call.docker), *argv[before:]]


RULES: tuple[Step[Call], ...] = (
    Step(
        "only docker's own run and create are changed",
        "docker-wrapper.md §6.1; case wrapper-nv-gpu",
        lambda call: call.key >= 0 and call.args[call.key] in ("run", "create") and not call.starts,
        _change(_as_given),
    ),
    Step(
        "the version line is for plain `version`",
        "docker-wrapper.md §6.7",
        lambda call: call.key >= 0 and call.args[call.key] == "version" and call.args[call.command :] != ("version",),
        lambda _, outcome: replace(outcome, stdout=""),
    ),
    Step(
        "a user's own --runtime or --gpus is not doubled",
        "docker-wrapper.md §6.3; case wrapper-nv-gpu",
        lambda call: call.starts and call.gives("--runtime", "--gpus"),
        _change(_without_runtime),
    ),
    Step(
        "a user's own variable is not doubled",
        "docker-wrapper.md §6.3; case wrapper-nv-gpu",
        lambda call: call.starts and bool(call.gpus) and call.sets_variable,
        _change(_without_variable),
    ),
    Step(
        "NV_GPU is split at blanks and commas, without empty elements",
        "docker-wrapper.md §6.2; case wrapper-nv-gpu",
        lambda call: call.starts and bool(call.names) and not call.sets_variable,
        _change(_with_clean_list),
    ),
    Step(
        "NV_GPU that holds only blanks counts as empty",
        "docker-wrapper.md §6.2",
        lambda call: call.starts and bool(call.gpus) and not call.names,
        _change(_without_variable),
    ),
    Step(
        "NV_GPU with characters that no device's name has",
        "docker-wrapper.md §6.2; AC-81",
        lambda call: call.starts and not all(map(NAME.fullmatch, call.names)),
        lambda _call, _outcome: REFUSED,
    ),
    Step(
        "NV_DOCKER is split as a shell reads words, and patterns are left alone",
        "docker-wrapper.md §6.5",
        lambda call: any(mark in call.docker for mark in "\"'\\*?["),
        _change(_own_splitting),
    ),
)
