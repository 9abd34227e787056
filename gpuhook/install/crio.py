"""CRI-O: a runtime in crio.conf.d, or a hook file in a folder that it reads."""

from __future__ import annotations

from gpuhook.install import conf, hookfile, tomledit
from gpuhook.install.change import Change
from gpuhook.install.conf import Conf
from gpuhook.install.engine import Plan, Registered, Wish
from gpuhook.install.errors import CrioConfig, EngineMissing
from gpuhook.install.host import Host
from gpuhook.install.tomledit import Table, table_at

NAME, KIND = "crio", "crio.conf"
CONF = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*")
FILE, ASIDE = "/etc/crio/crio.conf.d/99-gpuhook.conf", "/etc/crio"  # it reads every file in crio.conf.d
RUNTIME = ("crio", "runtime")
DEFAULT = (*RUNTIME, "default_runtime")


def find(host: Host) -> str:
    """What shows that CRI-O is here, "" for nothing."""
    return host.program("crio") or ("/etc/crio" if host.exists("/etc/crio") else "")


def restarts(_host: Host) -> tuple[tuple[str, ...], ...]:
    """The commands after which CRI-O has read its files."""
    return (("systemctl", "restart", "crio"),)


def plan(wish: Wish) -> Plan:
    """What registers our runtime, or our hook, with CRI-O. Raises GpuhookError."""
    host = wish.host
    if not (wish.config or wish.force or find(host)):
        raise EngineMissing(
            "CRI-O was not found: neither crio nor /etc/crio",
            hint="install it first; --config FILE names a file, --force writes for a later CRI-O",
        )
    known = conf.read(host, CONF, CrioConfig)
    if wish.via == "hook":
        return Plan(changes=tuple(hookfile.changes(wish, NAME, _folders(known))), restart=restarts(host))
    return Plan(
        changes=(_runtime(wish, known),),
        notes=(f"pods ask for it by a RuntimeClass whose handler is {wish.runtime}",),
        restart=restarts(host),
    )


def _folders(known: Conf) -> tuple[str, ...]:
    """The hook folders that CRI-O reads, the last one winning (crio.conf(5), hooks_dir)."""
    return known.texts(*RUNTIME, "hooks_dir", usual=hookfile.USUAL)


def _runtime(wish: Wish, known: Conf) -> Change:
    place: tuple[str, ...] = (*RUNTIME, "runtimes", wish.runtime)
    owner = None if wish.config else known.last_with(place)
    seen = owner or wish.host.read(wish.config or FILE)
    keys: dict[tuple[str, ...], object] = {DEFAULT: wish.runtime} if wish.default else {}
    ours = {"runtime_path": wish.shim} if owner else {"runtime_path": wish.shim, "runtime_type": "oci"}
    like = {} if owner else _like(wish, known)
    keys |= {(*place, name): value for name, value in {**ours, **like}.items()}
    return Change(
        engine=NAME,
        kind=KIND,
        seen=seen,
        after=conf.with_keys(seen, keys, CrioConfig).encode(),
        about=f"runtime {wish.runtime} is {wish.shim}" + (", the default" if wish.default else ""),
        runtime=wish.runtime,
        backups=ASIDE if seen.path.startswith("/etc/crio/crio.conf.d/") else "",
    )


def _like(wish: Wish, known: Conf) -> Table:
    """What the files say of the default runtime, crun or runc, besides its program: ours differs in nothing else."""
    runtimes = table_at(known.table, (*RUNTIME, "runtimes"))
    named = tomledit.at(known.table, DEFAULT)
    for name in (named, "crun", "runc"):
        found = runtimes.get(name) if isinstance(name, str) and name != wish.runtime else None
        if isinstance(found, dict):
            return {key: value for key, value in found.items() if key not in ("runtime_path", "runtime_type")}
    return {}


def registered(host: Host) -> list[Registered]:
    """The runtimes and hooks that CRI-O knows. Raises CrioConfig."""
    known = conf.read(host, CONF, CrioConfig)
    default = tomledit.at(known.table, DEFAULT)
    found = hookfile.registered(host, _folders(known))
    for seen, toml in known.files:
        for name in table_at(toml.table, (*RUNTIME, "runtimes")):
            program = toml.at(*RUNTIME, "runtimes", name, "runtime_path")
            if isinstance(program, str):
                found.append(Registered(where=seen.path, name=name, program=program, default=name == default))
    return found
