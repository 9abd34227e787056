"""Podman: a hook file in a folder that it reads, or a runtime in containers.conf.d."""

from __future__ import annotations

from gpuhook.install import conf, hookfile
from gpuhook.install.change import Change
from gpuhook.install.engine import Plan, Registered, Wish
from gpuhook.install.errors import EngineMissing, HooksDir
from gpuhook.install.host import Host
from gpuhook.install.tomledit import at, table_at

NAME, KIND = "podman", "containers.conf"
CONF = (
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/*.conf",
)
FILE = "/etc/containers/containers.conf.d/99-gpuhook.conf"


def find(host: Host) -> str:
    """What shows that Podman is here, "" for nothing."""
    return host.program("podman") or next((path for path in CONF if host.glob(path)), "")


def restarts(_host: Host) -> tuple[tuple[str, ...], ...]:
    """Nothing runs between two calls of Podman."""
    return ()


def folders(host: Host) -> tuple[str, ...]:
    """The hook folders that Podman reads, the last one winning (containers.conf(5), hooks_dir)."""
    return conf.read(host, CONF, HooksDir).texts("engine", "hooks_dir", usual=hookfile.USUAL)


def plan(wish: Wish) -> Plan:
    """What registers our hook, or our runtime, with Podman. Raises GpuhookError."""
    host = wish.host
    if not (wish.config or wish.force or find(host)):
        raise EngineMissing(
            "Podman was not found: neither its program nor containers.conf",
            hint="install it first; --config names a file, --force writes for a later Podman",
        )
    if wish.via == "runtime" or (wish.default and not wish.via):
        return Plan(changes=(_runtime(wish),), notes=(f"podman run --runtime {wish.runtime} makes GPU containers",))
    if wish.config:
        where, _, name = wish.config.rpartition("/")
        if not name.endswith(".json"):
            raise HooksDir(f"{wish.config} is no hook file: its name must end in .json", where=wish.config)
        changes = hookfile.changes(wish, NAME, (where,), name)
    else:
        changes = hookfile.changes(wish, NAME, folders(host))
    note = (
        "podman run -e NVIDIA_VISIBLE_DEVICES=all makes GPU containers; rootless Podman reads hooks with --hooks-dir"
    )
    return Plan(changes=tuple(changes), notes=(note,))


def _runtime(wish: Wish) -> Change:
    known = conf.read(wish.host, CONF, HooksDir)
    place = ("engine", "runtimes", wish.runtime)
    seen = wish.host.read(wish.config or FILE)
    owner = known.last_with(place)
    if owner and not wish.config and owner.path.startswith("/etc/"):
        seen = owner
    keys: dict[tuple[str, ...], object] = {place: [wish.shim]}
    if wish.default:
        keys[("engine", "runtime")] = wish.runtime
    text = conf.with_keys(seen, keys, HooksDir)
    about = f"runtime {wish.runtime} is {wish.shim}" + (", the default" if wish.default else "")
    return Change(engine=NAME, kind=KIND, seen=seen, after=text.encode(), about=about, runtime=wish.runtime)


def registered(host: Host) -> list[Registered]:
    """The hooks and runtimes that Podman knows. Raises HooksDir."""
    known = conf.read(host, CONF, HooksDir)
    found = hookfile.registered(host, folders(host))
    for seen, toml in known.files:
        for name, programs in table_at(toml.table, ("engine", "runtimes")).items():
            program = programs[0] if isinstance(programs, list) and programs else ""
            default = at(known.table, ("engine", "runtime")) == name
            found.append(Registered(where=seen.path, name=name, program=str(program), default=default))
    return found
