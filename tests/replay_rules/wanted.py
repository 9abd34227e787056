"""What a container asks for, as the reference reads it (hook.md §4 to §7)."""

from __future__ import annotations

import posixpath
import re

from tests.replay_rules import cdi
from tests.replay_rules.config import words_of
from tests.replay_rules.shapes import semantic_version
from tests.replay_rules.view import DEVICE_FOLDER, TRUE, View

USUAL = ("utility", "compute")


class Refusal(Exception):
    """The reference refuses the input."""


def options(view: View, names: list[str]) -> list[str]:
    """The options that say what the container gets, given its devices. Raises Refusal."""
    return [
        *option("device", _joined(view, names)),
        *_mig(view),
        *option("imex-channel", _with_gaps(imex_channels(view))),
        *(f"--{word}" for word in sorted(capabilities(view))),
        *(f"--require={text}" for text in requirements(view)),
    ]


def option(name: str, value: str) -> list[str]:
    """An option with its value; nothing where the value is empty."""
    return [f"--{name}={value}"] if value else []


def clean(path: str) -> str:
    """A path as Go's filepath.Clean makes it."""
    return re.sub("^//+", "/", posixpath.normpath(path))


def _joined(view: View, names: list[str]) -> str:
    """The devices as one text."""
    return ",".join(names) if devices_of_mounts(view) else _with_gaps(names)


def _with_gaps(names: list[str]) -> str:
    """A variable's list as the reference joins it: an earlier one of two equal names becomes an empty string."""
    return ",".join("" if name in names[number + 1 :] else name for number, name in enumerate(names))


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
