"""What all commands begin with: where the driver is, who asks it, and the log (engine.md 1.1, 1.2 and 5.1, step 5)."""

from __future__ import annotations

import posix

from gpuhook.backend.log import start_log
from gpuhook.driver.model import Host
from gpuhook.engine_cli.given import Refusal, parse_user
from gpuhook.note import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engine_cli.given import Given


def log_path(top: Given) -> str:
    """The debug log that is asked for, absolute, "" for none; to be found before the current folder is left."""
    path = top.last("debug", _variable(b"NVC_DEBUG_FILE"))
    if not path or path.startswith("/"):
        return path
    try:
        return f"{posix.getcwd()}/{path}"
    except OSError:  # it is gone
        return path


def begin(top: Given, log: str) -> Host:
    """Start the log, and settle the driver's root, its loader cache and the user. Raises Refusal."""
    start_log(log)
    host = host_of(top)
    note(f"using root {host.driver_root}")
    note(f"using ldcache {host.ldcache}")
    note(f"using unprivileged user {host.user[0]}:{host.user[1]}")
    return host


def host_of(top: Given) -> Host:
    """The driver's place as the global options have it. Raises Refusal."""
    root, cache = top.last("root", Host.driver_root), top.last("ldcache", Host.ldcache)
    if not root.startswith("/") or not cache:
        raise Refusal(
            "initialization error",
            "invalid argument",
            where=f"--root={root}, --ldcache={cache}",
            hint="name the driver's root by an absolute path, and the loader's cache by its path in there",
        )
    mps = _variable(b"CUDA_MPS_PIPE_DIRECTORY")
    return Host(driver_root=root, ldcache=cache, user=_user(top), mps=mps if mps.startswith("/") else Host.mps)


def _user(top: Given) -> tuple[int, int]:
    """Who asks the driver's libraries; without root that can only be ourselves."""
    if posix.geteuid() != 0:
        return posix.geteuid(), posix.getegid()
    values = [value for name, value in top.options if name == "user"]
    return parse_user(values[-1]) if values else Host.user


def _variable(name: bytes) -> str:
    return posix.environ.get(name, b"").decode("utf-8", "surrogateescape")
