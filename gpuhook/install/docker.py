"""Docker: a runtime in daemon.json.

dockerd refuses to start where it gets one setting both from the file and as an option, so the places where
distributions and administrators put options are looked at as well.
"""

from __future__ import annotations

import json

from gpuhook.install.change import Change
from gpuhook.install.dockerd import config_path, option_lines
from gpuhook.install.engine import Plan, Registered, Wish
from gpuhook.install.errors import DaemonJsonInvalid, EngineMissing, SnapDocker
from gpuhook.install.host import Host, Seen
from gpuhook.install.jsonedit import Member, Node, NotJson, place, put, read, replaced, without
from gpuhook.note import warn

NAME, KIND = "docker", "daemon.json"
SNAP = "/var/snap/docker/current/config/daemon.json"
BOM = "\ufeff"


def find(host: Host) -> str:
    """What shows that Docker is here, "" for nothing."""
    return host.program("dockerd") or next((path for path in ("/etc/docker", SNAP) if host.exists(path)), "")


def restarts(_host: Host) -> tuple[tuple[str, ...], ...]:
    """The commands after which dockerd has read its file."""
    return (("systemctl", "restart", "docker"),)


def plan(wish: Wish) -> Plan:
    """What registers our shim with Docker. Raises GpuhookError."""
    host = wish.host
    _require_docker(wish)
    path = wish.config or config_path(host)
    _require_no_option(wish, path)
    seen = host.read(path)
    text, previous = with_runtime(_text(seen), path, wish)
    about = f"runtime {wish.runtime} is {wish.shim}" + (", the default" if wish.default else "")
    change = Change(
        engine=NAME, kind=KIND, seen=seen, after=text.encode(), about=about, runtime=wish.runtime, previous=previous
    )
    return Plan(changes=(change,), notes=_notes(wish), restart=restarts(host))


def _require_docker(wish: Wish) -> None:
    host = wish.host
    if wish.config or host.program("dockerd") or host.exists("/etc/docker"):
        if host.exists(SNAP) and not wish.config:
            warn("snap-docker", f"there is also Docker from a snap, which reads {SNAP} and will not know the runtime")
        return
    if host.exists(SNAP):
        raise SnapDocker(
            "the only Docker here is the snap's, which does not read /etc/docker/daemon.json nor see host programs",
            where=SNAP,
            hint="install docker-ce or docker.io, then: snap remove docker",
        )
    if not wish.force:
        raise EngineMissing(
            "Docker was not found: neither dockerd nor /etc/docker",
            hint="install it first; --config FILE names its daemon.json, --force writes it for a later Docker",
        )


def _require_no_option(wish: Wish, path: str) -> None:
    options = {"--add-runtime": "runtimes", **({"--default-runtime": "default-runtime"} if wish.default else {})}
    for file, number, line in option_lines(wish.host):
        for option, key in options.items():
            if option in line:
                raise DaemonJsonInvalid(
                    f"dockerd gets {option} in {file}, and refuses to start if {key} is in {path} as well",
                    where=f"{file}:{number}",
                    hint=f"remove {option} there, systemctl daemon-reload, and run this again",
                )


def _notes(wish: Wish) -> tuple[str, ...]:
    """What `docker run --gpus` needs, which knows no runtime: dockerd looks for a program of NVIDIA's name."""
    name = "nvidia-container-runtime-hook"
    if name in wish.names or wish.host.program(name):
        return ()
    return (f"docker run --gpus needs a program named {name}: --replace-nvidia puts ours there",)


def _text(seen: Seen) -> str:
    try:
        return seen.text
    except UnicodeDecodeError as fault:
        line = (seen.data or b"").count(b"\n", 0, fault.start) + 1
        raise _broken(seen.path, "it is not UTF-8", f"{seen.path}:{line}") from None


def _broken(path: str, why: str, where: str) -> DaemonJsonInvalid:
    return DaemonJsonInvalid(
        f"{path} cannot be used: {why}", where=where, hint="correct it; gpuhook has not changed the file"
    )


def with_runtime(text: str, path: str, wish: Wish) -> tuple[str, str]:
    """daemon.json's text with the runtime in it, and what an undo in an edited file needs. Raises DaemonJsonInvalid.

    An entry of the name keeps its arguments; only its path changes.
    """
    mark, body = (BOM, text.removeprefix(BOM)) if text.startswith(BOM) else ("", text)
    if mark:
        warn("daemon-json-invalid", f"{path} begins with a byte order mark, which only recent versions of Docker read")
    body = body if body.strip() else "{}\n"
    old = _Document(body, path)
    previous = json.dumps(old.previous(wish.runtime))
    body = old.with_entry(wish.runtime, wish.shim)
    if wish.default:
        body = _Document(body, path).with_default(wish.runtime)
    if body != old.text and not body.endswith("\n"):
        body += "\n"
    return (mark + body if body != old.text or not text.strip() else text), previous


