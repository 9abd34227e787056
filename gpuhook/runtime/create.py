"""What `create` and `run` change in the bundle: our hook, and device nodes where systemd manages cgroups.

A container that asks for no GPU is left alone: its config.json stays as it is, whatever state this node is in.
"""

from __future__ import annotations

import posix

from gpuhook.errors import BadBundle, GpuhookError
from gpuhook.jsontext import NotJson, document, is_plain
from gpuhook.kernel.files import WRITABLE_BY_OTHERS, in_user_namespace, read_file
from gpuhook.oci.bundle import HINT, LIMIT, parse_bundle
from gpuhook.oci.spec import HOOK_NAMES, add_hook, add_nodes, add_rules, gpu_hooks, items, table
from gpuhook.refusals import WrongMode
from gpuhook.request.devices import choose_devices, config_file
from gpuhook.runtime.lowlevel import FOLDERS
from gpuhook.runtime.replace import FOLDER, replace
from gpuhook.settings.values import Settings
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import stat_result

    from gpuhook.oci.bundle import Bundle
    from gpuhook.request.model import DeviceChoice
    from gpuhook.runtime.log import Log

NAME = "config.json"
ELOOP = 40
REFUSED_MODES = ("csv", "cdi")  # another way of giving GPUs, which this program does not have (decisions.md 25)
HOOK_NEEDS = (b"NVIDIA_CTK_CONFIG_FILE_PATH", b"XDG_CONFIG_HOME", b"GPUHOOK_DEBUG")


class Node(Value):
    """What this node is, for an edit.

    hook: our own hook's launcher; systemd: it manages cgroups; fault: why config.toml cannot be used, None where it
    can.
    """

    settings: Settings
    hook: str
    environ: Mapping[bytes, bytes]
    systemd: bool = False
    fault: GpuhookError | None = None


def prepare(bundle: str, node: Node, log: Log) -> bool:
    """Change the config.json of the bundle ("" for the current folder) if its container asks for a GPU.

    Returns whether it was changed. Raises GpuhookError, and nothing was changed then.
    """
    path = absolute(bundle)
    where = f"{path}/{NAME}"
    try:
        folder = posix.open(path, FOLDER)
        try:
            data, status = read_file(NAME, LIMIT, dir_fd=folder)
            new = edited(_text(data, where), path, node, log, status)
            if new is None:
                return False
            replace(folder, NAME, new, status, where)
        finally:
            posix.close(folder)
    except OSError as error:
        why = "it is a link, and who made it could lead us anywhere" if error.errno == ELOOP else error.strerror
        raise BadBundle(f"cannot edit {where}: {why}", where=where, hint=HINT) from error
    return True


def absolute(bundle: str) -> str:
    """The bundle's absolute path. Raises BadBundle where the current folder is gone."""
    if bundle.startswith("/"):
        return bundle.rstrip("/") or "/"
    try:
        return f"{posix.getcwd()}/{bundle}".rstrip("/")
    except OSError as error:
        raise BadBundle(f"the bundle {bundle or '.'!r} cannot be found: {error.strerror}", hint=HINT) from error


def _text(data: bytes, where: str) -> tuple[str, dict[str, object]]:
    """config.json as text, and the object that it is."""
    try:
        value = document(data)
    except NotJson as error:
        raise BadBundle(f"{where} is not JSON: {error}", where=where, hint=HINT) from error
    if not isinstance(value, dict):
        raise BadBundle(f"{where} is {type(value).__name__}; it must be an object", where=where, hint=HINT)
    return data.decode("utf-8"), value


def edited(given: tuple[str, dict[str, object]], path: str, node: Node, log: Log, status: stat_result) -> bytes | None:
    """The new content of config.json, or None where it can stay. Raises GpuhookError."""
    text, spec = given
    bundle = parse_bundle(path, spec)
    choice, warnings = choose_devices(bundle, node.settings)
    for reference, said in warnings:
        log.warn(reference, said)
    if choice is None:
        if node.fault is not None:
            log.fault(node.fault)
        log("debug", "no GPU is asked for; the container is left alone")
        return None
    _require_fit(node, status, f"{path}/{NAME}")
    for reference, said in node.settings.warnings:
        log.warn(reference, said)
    new = _with_devices(_with_hook(text, spec, node, log), spec, bundle, choice, node, log)
    log("info", f"GPUs asked for by {', '.join(choice.sources)}: {','.join(choice.names) or 'none'}")
    return None if new == text else new.encode("utf-8")


