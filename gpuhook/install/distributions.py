"""Kubernetes distributions that bring their own containerd, and the files from which it is configured.

k3s and RKE2 generate config.toml at every start, from a Go template that an administrator may put beside it. MicroK8s
keeps a TOML file with placeholders in its texts. k0s merges the files of a folder. None of them reads
/etc/containerd/config.toml, which is why a runtime that was put there is never found.
"""

from __future__ import annotations

import re

from gpuhook.install import cri, tomledit
from gpuhook.install.change import Change
from gpuhook.install.engine import Plan, Registered, Wish
from gpuhook.install.errors import DistroConfig
from gpuhook.install.host import FOLDERS, Host, Seen
from gpuhook.install.programs import is_ours_at
from gpuhook.install.tomledit import Table
from gpuhook.settings.tokens import NotToml
from gpuhook.value import Value

ENGINE = "containerd"
TEMPLATE, K0S_PART, DEFAULT, TOML = "template", "k0s", "k3s-default", "containerd"
BASE = '{{ template "base" . }}'
BEGIN, END = "# gpuhook begin: written by `gpuhook install containerd`", "# gpuhook end"
# Where k3s and RKE2 look for NVIDIA's runtime by themselves: releases differ, and all of them look in /usr/bin.
SEARCHED, BY_ALL = ("/usr/local/nvidia/toolkit", *FOLDERS), "/usr/bin"
NVIDIA = "nvidia-container-runtime"
MICROK8S = "/var/snap/microk8s/current/args/containerd-template.toml"
K0S, K0S_FOLDER = "/etc/k0s/containerd.toml", "/etc/k0s/containerd.d"
K0S_MARK = "k0s_managed=true"


class Distribution(Value):
    """A distribution. places: any of which shows that it is here; units: of systemd, the first that exists counts."""

    name: str
    places: tuple[str, ...]
    units: tuple[str, ...] = ()

    def shows(self, host: Host) -> str:
        """The place by which it is found, "" for none."""
        return next((place for place in self.places if host.exists(place)), "")

    def restarts(self, host: Host) -> tuple[tuple[str, ...], ...]:
        """The commands after which its containerd has read its files."""
        if self.name == "microk8s":
            return (("microk8s", "stop"), ("microk8s", "start"))
        there = [unit for unit in self.units if host.exists(f"/etc/systemd/system/{unit}.service")]
        return (("systemctl", "restart", (there or self.units)[0]),)

    def registered(self, host: Host) -> list[Registered]:
        """The runtimes that its files have. Raises GpuhookError."""
        return [one for seen in _sources(host, self) for one in _in_source(seen)]


def _rancher(name: str) -> tuple[str, ...]:
    return (f"/var/lib/rancher/{name}/agent/etc/containerd", f"/var/lib/rancher/{name}", f"/etc/rancher/{name}")


KNOWN = (
    Distribution(name="k3s", places=_rancher("k3s"), units=("k3s", "k3s-agent")),
    Distribution(name="rke2", places=_rancher("rke2"), units=("rke2-server", "rke2-agent")),
    Distribution(name="microk8s", places=(MICROK8S, "/var/snap/microk8s")),
    Distribution(name="k0s", places=("/etc/k0s", "/var/lib/k0s"), units=("k0sworker", "k0scontroller")),
)


def find(host: Host) -> list[Distribution]:
    """The distributions that are on this machine."""
    return [one for one in KNOWN if one.shows(host)]


def plan(wish: Wish, found: list[Distribution]) -> Plan:
    """What registers our shim with these. Raises GpuhookError."""
    makers = {"microk8s": _microk8s, "k0s": _k0s}
    plans = [(one, makers.get(one.name, _template)(wish, one)) for one in found]
    notes = [note for _, (_, said) in plans for note in said]
    if wish.host.exists("/etc/containerd/config.toml"):
        notes.append(
            f"/etc/containerd/config.toml is left alone: {', '.join(one.name for one in found)} does not read it"
        )
    return Plan(
        changes=tuple(change for _, (changes, _) in plans for change in changes),
        notes=tuple(notes),
        restart=tuple(command for one in found for command in one.restarts(wish.host)),
    )


Made = tuple[list[Change], list[str]]  # changes and notes


def _change(wish: Wish, kind: str, seen: Seen, text: str, about: str = "") -> Change:
    said = about or f"runtime {wish.runtime} is {wish.shim}"
    return Change(engine=ENGINE, kind=kind, seen=seen, after=text.encode(), about=said, runtime=wish.runtime)


