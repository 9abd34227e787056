"""Podman and CRI-O: whether their hook files count; and whether the programs that engines are told to call exist."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gpuhook.doctor import hookfiles
from gpuhook.doctor.engines import (
    HOOK,
    OLD_HOOK,
    cdi_files,
    dockerds,
    endpoint,
    level_without,
    on_path,
    path_of,
    present,
    registered,
)
from gpuhook.doctor.facts import has_gpu, place_of, settings_of
from gpuhook.doctor.model import Finding, Level, tell
from gpuhook.doctor.node import PATH, Node
from gpuhook.doctor.registry import check
from gpuhook.install.engine import Registered
from gpuhook.install.engines import ENGINES

TITLES = {"podman": "Podman", "crio": "CRI-O"}
# Where gpuhook-runtime and NVIDIA's runtime look for a low-level runtime after PATH.
RUNTIME_FOLDERS = ("/usr/local/libexec/crio", "/usr/libexec/crio", "/run/current-system/sw/bin")
SERVED = ("auto", "legacy", "jit-cdi")


@check("podman-hooks-dir", family="hooks")
def podman(node: Node) -> Iterator[Finding]:
    """Podman reads the folder with the GPU hook's file, and can use the file."""
    if node.which("podman"):
        yield from _engine(node, "podman", "podman-hooks-dir")


@check("crio-hooks-dir", family="hooks")
def crio(node: Node) -> Iterator[Finding]:
    """CRI-O has a GPU runtime, or reads the folder with the GPU hook's file."""
    if node.which("crio") or endpoint(node).endswith("crio.sock"):
        yield from _engine(node, "crio", "crio-hooks-dir")


def _engine(node: Node, engine: str, slug: str) -> Iterator[Finding]:
    if not has_gpu(node):
        return
    title, read = TITLES[engine], hookfiles.folders(node, engine)
    good = registered(node, engine)
    broken = [one for folder in read for one in hookfiles.in_folder(node, folder) if one.fault and one.is_gpu]
    for one in broken:
        yield tell(
            slug,
            "warning" if good else "failure",
            f"{title} cannot use {one.path}: {one.fault}",
            (one.path,),
            advice=f"`gpuhook install {engine} --via hook` writes it anew",
        )
    if good:
        yield tell(slug, "ok", f"{title} calls {good[0].program} ({good[0].where})")
    elif not broken:
        yield _absent(node, engine, slug, read)


def _absent(node: Node, engine: str, slug: str, read: tuple[str, ...]) -> Finding:
    title = TITLES[engine]
    elsewhere = [
        one
        for folder in hookfiles.EVERYWHERE
        if folder not in read
        for one in hookfiles.in_folder(node, folder)
        if one.is_gpu
    ]
    elsewhere += [one for path in _without_suffix(node, read) for one in (hookfiles.HookFile(path),)]
    level: Level = "note" if cdi_files(node) else level_without(node, engine)
    if elsewhere:
        text = f"{title} reads hook files named *.json in {', '.join(read)}; {elsewhere[0].path} is not read"
        return tell(slug, level, text, (elsewhere[0].path,), advice=f"move it, or `gpuhook install {engine}`")
    text = f"{title} has neither a GPU hook nor a GPU runtime"
    cdi = ("containers can still ask for CDI devices: --device nvidia.com/gpu=all",) if cdi_files(node) else ()
    return tell(slug, level, text, *((folder, "no GPU hook") for folder in read), advice=(*cdi, _install(engine)))


def _install(engine: str) -> str:
    return f"`gpuhook install {engine}`" + (", then `systemctl restart crio`" if engine == "crio" else "")


def _without_suffix(node: Node, folders: tuple[str, ...]) -> list[str]:
    """Files about a GPU hook that are passed over because of their name."""
    paths = (path for folder in folders for path in node.glob(folder, "*nvidia*") if not path.endswith(".json"))
    return [path for path in paths if "nvidia" in node.read(path, "")]


@check("hook-binary-missing", family="hooks")
def programs(node: Node) -> Iterator[Finding]:
    """The programs that engines are told to call exist, and the runtime finds one to hand over to."""
    if not has_gpu(node):
        return
    seen = set()
    for engine in ENGINES:
        for one in registered(node, engine) if present(node, engine) else []:
            if (one.where, one.program) in seen:
                continue
            seen.add((one.where, one.program))
            yield from _program(node, engine, one)
    if seen:
        yield from _low_level(node)


def _program(node: Node, engine: str, one: Registered) -> Iterator[Finding]:
    daemon = next(iter(dockerds(node)), None) if engine == "docker" else None
    bare = "/" not in one.program
    path = path_of(daemon) if bare else ":".join(PATH)
    if not (on_path(node, one.program, path) if bare else node.exists(one.program)):
        yield tell(
            "hook-binary-missing",
            "failure",
            f"{engine} is told to call {one.program}, which does not exist{' on its PATH' if bare else ''}",
            (one.where, one.program),
            *([(f"PATH of {engine}", path)] if bare else []),
            advice=f"`gpuhook install {engine}`" + (" --replace-nvidia" if "nvidia" in one.program else ""),
        )
    elif os.path.basename(one.program).startswith("nvidia-container-runtime") and not _finds_hook(node, one.program):
        yield tell(
            "hook-binary-missing",
            "failure",
            f"{one.program} calls {HOOK}, which does not exist",
            (":".join(PATH), "absent", HOOK),
            advice=f"install nvidia-container-toolkit, or `gpuhook install {engine} --replace-nvidia`",
        )


def _finds_hook(node: Node, runtime: str) -> bool:
    path = settings_of(node).hook_path
    if "/" in path:
        return node.exists(path)
    places = ":".join((*PATH, os.path.dirname(runtime)))
    return bool(on_path(node, path, places) or on_path(node, OLD_HOOK, places))


def _low_level(node: Node) -> Iterator[Finding]:
    names = settings_of(node).runtimes
    path = ":".join((*PATH, *RUNTIME_FOLDERS))
    if not any(node.exists(name) if "/" in name else on_path(node, name, path) for name in names):
        yield tell(
            "hook-binary-missing",
            "failure",
            f"no low-level runtime is found; tried {', '.join(names)}",
            (place_of(node, "nvidia-container-runtime.runtimes"), ", ".join(names)),
            (path, "none of them"),
            advice="install runc or crun, or name it in `runtimes` under [nvidia-container-runtime] of config.toml",
        )


@check("hook-not-invoked", family="hooks")
def mode(node: Node) -> Iterator[Finding]:
    """The node's mode is one in which the hook works."""
    settings = settings_of(node)
    if settings.mode in SERVED or settings.skip_mode_detection:
        return
    yield tell(
        "hook-not-invoked",
        "warning",
        f'mode = "{settings.mode}": the hook alone does nothing, and `docker run --gpus` fails',
        (place_of(node, "nvidia-container-runtime.mode"), settings.mode, "auto or legacy"),
        advice="remove the line, or start containers with --runtime=nvidia",
    )
