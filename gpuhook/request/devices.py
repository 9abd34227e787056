"""Which devices a container asks for: by mount, by variable, or by being an old CUDA image (hook.md 4, 5 and 11).

This runs for every container of the node. One that asks for no GPU never fails here, whatever its strings are.
"""

from __future__ import annotations

from gpuhook.errors import DevicesRefused, UnknownDevice
from gpuhook.jsontext import is_plain
from gpuhook.oci.bundle import clean
from gpuhook.request.model import DeviceChoice
from gpuhook.settings.values import DEFAULT_CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle
    from gpuhook.settings.values import Settings

    Warnings = tuple[tuple[str, str], ...]

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
FOLDERS = ("/var/run/nvidia-container-devices/", "/run/nvidia-container-devices/")
NULL_DEVICE = "/dev/null"
ENV_KEY = "accept-nvidia-visible-devices-envvar-when-unprivileged"
MOUNT_KEY = "accept-nvidia-visible-devices-as-volume-mounts"
# What Go trims, and no more: Python's strip() would also take the separators U+001C to U+001F.
BLANKS = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
LONGEST = 1 << 17  # characters of a variable: Linux hands none over that is longer (execve(2))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
WORD = f"{LETTERS}0123456789_-."
CDI_HINT = "CDI devices are the container engine's work: use its own option, for example --device {name}"


def choose_devices(bundle: Bundle, settings: Settings) -> tuple[DeviceChoice | None, Warnings]:
    """The devices that were asked for, None for a container that is to be left alone; and (slug, text) warnings.

    Raises UnknownDevice and DevicesRefused, only for a container that asks for a GPU.
    """
    mounts = requested_by_mount(bundle)
    if settings.accept_volume_mounts and (devices := [pair for pair in mounts if not pair[0].startswith("imex/")]):
        return _by_mounts(devices), ()
    choice, warnings = _by_variables(bundle, settings)
    if choice is None and not warnings and mounts and not settings.accept_volume_mounts:
        return None, ((DevicesRefused.reference, f"ignoring the mount {mounts[0][1]}: {MOUNT_KEY} is false"),)
    return choice, warnings


def requested_by_mount(bundle: Bundle) -> list[tuple[str, str]]:
    """What mounts of the null device ask for: (name below the folder, destination as written).

    A source counts only if it is spelled exactly /dev/null: anything else may be another file by the time of the
    mount (AC-41). Names are lexically clean; `mount_fault` says whether the destination was.
    """
    pairs: list[tuple[str, str]] = []
    for mount in bundle.mounts:
        place = mount.destination
        if mount.source == NULL_DEVICE and "nvidia-container-devices" in place and place.startswith("/"):
            path = clean(place)
            pairs.extend((path[len(folder) :], place) for folder in FOLDERS if path.startswith(folder))
    return pairs


def mount_fault(name: str, place: str) -> str:
    """Why a mount at this destination is no clear request for one device, "" where it is (AC-39, 40 and 41)."""
    if place != clean(place):
        return "its path is not written plainly"
    if "," in name:
        return "one mount asks for one device, without a comma"
    if any(part != part.strip(BLANKS) for part in name.split("/")):
        return "the name begins or ends with a blank"
    return "" if is_plain(name) else "the name holds a control character"


def split_words(value: str) -> list[str]:
    """The elements of a list in a variable: separated by commas, blanks trimmed, empty ones dropped."""
    return [word for part in value.split(",") if (word := part.strip(BLANKS))]


def length_fault(name: str, *values: str) -> str:
    """What is wrong where no program could be given such a variable, "" for nothing; it is not to be taken apart."""
    return f"{name} is longer than {LONGEST} characters" if any(len(value) > LONGEST for value in values) else ""


def is_legacy(env: dict[str, str]) -> bool:
    """Whether the image is of the time before NVIDIA_REQUIRE_CUDA (hook.md 4); such an image means all GPUs."""
    return bool(env.get("CUDA_VERSION")) and not env.get("NVIDIA_REQUIRE_CUDA")


def accepts_variables(bundle: Bundle, settings: Settings) -> bool:
    """Whether requests by variable count for this container."""
    return bundle.privileged or settings.accept_envvar_when_unprivileged


def config_file(settings: Settings) -> str:
    """The configuration file that a message names: the one that was read, or where one would be."""
    return settings.source or DEFAULT_CONFIG


def could_be_option(word: str) -> bool:
    """Whether something in the word begins with a dash, which a program or script may take for an option (AC-38)."""
    return word.startswith("-") or " -" in word