# k3s and RKE2


def _template(wish: Wish, one: Distribution) -> Made:
    folder = one.places[0]
    changes = [_default(wish, one)] if wish.default else []
    if wish.runtime == "nvidia" and f"{BY_ALL}/{NVIDIA}" in _found_by_itself(wish, one):
        return changes, [f"{one.name} registers {BY_ALL}/{NVIDIA} by itself when it starts; no template is needed"]
    seen, version = _template_file(wish.host, folder)
    text = _with_block(seen, wish, version)
    return [_change(wish, TEMPLATE, seen, text), *changes], []


def _found_by_itself(wish: Wish, one: Distribution) -> tuple[str, str]:
    """Our programs that a distribution may find when it starts. Raises DistroConfig where it will find NVIDIA's."""
    there = wish.host.program(NVIDIA, SEARCHED)
    ours = f"{wish.folder}/{NVIDIA}" if NVIDIA in wish.names else ""
    if there not in ("", ours) and not is_ours_at(wish.host, there):
        raise DistroConfig(
            f"{one.name} finds {there} when it starts and registers that as nvidia by itself",
            where=there,
            hint=f"--replace-nvidia --force --bin {there.rpartition('/')[0]}, or another --runtime-name",
        )
    return there, ours


def _default(wish: Wish, one: Distribution) -> Change:
    """The default runtime is an option of the service: its template's table cannot be written twice."""
    seen = wish.host.read(f"/etc/rancher/{one.name}/config.yaml.d/99-gpuhook.yaml")
    return _change(
        wish, DEFAULT, seen, f"default-runtime: {wish.runtime}\n", f"{wish.runtime} is {one.name}'s default"
    )


def _template_file(host: Host, folder: str) -> tuple[Seen, int]:
    """The template that counts, and the version of what it makes: an existing one, else that for this containerd."""
    for name, version in (("config-v3.toml.tmpl", 3), ("config.toml.tmpl", 2)):
        seen = host.read(f"{folder}/{name}")
        if seen.data is not None:
            return seen, version
    generated = (host.read(f"{folder}/config.toml").data or b"").decode("utf-8", "replace")
    if re.search(r"^\s*version\s*=\s*3\b", generated, re.MULTILINE):
        return host.read(f"{folder}/config-v3.toml.tmpl"), 3
    return host.read(f"{folder}/config.toml.tmpl"), 2


def _with_block(seen: Seen, wish: Wish, version: int) -> str:
    """A template with our part at its end. It is Go's template language and no TOML: nothing else of it is read.

    Our part gives way to a runtime of the name that the distribution has found by itself: the base has its table then.
    """
    text = _decoded(seen)
    ours = _own_part(text, wish.runtime)
    others = f"{text[: ours.start()]}{text[ours.end() :]}" if ours else text
    if re.search(rf"runtimes\.[\"']?{re.escape(wish.runtime)}[\"']?\s*\]", others):
        raise DistroConfig(
            f"{seen.path} has a runtime {wish.runtime} already, and a template cannot be changed safely",
            where=seen.path,
            hint=f'set BinaryName = "{wish.shim}" there by hand, or take another --runtime-name',
        )
    options: Table = {"BinaryName": wish.shim, "SystemdCgroup": tomledit.Raw(text="{{ .SystemdCgroup }}")}
    place = (*cri.PLUGINS[version], "containerd", "runtimes", wish.runtime)
    block = tomledit.block(place, {"runtime_type": cri.RUNC, "options": options}, step="")
    unless = f'{{{{ if not (index .ExtraRuntimes "{wish.runtime}").BinaryName }}}}'
    lines = [f"{BEGIN} for {wish.runtime}", unless, *block, "{{ end }}", END]
    if ours:
        return text[: ours.start("part")] + "".join(f"{line}\n" for line in lines) + text[ours.end() :]
    return tomledit.appended(text if text.strip() else f"{BASE}\n", lines)


def _own_part(text: str, runtime: str) -> re.Match[str] | None:
    """Where our part for a runtime stands, with the empty line before it."""
    begin = re.escape(f"{BEGIN} for {runtime}")
    return re.search(rf"\n?(?P<part>{begin}\n.*?{re.escape(END)}\n?)", text, re.DOTALL)


def _decoded(seen: Seen) -> str:
    try:
        return seen.text
    except UnicodeDecodeError:
        raise DistroConfig(f"{seen.path} is not UTF-8", where=seen.path) from None


