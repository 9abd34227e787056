"""`configure`: the engine's work for the container that the command line names (engine.md 1.5, 1.6, 5)."""

from __future__ import annotations

import posix

from gpuhook.backend.compat import with_compat
from gpuhook.backend.engine import carry_out, harden, prepare
from gpuhook.backend.image import look, read_cache
from gpuhook.engine_cli.begin import begin, log_path
from gpuhook.engine_cli.given import Refusal, lowered, parse_pid
from gpuhook.engine_cli.migs import channels, require_all
from gpuhook.engine_cli.options import CAPABILITIES
from gpuhook.kernel.beneath import Root, same_file
from gpuhook.kernel.files import read_file
from gpuhook.note import note
from gpuhook.plan.ops import Image, Omit
from gpuhook.refusals import BadContainer
from gpuhook.request.model import DeviceChoice, Request, Requirement
from gpuhook.settings.values import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engine_cli.given import Given

LONGEST_OPTIONS = 255  # characters of the words that are handed over (engine.md 1.6)
# CAP_CHOWN, DAC_OVERRIDE, SETGID, SETUID, SYS_CHROOT, SYS_PTRACE, SYS_ADMIN: what the engine cannot do without.
NEEDED = (0, 1, 6, 7, 18, 19, 21)


def check_rootfs(path: str) -> None:
    """Refuse a root filesystem that is relative or the machine's own. Raises Refusal."""
    if not path.startswith("/") or path == "/":
        raise Refusal("input error", "invalid rootfs directory", where=f"ROOTFS={path}", hint="name it in full")


def configure(top: Given, given: Given) -> int:
    """Give the container what the options ask for, or with --dry-run print what that would be. Raises GpuhookError."""
    request, settings = request_of(given), settings_of(top, given)
    log = log_path(top)
    mode = "supervised" if request.pid > 0 else "standalone"
    if given.has("dry-run"):
        _words(given, mode)  # what would be refused is refused here too
        return _dry_run(top, given, request, settings.with_(load_kmods=False), log)
    require_capabilities()
    harden()
    host = begin(top, log)
    words = _words(given, mode)
    note(f"configuring container with '{words}'")
    request = request if request.pid > 0 else request.with_(pid=our_parent(request.rootfs))
    refuse_host_namespace(request.pid)
    carry_out(prepare(request, settings, host, omit_of(given)), settings)
    return 0


def request_of(given: Given) -> Request:
    """The request that the options make. Raises Refusal."""
    names = given.elements("device")
    for option in ("mig-config", "mig-monitor"):
        require_all(given, option, names)
    return Request(
        container="",
        pid=parse_pid(given.last("pid", "0")),
        rootfs=given.words[0],
        devices=DeviceChoice(names=names, sources=("--device",)),
        capabilities=tuple(sorted({name for name, _ in given.options if name in CAPABILITIES})),
        requirements=tuple(Requirement(source="--require", expression=text) for text in given.each("require")),
        mig_config=",".join(given.elements("mig-config")),
        mig_monitor=",".join(given.elements("mig-monitor")),
        imex_channels=tuple(str(number) for number in channels(given)),
    )


def settings_of(top: Given, given: Given) -> Settings:
    """What else the options decide, in the terms of config.toml."""
    return Settings(
        cli_root=top.last("root"),
        cli_ldcache=top.last("ldcache"),
        load_kmods=top.has("load-kmods"),
        no_pivot=top.has("no-pivot"),
        disable_imex_channel_creation=top.has("no-create-imex-channels"),
        no_cgroups=True if given.has("no-cgroups") else None,
        ldconfig=given.last("ldconfig") or None,
        cuda_compat_mode=given.last("cuda-compat-mode", "mount"),
        backend="embedded",
    )


def omit_of(given: Given) -> Omit:
    """What the options leave out."""
    return Omit(
        persistenced=given.has("no-persistenced"),
        fabricmanager=given.has("no-fabricmanager"),
        gsp_firmware=given.has("no-gsp-firmware"),
        nodes=given.has("no-devbind"),
    )


def _words(given: Given, mode: str) -> str:
    """The capabilities and the mode as the log has them. Raises Refusal for absurdly many."""
    chosen = [name for name, _ in given.options if name in (*CAPABILITIES, "no-cgroups", "no-devbind")]
    text = " ".join([*chosen, mode])
    if len(text) > LONGEST_OPTIONS:
        raise Refusal("container error", "too many options", hint="give each capability once")
    return text


def require_capabilities() -> None:
    """Refuse early where the kernel would refuse in the middle. Raises Refusal."""
    try:
        lines = read_file("/proc/self/status", 1 << 16)[0].split(b"\n")
        permitted = int(next(line for line in lines if line.startswith(b"CapPrm:")).split()[1], 16)
    except (OSError, StopIteration, ValueError):  # no procfs: the kernel will say it
        return
    if any(not permitted >> capability & 1 for capability in NEEDED):
        raise Refusal("permission error", "capability change failed: operation not permitted", hint="run it as root")


def our_parent(rootfs: str) -> int:
    """The container's process in standalone mode: our parent, which ROOTFS's procfs must show. Raises Refusal."""
    pid = posix.getppid()
    try:
        with Root(rootfs) as root:
            root.stat(f"/proc/{pid}")
    except OSError as error:
        raise Refusal(
            "container error",
            f"stat failed: {rootfs}/proc/{pid}: {lowered(error)}",
            hint="without --pid the container is our parent process, and its root has its procfs at /proc",
        ) from None
    return pid


def refuse_host_namespace(pid: int) -> None:
    """Refuse a process that shares the mount namespace of the machine's first one (AC-58). Raises BadContainer."""
    try:
        if not same_file(posix.stat(f"/proc/{pid}/ns/mnt"), posix.stat("/proc/1/ns/mnt")):
            return
    except OSError:  # gone, or not ours to see: the container's own checks follow
        return
    raise BadContainer(f"process {pid} is in the host's mount namespace: mounting there would change the host")


def _dry_run(top: Given, given: Given, request: Request, settings: Settings, log: str) -> int:
    from gpuhook.engine_cli.dryrun import print_plan

    host = begin(top, log)
    image = _image(request, settings)
    prepared = prepare(request, settings, host, omit_of(given), image)
    print_plan(prepared, as_json=given.has("json"))
    return 0


def _image(request: Request, settings: Settings) -> Image:
    """Where libraries would go in this tree, as the engine's worker would see it. Raises Refusal."""
    try:
        with Root(request.rootfs) as root:
            cache, _ = read_cache(root)
            return with_compat(look(root, cache), root, request, settings)
    except OSError as error:
        raise Refusal("container error", f"open failed: {request.rootfs}: {lowered(error)}") from None
