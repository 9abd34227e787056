"""What gpuhook can repair: the loader's cache, links in /dev/char, an engine's registration, keys of config.toml."""

from __future__ import annotations

import io
import os
import re
import subprocess
from contextlib import redirect_stdout

from gpuhook.doctor.checks.later import unlinked
from gpuhook.doctor.facts import config_path
from gpuhook.doctor.fix import Repair, repair
from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node
from gpuhook.errors import GpuhookError
from gpuhook.install import add
from gpuhook.install.change import Change, aside_path, diff, require_ours, write
from gpuhook.install.host import Host
from gpuhook.install.tomledit import Toml
from gpuhook.settings.decide import decide
from gpuhook.settings.values import DEFAULT_CONFIG

ENGINES = {
    "engine-no-gpu-driver": "docker",
    "runtime-not-registered": "docker",
    "podman-hooks-dir": "podman",
    "crio-hooks-dir": "crio",
    "containerd-config": "containerd",
    "k8s-distro-config": "containerd",
}
AT_BOOT = "/etc/tmpfiles.d/gpuhook-dev-char.conf"
FIXED = "195"  # the one major number of NVIDIA's that is the same at every boot
SPELLING = re.compile(r":(\d+): (.+) is unknown and has no effect; did you mean (.+)\?$")


class LdconfigFailed(GpuhookError):
    """The node's ldconfig did not do its work."""

    reference = "ldcache-stale"


@repair("ldcache-stale")
def rebuild_cache(found: Finding, node: Node) -> Repair:
    """Run the node's ldconfig."""
    command = ["ldconfig", *([] if node.is_real else ["-r", node.root])]

    def do() -> None:
        done = subprocess.run(
            [node.which("ldconfig") if node.is_real else "/sbin/ldconfig", *command[1:]], check=False
        )
        if done.returncode:
            raise LdconfigFailed(f"ldconfig ended with status {done.returncode}", hint="run it by hand")

    return Repair(found.slug, "make the loader's cache anew", " ".join(command), do)


@repair("systemd-reload-loses-gpu")
def link_nodes(found: Finding, node: Node) -> Repair | None:
    """Links in /dev/char now, and those with a fixed number at every boot."""
    missing = unlinked(node)
    if not missing:
        return None
    targets = {link: os.path.relpath(path, "/dev/char") for path, link in missing}
    lasting = "".join(
        f"L+ {link} - - - - {target}\n"
        for link, target in targets.items()
        if link.rpartition("/")[2].startswith(FIXED)
    )
    host = Host(root=node.root)
    change = Change(engine="doctor", kind="tmpfiles", seen=host.read(AT_BOOT), after=lasting.encode(), about="links")
    commands = "".join(f"ln -s {target} {link}\n" for link, target in targets.items())

    def do() -> None:
        _make_folder(node, "/dev/char")
        for link, target in targets.items():
            place = node.place("/dev/char") + "/" + link.rpartition("/")[2]
            if not os.path.lexists(place):
                os.symlink(target, place)
        _make_folder(node, os.path.dirname(AT_BOOT))
        _write(host, change)

    return Repair(found.slug, "make the links, now and at every boot", commands + diff(change), do)


def _make_folder(node: Node, path: str) -> None:
    os.makedirs(node.place(path), mode=0o755, exist_ok=True)


@repair(*ENGINES)
def register(found: Finding, node: Node) -> Repair | None:
    """Register gpuhook with the engine, as `gpuhook install` does. Raises GpuhookError where that is refused."""
    engine = ENGINES[found.slug]
    if "gpuhook install" not in " ".join(found.advice):
        return None
    argv = [engine, "--replace-nvidia", *([] if node.is_real else ["--root", node.root])]
    said = io.StringIO()
    with redirect_stdout(said):
        add.main([*argv, "--dry-run"])

    def do() -> None:
        add.main(argv)

    title = f"register gpuhook with {engine} (gpuhook install {' '.join(argv)})"
    return Repair(found.slug, title, said.getvalue(), do) if said.getvalue() else None


@repair("config-toml-broken")
def spelling(found: Finding, node: Node) -> Repair | None:
    """Correct keys of config.toml that are misspelt. Raises GpuhookError where the file is not ours to change."""
    host = Host(root=node.root)
    seen = host.read(config_path(node))
    before = (seen.data or b"").decode("utf-8", "replace")
    after = corrected(before)
    if after == before:
        return None
    change = Change(engine="doctor", kind="config.toml", seen=seen, after=after.encode(), about="spelling")
    require_ours(change, force=False)
    return Repair(found.slug, "correct the spelling of keys", diff(change), lambda: _write(host, change))


def corrected(text: str) -> str:
    """A config.toml's text with the keys that are nearly known spelled right; as it was where that would not help."""
    try:
        warnings = decide(text.encode(), DEFAULT_CONFIG).warnings
    except GpuhookError:
        return text
    lines = Toml(text).text.split("\n")
    for _, warning in warnings:
        if said := SPELLING.search(warning):
            number, old, new = int(said[1]) - 1, said[2], said[3]
            if old.rpartition(".")[0] == new.rpartition(".")[0]:
                old, new = old.rpartition(".")[2], new.rpartition(".")[2]
                lines[number] = re.sub(rf"^(\s*)[\"']?{re.escape(old)}[\"']?(?=\s*=)", rf"\g<1>{new}", lines[number])
    after = Toml(text).whole("\n".join(lines))
    try:
        better = len(decide(after.encode(), DEFAULT_CONFIG).warnings) < len(warnings)
    except GpuhookError:
        better = False
    return after if better else text


def _write(host: Host, change: Change) -> None:
    if not change.is_none:
        write(change, aside_path(host, change) if change.seen.data is not None else "")