def without_block(text: str, _path: str, runtime: str, _previous: str) -> str:
    """A template without our part; "" where only the base is left, which is what there is without a template."""
    found = _own_part(text, runtime)
    left = text[: found.start()] + text[found.end() :] if found else text
    return "" if found and left.strip() == BASE else left


# MicroK8s and k0s


def _in_place(wish: Wish, path: str) -> Change:
    seen = wish.host.read(path)
    file = cri.read_file(seen)
    like = cri.model([file], wish.runtime)
    entry = cri.Entry(
        name=wish.runtime, program=wish.shim, like=like or cri.like_runc(wish.host), default=wish.default
    )
    text = cri.with_entry(file, entry, lacks_runc=like is None)
    return _change(wish, TOML, seen, text).with_(previous=cri.previous(file, wish.runtime))


def _microk8s(wish: Wish, _one: Distribution) -> Made:
    if not wish.host.exists(MICROK8S):
        raise DistroConfig(f"{MICROK8S} is missing", where=MICROK8S, hint="start MicroK8s once: it makes the file")
    return [_in_place(wish, MICROK8S)], []


def _k0s(wish: Wish, _one: Distribution) -> Made:
    managed = (wish.host.read(K0S).data or K0S_MARK.encode()).decode("utf-8", "replace")
    if K0S_MARK not in managed:
        return [_in_place(wish, K0S)], [f"{K0S} is managed by you, not by k0s, so it is changed in place"]
    version = 3 if re.search(r"^\s*version\s*=\s*3\b", managed, re.MULTILINE) else 2
    seen = wish.host.read(f"{K0S_FOLDER}/99-gpuhook.toml")
    file = _part(_decoded(seen), seen.path, version)
    entry = cri.Entry(name=wish.runtime, program=wish.shim, like={}, default=wish.default)
    text = cri.with_entry(file, entry, lacks_runc=False)
    if (
        version == 2 and "version" not in file.toml.table
    ):  # old releases append these files to one text, where a second `version` would be a mistake
        text = tomledit.without(text, ("version",)).lstrip("\n")
    return [_change(wish, K0S_PART, seen, text).with_(previous=cri.previous(file, wish.runtime))], []


def _part(text: str, path: str, version: int) -> cri.File:
    """A file of k0s's folder, which may do without a version. Raises ContainerdConfig."""
    try:
        return cri.File(path=path, toml=tomledit.Toml(text), version=version)
    except NotToml as fault:
        raise cri.broken(path, str(fault), fault.line) from None


def without_part(text: str, path: str, runtime: str, _previous: str) -> str:
    """An edited file of k0s's folder without our runtime; "" where nothing but its version is left."""
    for version, plugin in cri.PLUGINS.items():
        file = _part(text, path, version)
        text = tomledit.without(file.toml.text, (*plugin, "containerd", "runtimes", runtime))
        if file.toml.at(*plugin, "containerd", "default_runtime_name") == runtime:
            text = tomledit.without(text, (*plugin, "containerd", "default_runtime_name"))
        text = file.toml.whole(text)
    return "" if tomledit.says_nothing(text, but="version") else text


def without_default(text: str, _path: str, runtime: str, _previous: str) -> str:
    """An edited file of k3s's or RKE2's options without our default."""
    return re.sub(rf"^default-runtime:[ \t]*[\"']?{re.escape(runtime)}[\"']?[ \t]*\n?", "", text, flags=re.MULTILINE)


# What is registered


def _sources(host: Host, one: Distribution) -> list[Seen]:
    """The files that say what its containerd knows: the generated one where there is one."""
    if one.name == "microk8s":
        paths = [MICROK8S]
    elif one.name == "k0s":
        paths = [K0S, *host.files(f"{K0S_FOLDER}/*.toml")]
    else:
        paths = [f"{one.places[0]}/{name}" for name in ("config.toml", "config.toml.tmpl", "config-v3.toml.tmpl")]
    return [seen for seen in map(host.read, paths) if seen.data is not None]


def _in_source(seen: Seen) -> list[Registered]:
    """The runtimes in a file, by its lines: templates are no TOML."""
    found, name = [], ""
    for line in (seen.data or b"").decode("utf-8", "replace").splitlines():
        if head := re.search(r"^\s*\[.*\.runtimes\.[\"']?([\w-]+)[\"']?[.\]]", line):
            name = head[1]
        elif name and (program := re.search(r"^\s*BinaryName\s*=\s*[\"'](.+?)[\"']", line)):
            found.append(Registered(where=seen.path, name=name, program=program[1]))
    return found