def short(word: str) -> str:
    """A word of an image, quoted and of a length that leaves room for the rest of a message."""
    return f"'{word}'" if len(word) <= 60 else f"'{word[:50]}…' ({len(word)} characters)"


def is_cdi_name(name: str) -> bool:
    """Whether the name is a qualified one of the Container Device Interface: vendor/class=device."""
    kind, equals, device = name.partition("=")
    vendor, slash, class_ = kind.partition("/")
    if not (equals and slash and name.isascii()):
        return False
    ends = device[:1] + device[-1:] + vendor[-1:] + class_[-1:]
    starts = vendor[:1] + class_[:1]
    inside_fits = not (vendor + class_).strip(WORD) and not device.strip(f"{WORD}:")
    return inside_fits and len(ends) == 4 and ends.isalnum() and len(starts) == 2 and starts.isalpha()


def _meaning(words: list[str]) -> tuple[str, ...]:
    """The first of `all` and `none` decides; otherwise each word once, in the order of the request."""
    for word in words:
        if word in ("all", "none"):
            return ("all",) if word == "all" else ()
    return tuple(dict.fromkeys(words))


def _by_mounts(mounts: list[tuple[str, str]]) -> DeviceChoice | None:
    names = [name for name, _ in mounts]
    if "void" in names:
        return None
    for name, place in mounts:
        fault = mount_fault(name, place)
        if fault:
            raise UnknownDevice(f"unknown device {short(name)}: {fault}", where=f"the mount at {place}")
        if name.startswith("cdi/"):
            raise _cdi_refused(name, f"the mount at {place}")
        _require_usable(name, f"the mount at {place}")
    return DeviceChoice(names=_meaning(names), sources=tuple(place for _, place in mounts))


def _by_variables(bundle: Bundle, settings: Settings) -> tuple[DeviceChoice | None, Warnings]:
    env = bundle.env
    names = tuple(dict.fromkeys(name for name in settings.swarm_resource if name in env)) or (VARIABLE,)
    values = [env[name] for name in names if name in env]
    fault = length_fault(", ".join(names), *values)
    words = [] if fault else [word for value in values for word in split_words(value)]
    if not values and is_legacy(env):
        names, words = ("CUDA_VERSION",), ["all"]
    if not fault and (not words or "void" in words):
        return None, ()
    if not accepts_variables(bundle, settings):
        return None, (ignored(", ".join(names), settings),)
    where = ", ".join(names)
    if fault:
        raise UnknownDevice(f"unknown device: {fault}", where=where)
    chosen = _meaning(words)
    if not all(map(is_plain, values)):
        raise UnknownDevice(f"unknown device: {where} holds a control character", where=f"{where}={','.join(values)}")
    for name in chosen:
        if f"{name.rstrip('/')}/" in FOLDERS:
            raise _folder_refused(name, where, settings)
        _require_usable(name, where)
    return DeviceChoice(names=chosen, sources=names), ()


def ignored(names: str, settings: Settings) -> tuple[str, str]:
    """The warning that a request by these variables does not count in an unprivileged container."""
    return DevicesRefused.reference, (
        f"ignoring {names}: requests by variable of unprivileged containers do not count here "
        f"({ENV_KEY} = false in {config_file(settings)})"
    )


def _require_usable(name: str, where: str) -> None:
    if could_be_option(name):
        raise UnknownDevice(
            f"unknown device {short(name)}: a name does not begin with '-'",
            where=where,
            hint="ask for all, or for a list of indices or UUIDs as `nvidia-smi -L` shows them",
        )
    if is_cdi_name(name):
        raise _cdi_refused(name, where)


def _cdi_refused(name: str, where: str) -> UnknownDevice:
    return UnknownDevice(
        f"unknown device {short(name)}: names of the Container Device Interface are not for this hook",
        where=where,
        hint=CDI_HINT.format(name=name if is_cdi_name(name) else "nvidia.com/gpu=all"),
    )


def _folder_refused(name: str, where: str, settings: Settings) -> DevicesRefused:
    file = config_file(settings)
    if settings.accept_volume_mounts:
        return DevicesRefused(
            f"{where} is {name}: the devices should come as volume mounts, and there is none below that folder",
            where=where,
            hint="look at the device plugin's log; it makes the mounts",
        )
    return DevicesRefused(
        f"{where} is {name}: the device plugin passes devices as volume mounts, which this node does not accept",
        where=file,
        hint=f"set {MOUNT_KEY} = true in {file}",
    )
