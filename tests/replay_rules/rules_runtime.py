"""Rules about the runtime shim."""

from __future__ import annotations

import posixpath

from tests.replay_rules.document import member
from tests.replay_rules.nodes import has_systemd, host_devices, with_devices
from tests.replay_rules.rule import Breaking
from tests.replay_rules.rules_bundle import has_control, is_spelled_otherwise
from tests.replay_rules.rules_config import RULES as CONFIG_RULES
from tests.replay_rules.shapes import has_capability_list
from tests.replay_rules.shim import (
    GPU_HOOKS,
    OWN_HOOK,
    Shim,
    broken,
    changed_hook,
    hook_environment,
    numbers,
    refused,
    untouched,
    with_hook,
)
from tests.replay_rules.steps import Step

DEFAULT_HOOK = "nvidia-container-runtime-hook"
REAL = tuple(f"{name}.real" for name in GPU_HOOKS)
# The members of config.json that the reference knows where cases have unknown ones.
KNOWN = (
    "ociVersion", "process", "root", "hostname", "domainname", "mounts", "hooks", "annotations", "linux", "solaris",
    "windows", "vm", "zos",
)  # fmt: skip
KNOWN_OF_PROCESS = (
    "terminal", "consoleSize", "user", "args", "commandLine", "env", "cwd", "capabilities", "rlimits",
    "noNewPrivileges", "apparmorProfile", "oomScoreAdj", "scheduler", "selinuxLabel", "ioPriority",
    "execCPUAffinity",
)  # fmt: skip


def _has_unknown_fields(shim: Shim) -> bool:
    process = member(shim.spec, "process")
    unknown = [name for name in shim.spec if name not in KNOWN] if isinstance(shim.spec, dict) else []
    unknown += [name for name in process if name not in KNOWN_OF_PROCESS] if isinstance(process, dict) else []
    return shim.makes and shim.readable and bool(unknown)


def _has_odd_number(shim: Shim) -> bool:
    """A number that the reference's types do not hold."""
    user = member(member(shim.spec, "process"), "user")
    odd = [number for number in numbers(shim.spec) if isinstance(number, float) or number >= 1 << 63]
    return shim.makes and shim.readable and (bool(odd) or any(number < 0 for number in numbers(user)))


def _old_capabilities(shim: Shim) -> bool:
    given = member(member(shim.spec, "process"), "capabilities")
    return shim.makes and isinstance(given, list) and has_capability_list(str(member(shim.spec, "ociVersion")))


def _wants_driver_version(shim: Shim) -> bool:
    """The reference looks for the driver's version, for graphics files or for a hook of its own."""
    words = shim.hook.env.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",")
    compat = shim.get("nvidia-container-runtime.modes.legacy.cuda-compat-mode") == "hook"
    return shim.asks and (compat or bool({"graphics", "display", "all"} & set(words)))


def _ldconfig_of_image(shim: Shim) -> bool:
    value = shim.get("nvidia-container-cli.ldconfig", "@")
    return shim.makes and not shim.hook.config.fault and value.startswith("/")


def _configured_hook(shim: Shim) -> str:
    return str(shim.get("nvidia-container-runtime-hook.path", DEFAULT_HOOK))


def _names_default_hook(shim: Shim) -> bool:
    return shim.makes and not shim.hook.config.fault and _configured_hook(shim) in ("", DEFAULT_HOOK)


def _names_no_hook(shim: Shim) -> bool:
    """The hook is given by a name that is nowhere, or by a relative path."""
    given = _configured_hook(shim)
    folders = shim.env.get("PATH", "").split(":")
    found = "/" not in given and any(shim.hook.kind(posixpath.join(folder, given)) for folder in folders)
    return shim.makes and not _names_default_hook(shim) and not given.startswith("/") and not found


def _asks_oddly(shim: Shim) -> bool:
    """A request that no hook of ours would serve: a CDI name, or a value that steers terminals."""
    value = shim.hook.env.get("NVIDIA_VISIBLE_DEVICES", "")
    return shim.asks and ("=" in value or has_control(value))


def _cannot_be_read(shim: Shim) -> bool:
    spec = shim.hook.spec
    two = spec.value is not None and (spec.names_a_key_twice or spec.followed or not spec.is_utf8)
    return shim.makes and (two or is_spelled_otherwise(shim.hook))


