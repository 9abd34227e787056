"""nvidia-container-cli does the work: its command line and environment, and the exec."""

from __future__ import annotations

import posix

from gpuhook.kernel.files import in_user_namespace, is_regular, read_file
from gpuhook.refusals import BackendMissing, LdconfigMissing
from gpuhook.settings.values import DEFAULT_CONFIG
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.backend.program import Program
    from gpuhook.request.model import Request
    from gpuhook.settings.values import Settings

LDCONFIGS = ("/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig.real", "/usr/sbin/ldconfig")
COMPAT_WORDS = {"ldconfig": "ldconfig", "mount": "mount", "disabled": "disabled", "hook": "disabled"}
# What another program would obey and an administrator of the runtime did not mean for it (decisions.md 7).
DROPPED_PREFIXES = (b"LD_", b"PYTHON", b"NVC_")
DROPPED = (b"GLIBC_TUNABLES", b"OPENSSL_CONF", b"CUDA_MPS_PIPE_DIRECTORY", b"TMPDIR")


class Surroundings(Value):
    """What of this machine changes the command line.

    ldconfig: the --ldconfig value, "" for none; no_cgroups: whether device rules are left alone; user: the --user
    value, "" for none, "=" for the option without a value (our own ids); warnings: (slug, text) pairs.
    """

    ldconfig: str
    no_cgroups: bool
    user: str
    warnings: tuple[tuple[str, str], ...] = ()


def configure_argv(
    program: Program, request: Request, settings: Settings, around: Surroundings, *, debug: bool
) -> tuple[str, ...]:
    """The command line, in the reference's order (nvidia-container-cli(1) configure).

    Options that this release of the program does not know are left out where they only confirm what it does anyway.
    """
    debug_file = "/dev/stderr" if debug else settings.cli_debug
    compat_mode = COMPAT_WORDS[settings.cuda_compat_mode]
    no_channels = settings.disable_imex_channel_creation and "no-create-imex-channels" in program.knows
    # fmt: off
    return (
        program.path,
        *_option("--root", settings.cli_root),
        *_flag("--load-kmods", on=settings.load_kmods),
        *_flag("--no-create-imex-channels", on=no_channels),
        *_flag("--no-pivot", on=settings.no_pivot),
        *_option("--debug", debug_file),
        *_option("--ldcache", settings.cli_ldcache),
        *(("--user",) if around.user == "=" else _option("--user", around.user)),
        "configure",
        *_option("--cuda-compat-mode", compat_mode, on="cuda-compat-mode" in program.knows),
        *_option("--ldconfig", around.ldconfig),
        *_flag("--no-cgroups", on=around.no_cgroups),
        *_option("--device", ",".join(request.devices.names)),
        *_option("--mig-config", request.mig_config),
        *_option("--mig-monitor", request.mig_monitor),
        *_option("--imex-channel", ",".join(request.imex_channels)),
        *(f"--{capability}" for capability in request.capabilities),
        *(f"--require={requirement.expression}" for requirement in request.requirements),
        f"--pid={request.pid}",
        request.rootfs,
    )
    # fmt: on


def _option(name: str, value: str, *, on: bool = True) -> tuple[str, ...]:
    return (f"{name}={value}",) if value and on else ()


def _flag(name: str, *, on: bool) -> tuple[str, ...]:
    return (name,) if on else ()


def environment(environ: Mapping[bytes, bytes], settings: Settings, path: str) -> dict[bytes, bytes]:
    """The program's environment: ours without what could steer it, then PATH (if given), then the configured entries.

    A configured entry replaces an inherited one.
    """
    env = {
        name: value for name, value in environ.items() if not name.startswith(DROPPED_PREFIXES) and name not in DROPPED
    }
    if path:
        env[b"PATH"] = path.encode("utf-8", "surrogateescape")
    for entry in settings.cli_environment:
        name, _, text = entry.partition("=")
        env[name.encode()] = text.encode()
    return env


def look_around(settings: Settings) -> Surroundings:
    """Read from this machine what the command line depends on. Raises LdconfigMissing."""
    ldconfig, warnings = resolve_ldconfig(settings)
    inside = in_user_namespace()
    no_cgroups = settings.no_cgroups if settings.no_cgroups is not None else inside
    user = settings.cli_user if settings.cli_user is not None else _default_user()
    if not user and inside and not _is_mapped(65534):
        user = "="  # the program's own default, 65534, does not exist in here
    return Surroundings(ldconfig=ldconfig, no_cgroups=no_cgroups, user=user, warnings=warnings)


def resolve_ldconfig(settings: Settings) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The --ldconfig value: the configured host program, or the one that exists (decisions.md 6), with a warning.

    The suffix .real is taken off and put back where that file exists. A path inside the container is handed over as it
    is (only with features.allow-ldconfig-from-container). Raises LdconfigMissing.
    """
    configured = settings.ldconfig
    if configured is not None and not configured.startswith("@"):
        return configured, ()
    plain = (configured or "@/sbin/ldconfig")[1:].removesuffix(".real")
    for path in (f"{plain}.real", plain):
        if _exists(path):
            return f"@{path}", ()
    where = f"{settings.source or DEFAULT_CONFIG}: [nvidia-container-cli] ldconfig"
    for path in LDCONFIGS:
        if _exists(path):
            return f"@{path}", (("ldconfig-path", f"{plain} does not exist here, using {path} (in {where})"),)
    raise LdconfigMissing(
        f"ldconfig {(configured or '@/sbin/ldconfig')[1:]} does not exist, and nvidia-container-cli needs one",
        where=where,
        hint=f"install it (package libc-bin or glibc), or set ldconfig to one of @{' @'.join(LDCONFIGS)}",
    )


def _exists(path: str) -> bool:
    """Whether there is such a file; a relative path would depend on the folder that we are started in."""
    try:
        return path.startswith("/") and is_regular(posix.stat(path).st_mode)
    except OSError:
        return False


def _default_user() -> str:
    """`root:video` on SUSE, whose device nodes belong to that group; else nothing."""
    try:
        text = read_file("/etc/os-release", 1 << 16, links=True)[0].decode("utf-8", "replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "ID_LIKE" and {"suse", "opensuse"} & set(value.strip("\"'").split()):
            return "root:video"
    return ""


def _is_mapped(uid: int) -> bool:
    """Whether this user id exists in our user namespace (user_namespaces(7))."""
    try:
        rows = [[int(n) for n in row.split()] for row in read_file("/proc/self/uid_map", 1 << 16)[0].splitlines()]
    except (OSError, ValueError):
        return True
    return any(row[0] <= uid < row[0] + row[2] for row in rows if len(row) == 3)


def become(argv: tuple[str, ...], env: dict[bytes, bytes]) -> int:
    """Replace this process by the program; only returns by raising BackendMissing."""
    posix.closerange(3, 1 << 16)
    try:
        posix.execve(argv[0], [a.encode("utf-8", "surrogateescape") for a in argv], env)
    except (OSError, ValueError) as error:
        raise BackendMissing(
            f"cannot execute {argv[0]}: {getattr(error, 'strerror', error)}",
            where=argv[0],
            hint="a script's interpreter may be missing, or the file is damaged: install nvidia-container-cli anew",
        ) from error
