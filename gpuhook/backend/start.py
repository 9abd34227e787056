"""Which backend does the work for a request: nvidia-container-cli where it is, else the embedded engine."""

from __future__ import annotations

import posix

from gpuhook.preload import stage as preload
from gpuhook.refusals import BackendMissing
from gpuhook.settings.values import DEFAULT_CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.backend.program import Program
    from gpuhook.request.model import Request
    from gpuhook.settings.values import Settings


def start(request: Request, settings: Settings, *, debug: bool = False) -> int:
    """Give the container what it asked for. Returns the exit status, or becomes nvidia-container-cli.

    Raises GpuhookError; nothing was changed then.
    """
    if posix.geteuid() != 0:
        from gpuhook.kernel.userns import enter_user_namespace

        enter_user_namespace(request.pid)
    # Before anything can fail: what is wrong with the configuration may be the reason.
    say_warnings((*request.warnings, *cgroup_warnings(request, settings)))
    if settings.backend != "embedded":
        program, path = choose_program(settings, request.rootfs)
        if program is not None:
            return _hand_over(program, path, request, settings, debug=debug)
    preload("engine")
    from gpuhook.backend.engine import configure

    return configure(request, settings)


def choose_program(settings: Settings, rootfs: str) -> tuple[Program | None, str]:
    """The nvidia-container-cli to use and the PATH to give it ("" for ours); None where the engine is to do the work.

    rootfs: the container's, which is no place to find programs in.
    Raises BackendMissing or UnsafeConfig where a program is asked for and cannot be used.
    """
    from gpuhook.backend.program import find, refuse_none, search_path, vet

    if settings.cli_path:
        where = f"{settings.source or DEFAULT_CONFIG}: [nvidia-container-cli] path"
        return vet(settings.cli_path, where), ""
    inherited = posix.environ.get(b"PATH", b"").decode("utf-8", "surrogateescape")
    folders = search_path(inherited, settings.cli_root)
    path = find(folders, rootfs)
    program = vet(path, "found by the search in PATH") if path else None
    if program is None and settings.backend == "nvidia-container-cli":
        raise refuse_none(folders)
    return program, ":".join(folders)


def _hand_over(program: Program, path: str, request: Request, settings: Settings, *, debug: bool) -> int:
    from gpuhook.backend.cli import become, configure_argv, environment, look_around

    require_channels(program, request)
    around = look_around(settings)
    say_warnings(around.warnings)
    argv = configure_argv(program, request, settings, around, debug=debug)
    return become(argv, environment(posix.environ, settings, path))


def require_channels(program: Program, request: Request) -> None:
    """Refuse IMEX channels where the program is older than they are. Raises BackendMissing."""
    if request.imex_channels and "imex-channel" not in program.knows:
        raise BackendMissing(
            f"{program.path} is too old for IMEX channels (it has no --imex-channel)",
            where="NVIDIA_IMEX_CHANNELS",
            hint="install a newer libnvidia-container-tools",
        )


def cgroup_warnings(request: Request, settings: Settings) -> tuple[tuple[str, str], ...]:
    """What to say of a `no-cgroups` that does not fit this process (decisions.md 13): (slug, text) pairs.

    In a user namespace device rules are never ours to write; outside of one they are missed by a container whose own
    rules do not allow the devices.
    """
    from gpuhook.kernel.files import in_user_namespace

    if settings.no_cgroups is None:
        return ()
    where = f"no-cgroups in {settings.source or DEFAULT_CONFIG}"
    if in_user_namespace():
        if settings.no_cgroups:
            return ()
        return (("rootless-cgroup", f"{where} is false, but device rules cannot be written in a user namespace"),)
    if not settings.no_cgroups or request.privileged or request.allows_devices:
        return ()
    return (("no-cgroups-rootful", f"{where} is true: the container gets device nodes that it may not open"),)


def say_warnings(warnings: tuple[tuple[str, str], ...]) -> None:
    """Print (slug, text) pairs as warnings."""
    if warnings:
        from gpuhook.note import warn

        for reference, text in warnings:
            warn(reference, text)
