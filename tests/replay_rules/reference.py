"""The reference hook in small (hook.md §5 to §9): what it does with an input that it can read.

Rules use it to say "we do with this input what the reference does with that one". A test holds it against every
recorded case, so it can be relied on for cases that nobody recorded.
"""

from __future__ import annotations

import posixpath
import re

from tests.replay_rules import cdi
from tests.replay_rules.case import PATH, Places
from tests.replay_rules.config import COMPAT_MODES, words_of
from tests.replay_rules.outcome import LEFT_ALONE, REFUSED, Outcome
from tests.replay_rules.run import host_ldconfig
from tests.replay_rules.shapes import is_readable, semantic_version
from tests.replay_rules.view import BASE, DEVICE_FOLDER, IDLE, TRUE, View

USUAL = ("utility", "compute")
LONGEST_ARGUMENT = (1 << 17) - 1  # bytes that Linux hands over in one argument, with pages of 4 KiB
PLACES = Places(BASE)


class Refusal(Exception):
    """The reference refuses the input."""


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
    options = [
        *_option("device", joined(view, names)),
        *_mig(view),
        *_imex(view),
        *(f"--{word}" for word in sorted(capabilities(view))),
        *(f"--require={text}" for text in requirements(view)),
    ]
    _check_mode(view, names)
    program, changes = _program(view)
    if any(len(word.encode("utf-8", "replace")) > LONGEST_ARGUMENT or "\0" in word for word in options):
        raise Refusal
    argv = [program, *_globals(view), "configure", *_locals(view), *options, f"--pid={_pid(view)}", rootfs(view)]
    return Outcome(view.stub_exit, tuple(PLACES.blank(word) for word in argv), {**changes, **_added(view)})


def _pid(view: View) -> int:
    return int(view.pid) % (1 << 64)


def rootfs(view: View) -> str:
    """The root filesystem: relative to the hook's working folder, cleaned."""
    return clean(posixpath.join(view.cwd, view.root))


def clean(path: str) -> str:
    """A path as Go's filepath.Clean makes it."""
    return re.sub("^//+", "/", posixpath.normpath(path))


def joined(view: View, names: list[str]) -> str:
    """The devices as one text."""
    return ",".join(names) if devices_of_mounts(view) else _with_gaps(names)


def _with_gaps(names: list[str]) -> str:
    """A variable's list as the reference joins it: an earlier one of two equal names becomes an empty string."""
    return ",".join("" if name in names[number + 1 :] else name for number, name in enumerate(names))


# ------------------------------------------------------------------------------------------------- devices


def devices(view: View) -> list[str] | None:
    """The devices asked for, [] for none of them, None where this is no GPU container (hook.md §5)."""
    mounted = devices_of_mounts(view)
    if mounted:
        return mounted
    if not env_requests_count(view):
        return None
    names = chosen_words(view)
    if not names and not any(name in view.env for name in device_variables(view)) and is_legacy(view):
        return ["all"]
    if not names or "void" in names:
        return None
    special = next((name for name in names if name in ("all", "none")), "")
    return {"all": ["all"], "none": []}.get(special, names)


def env_requests_count(view: View) -> bool:
    """Whether requests by variable are accepted from this container."""
    key = "accept-nvidia-visible-devices-envvar-when-unprivileged"
    return bool(view.config.get(key, default=True)) or view.privileged


def device_variables(view: View) -> list[str]:
    """The variables that ask for devices."""
    swarm = [name for name in words_of(view.config.get("swarm-resource", "")) if name in view.env]
    return swarm or ["NVIDIA_VISIBLE_DEVICES"]


def chosen_words(view: View) -> list[str]:
    """The elements of the variables that ask for devices."""
    return [word for name in device_variables(view) for word in words_of(view.env.get(name, ""))]


def mount_requests(view: View) -> list[str]:
    """What mounts of the null device below the device folder ask for, each once."""
    found: dict[str, None] = {}
    for source, destination in view.mounts:
        path = clean(destination)
        if source and clean(source) == "/dev/null" and path.startswith(DEVICE_FOLDER):
            request = path.removeprefix(DEVICE_FOLDER).strip("/")
            if request:
                found[request] = None
    return list(found)


def devices_of_mounts(view: View) -> list[str]:
    """The devices that mounts ask for, where the node accepts them."""
    if not view.config.get("accept-nvidia-visible-devices-as-volume-mounts"):
        return []
    return [name for name in map(_device_of_mount, mount_requests(view)) if name]


def _device_of_mount(request: str) -> str:
    """The device that a mount request names; "" where it is no request for a GPU."""
    if request.startswith("imex/"):
        return ""
    if not request.startswith("cdi/"):
        return request
    words = request.removeprefix("cdi/").split("/", 2)
    if len(words) == 3:
        return f"{words[0]}/{words[1]}={words[2]}"
    name = "/".join(words)
    return name if cdi.is_name(name) else ""


