"""The driver's kernel modules, loaded where they are not, for `load-kmods` (engine.md 5.3).

Only a start that lacks something comes here, so that in the usual case no program is executed. Whatever fails is a
note: the start then fails, or does not, for the lack itself.
"""

from __future__ import annotations

import posix

from gpuhook.driver.pci import gpu_drivers
from gpuhook.errors import UnsafeConfig
from gpuhook.kernel.child import has_ended, kill_session, reap
from gpuhook.kernel.files import read_file, require_trusted
from gpuhook.note import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.driver.model import Host

DEADLINE = 30.0  # seconds for a module to load: GPUs are started meanwhile
HELPERS = ("/usr/bin/nvidia-modprobe", "/usr/sbin/nvidia-modprobe", "/usr/local/bin/nvidia-modprobe")
OPTIONS = {"nvidia": (), "nvidia-uvm": ("-u",), "nvidia-modeset": ("-m",)}  # nvidia-modprobe(1)
MODPROBE = "/sbin/modprobe"  # where the kernel does not say
ENVIRONMENT = {"PATH": "/sbin:/usr/sbin:/bin:/usr/bin"}


def load(host: Host, module: str, helpers: tuple[str, ...] = HELPERS) -> bool:
    """Load a module of the driver ("nvidia", "nvidia-uvm", "nvidia-modeset"); whether it was loaded now.

    Only on a machine with a GPU that no other driver holds, and for a driver on the host itself: one that lives in a
    container loads its own modules. helpers: where nvidia-modprobe may be, the kernel's modprobe is next.
    """
    if _is_loaded(host, module):
        return False
    if host.driver_root.strip("/"):
        note(f"the module {module} is left to the driver container in {host.driver_root}")
        return False
    if not any(driver in ("", "nvidia") for _, driver in gpu_drivers(host.sys)):
        note(f"the module {module} is not loaded: there is no free NVIDIA GPU on the PCI bus")
        return False
    argv = _command(host, module, helpers)
    if argv is None:
        return False
    note(f"loading the module {module} with {' '.join(argv)}")
    fault = _run(argv, DEADLINE)
    loaded = _is_loaded(host, module)
    if not loaded:
        note(f"the module {module} was not loaded: {fault or 'dmesg may say why'}")
    return loaded


def _is_loaded(host: Host, module: str) -> bool:
    try:
        posix.stat(f"{host.sys}/module/{module.replace('-', '_')}")
    except OSError:
        return False
    return True


def _command(host: Host, module: str, helpers: tuple[str, ...]) -> list[str] | None:
    """The command that loads a module: a program of root's that nobody else can write."""
    for path in (*helpers, _modprobe(host)):
        try:
            require_trusted(path)
        except OSError:  # it is not installed
            continue
        except UnsafeConfig as error:
            note(error.text)
            continue
        return [path, *OPTIONS[module]] if path in helpers else [path, module]
    note("neither nvidia-modprobe nor modprobe is installed")
    return None


def _modprobe(host: Host) -> str:
    """The program that the kernel itself would run (proc_sys_kernel(5))."""
    try:
        path = read_file(f"{host.proc}/sys/kernel/modprobe", 4096)[0].decode("utf-8", "surrogateescape").strip()
    except OSError:
        return MODPROBE
    return path if path.startswith("/") else MODPROBE


def _run(argv: list[str], seconds: float) -> str:
    """Run a program, bounded in time and silent; what went wrong, "" for nothing."""
    try:
        pid = posix.fork()
    except OSError as error:
        return f"fork: {error.strerror}"
    if pid == 0:
        _become(argv)
    try:
        ended = has_ended(pid, seconds)
        if not ended:
            kill_session(pid)
    except ProcessLookupError:  # SIGCHLD is ignored: the kernel has reaped it
        return ""
    status = reap(pid)
    if not ended:
        return f"{argv[0]} did not end within {seconds:g} s"
    return "" if status in (0, -1) else f"{argv[0]} ended with status {posix.waitstatus_to_exitcode(status)}"


def _become(argv: list[str]) -> None:
    """The child: the program in a session of its own, with nothing of ours. Never returns."""
    try:
        posix.setsid()
        null = posix.open("/dev/null", posix.O_RDWR)
        for number in (0, 1, 2):
            posix.dup2(null, number)
        posix.closerange(3, 1 << 16)
        posix.chdir("/")
        posix.execve(argv[0], argv, ENVIRONMENT)
    finally:
        posix._exit(127)  # noqa: SLF001  # that is its name