def without_runtime(text: str, path: str, name: str, previous: str) -> str:
    """daemon.json's text with the runtime as it was before us. Raises DaemonJsonInvalid."""
    mark, body = (BOM, text.removeprefix(BOM)) if text.startswith(BOM) else ("", text)
    was = json.loads(previous or "{}")
    body = _Document(body, path).restored(name, was.get("entry"), was.get("default"))
    document = _Document(body, path)
    runtimes = document.only("runtimes")
    if runtimes and not runtimes.value.members and not was.get("runtimes"):
        body = without(body, document.root, runtimes)
    return mark + body


def registered(host: Host, path: str = "") -> list[Registered]:
    """The runtimes in daemon.json. Raises DaemonJsonInvalid."""
    path = path or config_path(host)
    text = _text(host.read(path)).removeprefix(BOM)
    document = _Document(text if text.strip() else "{}", path)
    runtimes, default = document.only("runtimes"), document.only("default-runtime")
    found = []
    for member in runtimes.value.members if runtimes else ():
        value = json.loads(text[member.value.start : member.value.end])
        program = value.get("path") or value.get("runtimeType") if isinstance(value, dict) else None
        is_default = default is not None and document.plain(default.value) == member.key
        found.append(Registered(where=path, name=member.key, program=str(program), default=is_default))
    return found


class _Document:
    """A daemon.json that was read."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self._path = text, path
        try:
            self.root = read(text)
        except NotJson as fault:
            raise self._fault(str(fault), fault.at) from None
        if self.root.kind != "object":
            raise self._fault(f"it holds a {self.root.kind}, and an object is needed", self.root.start)
        for name in ("runtimes", "default-runtime"):
            self.only(name)

    def _fault(self, why: str, at: int) -> DaemonJsonInvalid:
        line, column = place(self.text, at)
        return _broken(self._path, f"line {line}, column {column}: {why}", f"{self._path}:{line}:{column}")

    def plain(self, node: Node) -> object:
        """What a node means."""
        return json.loads(self.text[node.start : node.end])

    def only(self, key: str, parent: Node | None = None) -> Member | None:
        """The one member of this name. Raises DaemonJsonInvalid for a second one."""
        found = (parent or self.root).all(key)
        if len(found) > 1:
            raise self._fault(f"{key} is given twice", found[1].start)
        return found[0] if found else None

    def _runtimes(self) -> Member | None:
        """The member `runtimes`, if it is an object; null counts as absent."""
        member = self.only("runtimes")
        if member and member.value.kind not in ("object", "word"):
            raise self._fault(f"runtimes is a {member.value.kind}, and an object is needed", member.value.start)
        return member

    def _entry(self, name: str) -> Member | None:
        runtimes = self._runtimes()
        entry = self.only(name, runtimes.value) if runtimes else None
        if entry and entry.value.kind != "object":
            raise self._fault(f"runtimes.{name} is a {entry.value.kind}, and an object is needed", entry.value.start)
        return entry

    def previous(self, name: str) -> dict[str, object]:
        """What stands there now: the texts of the entry and of the default, and whether there are runtimes at all."""
        entry, default = self._entry(name), self.only("default-runtime")
        texts = {"entry": entry, "default": default}
        found = {
            key: self.text[member.value.start : member.value.end] if member else None for key, member in texts.items()
        }
        return {**found, "runtimes": self.only("runtimes") is not None}

    def with_entry(self, name: str, program: str) -> str:
        """The text with this runtime."""
        runtimes, entry, value = self._runtimes(), self._entry(name), {"path": program}
        if runtimes is None:
            return put(self.text, self.root, "runtimes", {name: value})
        if runtimes.value.kind == "word":
            return replaced(self.text, runtimes.value, {name: value})
        if entry is None:
            return put(self.text, runtimes.value, name, value)
        where = self.only("path", entry.value)
        if where is None:
            return replaced(self.text, entry.value, value)
        return self.text if self.plain(where.value) == program else replaced(self.text, where.value, program)

    def with_default(self, name: str) -> str:
        """The text with this default runtime."""
        default = self.only("default-runtime")
        if default is None:
            return put(self.text, self.root, "default-runtime", name)
        return self.text if self.plain(default.value) == name else replaced(self.text, default.value, name)

    def restored(self, name: str, entry: str | None, default: str | None) -> str:
        """The text with these texts of the entry and of the default; None takes them out."""
        text, there = self.text, self.only("default-runtime")
        if there and self.plain(there.value) == name:
            text = _restore(text, self.root, there, default)
        document = _Document(text, self._path)
        runtimes, ours = document.only("runtimes"), document._entry(name)
        return _restore(text, runtimes.value, ours, entry) if runtimes and ours else text


def _restore(text: str, parent: Node, member: Member, old: str | None) -> str:
    if old is None:
        return without(text, parent, member)
    return text[: member.value.start] + old + text[member.value.end :]