def is_legacy(view: View) -> bool:
    """Whether the image predates NVIDIA_REQUIRE_CUDA (hook.md §4)."""
    return bool(view.env.get("CUDA_VERSION")) and not view.env.get("NVIDIA_REQUIRE_CUDA")


# ------------------------------------------------------------------------------------ capabilities and others


def capabilities(view: View) -> list[str]:
    """The driver capabilities that the container gets. Raises Refusal for one that is not allowed."""
    allowed = list(view.config.capabilities or ())
    text = view.env.get("NVIDIA_DRIVER_CAPABILITIES")
    if not text:
        return allowed if text is None and is_legacy(view) else [word for word in USUAL if word in allowed]
    words = words_of(text)
    if "all" in words:
        return list(dict.fromkeys(allowed))
    if not set(words) <= set(allowed):
        raise Refusal
    return list(dict.fromkeys(words))


def requirements(view: View) -> list[str]:
    """The conditions, empty ones included, the one of a legacy image last."""
    if view.env.get("NVIDIA_DISABLE_REQUIRE") in TRUE or view.config.get("disable-require"):
        return []
    named = [
        value
        for name, value in view.env.items()
        if name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK")
    ]
    return [*named, *([f"cuda>={cuda_version(view.env['CUDA_VERSION'])}"] if is_legacy(view) else [])]


def cuda_version(text: str) -> str:
    """Major and minor number of CUDA_VERSION. Raises Refusal for what is no version."""
    version = semantic_version(text)
    if version is None or max(version[:2]) >= 1 << 32:
        raise Refusal
    return f"{version[0]}.{version[1]}"


def _mig(view: View) -> list[str]:
    found = []
    for option, name in (("mig-config", "NVIDIA_MIG_CONFIG_DEVICES"), ("mig-monitor", "NVIDIA_MIG_MONITOR_DEVICES")):
        value = view.env.get(name)
        if value and not view.privileged:
            raise Refusal
        found += [f"--{option}={value}"] if value else []
    return found


def _imex(view: View) -> list[str]:
    return _option("imex-channel", _with_gaps(imex_channels(view)))


def imex_channels(view: View) -> list[str]:
    """The IMEX channels asked for (hook.md §7.5)."""
    if view.config.get("features.ignore-imex-channel-requests"):
        return []
    if view.config.get("accept-nvidia-visible-devices-as-volume-mounts"):
        found = [text.removeprefix("imex/") for text in mount_requests(view) if text.startswith("imex/")]
        if found:
            return found
    words = words_of(view.env.get("NVIDIA_IMEX_CHANNELS", "")) if env_requests_count(view) else []
    return [] if {"all", "none", "void"} & set(words) else words


def _check_mode(view: View, names: list[str]) -> None:
    """Raises Refusal where the mode is not the hook's (hook.md §9)."""
    if view.config.get("nvidia-container-runtime-hook.skip-mode-detection"):
        return
    mode = view.config.get("nvidia-container-runtime.mode", "auto")
    all_cdi = bool(names) and len(set(names)) == len(names) and all(map(cdi.is_name, names))
    if mode not in ("auto", "legacy") or (mode == "auto" and all_cdi):
        raise Refusal


# ------------------------------------------------------------------------------------------------ the program


def _globals(view: View) -> list[str]:
    get = view.config.get
    debug = "/dev/stderr" if view.call.debug else get("nvidia-container-cli.debug", "")
    return [
        *_option("root", get("nvidia-container-cli.root", "")),
        *(["--load-kmods"] if get("nvidia-container-cli.load-kmods", default=True) else []),
        *(["--no-create-imex-channels"] if get("features.disable-imex-channel-creation") else []),
        *(["--no-pivot"] if get("nvidia-container-cli.no-pivot") else []),
        *_option("debug", debug),
        *_option("ldcache", get("nvidia-container-cli.ldcache", "")),
        *_option("user", get("nvidia-container-cli.user", "")),
    ]


def _locals(view: View) -> list[str]:
    mode = view.config.get("nvidia-container-runtime.modes.legacy.cuda-compat-mode", "ldconfig")
    if mode not in COMPAT_MODES:
        mode = "" if view.config.get("features.allow-cuda-compat-libs-from-container") else "disabled"
    return [
        *_option("cuda-compat-mode", "disabled" if mode == "hook" else mode),
        *_option("ldconfig", ldconfig(view)),
        *(["--no-cgroups"] if view.config.get("nvidia-container-cli.no-cgroups") else []),
    ]


def _option(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value else []


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