def _require_fit(node: Node, status: stat_result, where: str) -> None:
    """Refuse a container that asks for GPUs where this node's configuration, or its own file, forbids it."""
    if node.fault is not None:
        raise node.fault
    if node.settings.mode in REFUSED_MODES:
        file = config_file(node.settings)
        raise WrongMode(
            f"the mode {node.settings.mode} is not served by gpuhook-runtime",
            where=f"{file}: [nvidia-container-runtime] mode",
            hint=f'set mode = "auto" in {file}',
        )
    if status.st_mode & WRITABLE_BY_OTHERS:
        raise BadBundle(
            f"others can write config.json (mode {status.st_mode & 0o7777:04o})",
            where=where,
            hint=f"chmod go-w {where}",
        )


def _with_hook(text: str, spec: dict[str, object], node: Node, log: Log) -> str:
    path = hook_path(node, log)
    name = path.rpartition("/")[2]
    present = gpu_hooks(spec, (*HOOK_NAMES, name))
    if present:
        log("debug", f"the hook {present[0]} is there already")
        return text
    log("debug", f"adding the hook {path}")
    return add_hook(text, path, [name, "prestart"], hook_env(node.environ))


def hook_path(node: Node, log: Log) -> str:
    """The program that config.toml names as the hook, or our own (decisions.md 26).

    NVIDIA's bare name, which is the default and stands in every file that its packages install, means ours; so does
    what cannot be found, with a warning.
    """
    given = node.settings.hook_path
    if given in ("", Settings.hook_path):
        if not _exists(node.hook):
            log.warn("hook-binary-missing", f"our own hook {node.hook} does not exist on this machine")
        return node.hook
    if given.startswith("/"):
        if not _exists(given):
            log.warn("hook-binary-missing", f"the hook {given} does not exist on this machine")
        return given
    folders = [*_path(node.environ).split(":"), *FOLDERS] if "/" not in given else []
    for folder in folders:
        if folder.startswith("/") and _exists(f"{folder.rstrip('/')}/{given}"):
            return f"{folder.rstrip('/')}/{given}"
    log.warn(
        "hook-binary-missing", f"the hook {given} is no absolute path and in no folder of PATH; using {node.hook}"
    )
    return node.hook


def _exists(path: str) -> bool:
    try:
        return posix.access(path, posix.X_OK)
    except ValueError:  # a NUL
        return False


def _path(environ: Mapping[bytes, bytes]) -> str:
    return environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")


def hook_env(environ: Mapping[bytes, bytes]) -> list[str]:
    """The environment that the hook gets: what it obeys of ours, and nothing else (decisions.md 7 and 27)."""
    path = ":".join(folder for folder in _path(environ).split(":") if folder.startswith("/") and is_plain(folder))
    env = [f"PATH={path or ':'.join(FOLDERS)}"]
    for name in HOOK_NEEDS:
        value = environ.get(name, b"").decode("utf-8", "surrogateescape")
        if value and is_plain(value):
            env.append(f"{name.decode()}={value}")
    return env


def _with_devices(
    text: str, spec: dict[str, object], bundle: Bundle, choice: DeviceChoice, node: Node, log: Log
) -> str:
    """The text with the devices' nodes and rules, where systemd manages cgroups; best effort, as the hook decides."""
    if not node.systemd or in_user_namespace():
        return text
    from gpuhook.preload import stage as preload

    preload("gpu")
    preload("engine")
    from gpuhook.runtime.devices import find_devices

    try:
        devices = find_devices(bundle, node.settings, choice, _path(node.environ))
    except (GpuhookError, OSError) as error:
        log.warn("systemd-reload-loses-gpu", f"no device nodes are written into the specification: {error}")
        return text
    if not (_has_user_namespace(spec) or _has_foreign_dev(bundle, spec)):
        text = add_nodes(text, spec, devices)
    text = add_rules(text, spec, (one for one in devices if not bundle.allows_device(one.major, one.minor)))
    log("debug", f"device nodes in the specification: {', '.join(device.path for device in devices)}")
    return text


def _has_user_namespace(spec: dict[str, object]) -> bool:
    """Whether runtimes would bind the host's own /dev in place of making nodes."""
    namespaces = items(table(spec, "linux"), "namespaces")
    return any(isinstance(entry, dict) and entry.get("type") == "user" for entry in namespaces)


def _has_foreign_dev(bundle: Bundle, spec: dict[str, object]) -> bool:
    """Whether /dev is somebody's folder, the host's for example, and no fresh one."""
    covers = {mount.index for mount in bundle.mounts if mount.destination.rstrip("/") == "/dev"}
    mounts = items(spec, "mounts")
    return any(isinstance(entry := mounts[number], dict) and entry.get("type") != "tmpfs" for number in covers)


def systemd_manages_cgroups(*, told: bool, run: str = "/run") -> bool:
    """Whether systemd owns the cgroups here: a runtime was told so, or it is the system's manager (sd_booted(3))."""
    if told:
        return True
    try:
        posix.lstat(f"{run}/systemd/system")
    except OSError:
        return False
    return True
