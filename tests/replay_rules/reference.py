"""The reference hook in small (hook.md §5 to §9): what it does with an input that it can read.

Rules use it to say "we do with this input what the reference does with that one". A test holds it against every
recorded case, so it can be relied on for cases that nobody recorded.
"""

from __future__ import annotations

import posixpath
import re

from tests.replay_rules import cdi
from tests.replay_rules.case import PATH, Places
from tests.replay_rules.config import COMPAT_MODES
from tests.replay_rules.outcome import LEFT_ALONE, REFUSED, Outcome
from tests.replay_rules.run import host_ldconfig
from tests.replay_rules.shapes import is_readable
from tests.replay_rules.view import BASE, IDLE, View, followed
from tests.replay_rules.wanted import Refusal, clean, devices, option, options

LONGEST_ARGUMENT = (1 << 17) - 1  # bytes that Linux hands over in one argument, with pages of 4 KiB
PLACES = Places(BASE)
SURROGATE = re.compile("[\ud800-\udfff]")  # a lone one; Go puts a mark in its place


def outcome(view: View) -> Outcome:
    """What the reference does with the input."""
    if view.call.fault:
        return Outcome(2)
    if view.call.talks or view.call.command in IDLE:
        return LEFT_ALONE
    if view.call.command != "prestart":
        return Outcome(2)
    try:
        return _work(view)
    except Refusal:
        return REFUSED


def _work(view: View) -> Outcome:
    if view.config.fault or not _ldconfig_is_allowed(view) or not is_readable(view):
        raise Refusal
    names = devices(view)
    if names is None:
        return LEFT_ALONE
    wanted = options(view, names)
    _check_mode(view, names)
    program, changes = _program(view)
    if any(len(word.encode("utf-8", "replace")) > LONGEST_ARGUMENT or "\0" in word for word in wanted):
        raise Refusal
    argv = [program, *_globals(view), "configure", *_locals(view), *wanted, f"--pid={_pid(view)}", rootfs(view)]
    return Outcome(
        view.stub_exit,
        tuple(PLACES.blank(SURROGATE.sub("\ufffd", word)) for word in argv),
        {**changes, **_added(view)},
    )


def _pid(view: View) -> int:
    return int(view.pid) % (1 << 64)


def rootfs(view: View) -> str:
    """The root filesystem: relative to the hook's working folder, cleaned.

    That folder's name is PWD's value, if it leads there, as Go has it.
    """
    folder, given = followed(view.cwd, view.links), view.hook_env.get("PWD", "")
    leads_there = given.startswith("/") and followed(clean(given), view.links) == folder
    return clean(posixpath.join(given if leads_there else folder, view.root))


def _check_mode(view: View, names: list[str]) -> None:
    """Raises Refusal where the mode is not the hook's (hook.md §9)."""
    if view.config.get("nvidia-container-runtime-hook.skip-mode-detection"):
        return
    mode = view.config.get("nvidia-container-runtime.mode", "auto")
    all_cdi = bool(names) and len(set(names)) == len(names) and all(map(cdi.is_name, names))
    if mode not in ("auto", "legacy") or (mode == "auto" and all_cdi):
        raise Refusal


def _globals(view: View) -> list[str]:
    get = view.config.get
    debug = "/dev/stderr" if view.call.debug else get("nvidia-container-cli.debug", "")
    return [
        *option("root", get("nvidia-container-cli.root", "")),
        *(["--load-kmods"] if get("nvidia-container-cli.load-kmods", default=True) else []),
        *(["--no-create-imex-channels"] if get("features.disable-imex-channel-creation") else []),
        *(["--no-pivot"] if get("nvidia-container-cli.no-pivot") else []),
        *option("debug", debug),
        *option("ldcache", get("nvidia-container-cli.ldcache", "")),
        *option("user", get("nvidia-container-cli.user", "")),
    ]


def _locals(view: View) -> list[str]:
    mode = view.config.get("nvidia-container-runtime.modes.legacy.cuda-compat-mode", "ldconfig")
    if mode not in COMPAT_MODES:
        mode = "" if view.config.get("features.allow-cuda-compat-libs-from-container") else "disabled"
    return [
        *option("cuda-compat-mode", "disabled" if mode == "hook" else mode),
        *option("ldconfig", ldconfig(view)),
        *(["--no-cgroups"] if view.config.get("nvidia-container-cli.no-cgroups") else []),
    ]


def configured_ldconfig(view: View) -> str:
    """The configured ldconfig, the host's own where the file does not say."""
    return str(view.config.get("nvidia-container-cli.ldconfig", host_ldconfig()))


def _ldconfig_is_allowed(view: View) -> bool:
    allowed = view.config.get("features.allow-ldconfig-from-container")
    return bool(allowed) or configured_ldconfig(view).startswith("@")


def ldconfig(view: View) -> str:
    """The value of --ldconfig: a host path gets or loses `.real`, whichever exists."""
    value = configured_ldconfig(view)
    if value.startswith("@"):
        plain = value.removeprefix("@").removesuffix(".real")
        value = f"@{plain}.real" if view.kind(posixpath.join(view.cwd, f"{plain}.real")) else f"@{plain}"
    return "{host_ldconfig}" if value == host_ldconfig() else value


def _program(view: View) -> tuple[str, dict[str, str | None]]:
    """The program to become and the PATH that it sees (hook.md §8). Raises Refusal where there is none."""
    given = str(view.config.get("nvidia-container-cli.path", ""))
    if given:
        if view.kind(posixpath.join(view.cwd, given)) != "program":
            raise Refusal
        return given, {}
    folders = view.hook_env.get("PATH", "").split(":") if view.hook_env.get("PATH") else []
    folders += [folder for folder in PATH.split(":") if folder not in folders]
    root = view.config.get("nvidia-container-cli.root", "")
    if root not in ("", "/"):
        folders = [posixpath.normpath(f"{root}/{folder}") for folder in folders] + folders
    for folder in folders:
        program = clean(posixpath.join(folder, "nvidia-container-cli"))
        if view.kind(posixpath.join(view.cwd, program)) == "program":
            if not program.startswith("/"):
                raise Refusal
            path = ":".join(folders)
            return program, {} if path == view.given_path else {"PATH": PLACES.blank(path)}
    raise Refusal


def _added(view: View) -> dict[str, str | None]:
    """The configured variables that the program sees: the first of two entries wins, so inherited ones stay."""
    added: dict[str, str | None] = {}
    for entry in view.config.get("nvidia-container-cli.environment", []):
        name, equals, value = entry.partition("=")
        if "\0" in entry:
            raise Refusal
        if equals and name not in view.hook_env:
            added.setdefault(name, PLACES.blank(value))
    return added