def _config_rule(rule: Breaking) -> Step[Shim]:
    """A rule of the hook's about config.toml; the shim reads the same file."""
    return Step(rule.name, rule.source, lambda shim: shim.makes and rule.applies(shim.hook), broken)


RULES: tuple[Step[Shim], ...] = (
    Step(
        "the command is the first word that is no option",
        "runtime.md §10.8; AC-80",
        lambda shim: "create" in shim.args and not shim.makes,
        untouched,
    ),
    Step(
        "a broken config.toml concerns only what makes containers",
        "runtime.md §10.7; case config-stray-text",
        lambda shim: not shim.makes and bool(shim.hook.config.fault),
        untouched,
    ),
    Step(
        "run makes a container as create does",
        "runtime.md §10.8; decisions.md 28",
        lambda s: s.command == "run",
        with_hook,
    ),
    Step(
        "fields that nobody knows are kept",
        "decisions.md 26; runtime.md §10.6; AC-79",
        _has_unknown_fields,
        with_hook,
    ),
    Step(
        "the size of numbers is the low-level runtime's business", "AC-79 (64-bit numbers)", _has_odd_number, with_hook
    ),
    Step(
        "the list of capabilities of 1.0.0-rc1 can be read",
        "decisions.md 26 (what must succeed); hook.md §3.2",
        _old_capabilities,
        with_hook,
    ),
    Step(
        "an entry of process.env without '=' is ignored",
        "decisions.md 4; AC-47",
        lambda shim: shim.makes and shim.readable and any("=" not in entry for entry in shim.hook.entries),
        with_hook,
    ),
    Step(
        "an absolute ldconfig without '@' is the host's",
        "decisions.md 6; case ldconfig-without-at",
        _ldconfig_of_image,
        with_hook,
    ),
    Step(
        "no files and no hooks beside the one that does everything",
        "decisions.md 25 and 18; runtime.md §10.15",
        _wants_driver_version,
        with_hook,
    ),
    Step(
        "the default hook is ours",
        "decisions.md 26",
        _names_default_hook,
        lambda shim, outcome: changed_hook(shim, outcome, path=OWN_HOOK, args=["gpuhook", "prestart"]),
    ),
    Step(
        "a hook that cannot be found is ours",
        "decisions.md 26; AC-70 (a relative path leads into the bundle)",
        _names_no_hook,
        lambda shim, outcome: changed_hook(shim, outcome, path=OWN_HOOK, args=["gpuhook", "prestart"]),
    ),
    Step(
        "the hook has an environment of its own",
        "decisions.md 27; AC-67",
        lambda shim: shim.makes and not shim.has_hook(GPU_HOOKS, "prestart"),
        lambda shim, outcome: changed_hook(shim, outcome, env=hook_environment(shim)),
    ),
    Step(
        "a hook that is there under createRuntime, or as an operator's wrapper, is not added again",
        "case shim-hook-already-there",
        lambda shim: (
            shim.makes
            and (shim.has_hook(GPU_HOOKS, "createRuntime") or shim.has_hook(REAL, "prestart", "createRuntime"))
        ),
        untouched,
    ),
    Step(
        "device nodes stand in the specification where systemd manages cgroups",
        "decisions.md 25 and 27; case shim-devices-in-spec",
        lambda shim: shim.asks and has_systemd(shim) and bool(host_devices(shim)),
        with_devices,
    ),
    Step(
        "a container that asks for no GPU is left alone",
        "cases config-missing, shim-devices-in-spec",
        lambda shim: shim.makes and shim.readable and not shim.asks,
        untouched,
    ),
    *(_config_rule(rule) for rule in CONFIG_RULES if isinstance(rule, Breaking)),
    Step("a request that our hook will refuse is refused at once", "decisions.md 1; AC-39", _asks_oddly, refused),
    Step(
        "a specification that the hook cannot read is refused",
        "decisions.md 2; threats.md §2.4 (config.json)",
        lambda shim: shim.makes and not shim.readable,
        refused,
    ),
    Step(
        "a specification that two readers can understand differently is refused",
        "AC-52; AC-51",
        _cannot_be_read,
        refused,
    ),
)
