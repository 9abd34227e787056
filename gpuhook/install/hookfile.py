"""OCI hook files (oci-hooks(5) of Podman and CRI-O): where they count, and ours.

Engines read a list of folders; of two files with one name, that of the later folder hides the other. Two GPU hooks in
effect would do the work twice, so ours takes the name, or the place, of every other one.
"""

from __future__ import annotations

import json
import os

from gpuhook.install.change import Change
from gpuhook.install.engine import Registered, Wish
from gpuhook.install.errors import HooksDir
from gpuhook.install.host import FOLDERS, Host, Seen
from gpuhook.note import warn

KIND = "hook-file"
FORMAT = "1.0.0"
FILE = "oci-nvidia-hook.json"
USUAL = ("/usr/share/containers/oci/hooks.d",)  # what Podman and CRI-O read where nothing else is configured
GPU_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit", "gpuhook")


def content(hook: str) -> str:
    """Our hook file: before every container's start. The hook itself leaves at once where no GPU is asked for."""
    name = os.path.basename(hook)
    made = {
        "version": FORMAT,
        "hook": {"path": hook, "args": [name, "prestart"], "env": [f"PATH={':'.join(FOLDERS)}"]},
        "when": {"always": True},
        "stages": ["prestart"],
    }
    return json.dumps(made, indent=4) + "\n"


def changes(wish: Wish, engine: str, folders: tuple[str, ...], name: str = FILE) -> list[Change]:
    """What makes ours the one GPU hook in effect.

    folders: those that the engine reads, the last one winning; name: of our file, where no other one's name is taken.

    Raises HooksDir for a GPU hook's file that is broken or of another format, unless with force.
    """
    others = [seen for seen in in_effect(wish.host, folders).values() if _is_gpu_hook(seen, wish)]
    folder = _folder(folders)
    if not others:
        return [_ours(wish, engine, f"{folder}/{name}")]
    first, *rest = sorted(others, key=lambda seen: folders.index(os.path.dirname(seen.path)), reverse=True)
    place, name = os.path.split(first.path)
    here = place if folders.index(place) >= folders.index(folder) else folder
    return [_ours(wish, engine, f"{here}/{name}"), *(_gone(engine, seen) for seen in rest)]


def _folder(folders: tuple[str, ...]) -> str:
    """Where an administrator's files go: the last folder below /etc, else the last one."""
    return next((folder for folder in reversed(folders) if folder.startswith("/etc/")), folders[-1])


def in_effect(host: Host, folders: tuple[str, ...]) -> dict[str, Seen]:
    """The hook files that count, by name."""
    return {os.path.basename(path): host.read(path) for folder in folders for path in host.files(f"{folder}/*.json")}


def _is_gpu_hook(seen: Seen, wish: Wish) -> bool:
    try:
        return os.path.basename(_program(seen)) in (*GPU_HOOKS, os.path.basename(wish.hook))
    except ValueError as fault:
        looks = any(name.encode() in (seen.data or b"") for name in GPU_HOOKS)
        if looks and not wish.force:
            raise HooksDir(
                f"{seen.path} is about a GPU hook and cannot be used: {fault}",
                where=seen.path,
                hint="correct or remove it, or --force: then it is kept aside until uninstall",
            ) from None
        if not looks:
            warn("podman-hooks-dir", f"{seen.path} cannot be used by any engine: {fault}")
        return looks


def _program(seen: Seen) -> str:
    """The program of a hook file of the known format. Raises ValueError."""
    found = json.loads((seen.data or b"").decode("utf-8"))
    if not isinstance(found, dict) or found.get("version") != FORMAT:
        version = found.get("version") if isinstance(found, dict) else None
        raise ValueError(f"its version is {version!r}, and engines read {FORMAT!r}")
    hook = found.get("hook")
    path = hook.get("path") if isinstance(hook, dict) else None
    if not isinstance(path, str):
        raise ValueError("hook.path is missing")
    return path


def _ours(wish: Wish, engine: str, path: str) -> Change:
    seen = wish.host.read(path)
    about = f"hook {wish.hook} before every container's start"
    return Change(engine=engine, kind=KIND, seen=seen, after=content(wish.hook).encode(), about=about)


def _gone(engine: str, seen: Seen) -> Change:
    return Change(engine=engine, kind=KIND, seen=seen, after=None, about="is a second GPU hook and goes aside")


def registered(host: Host, folders: tuple[str, ...]) -> list[Registered]:
    """The hooks in effect; a file that is no good is said and left out."""
    found = [_registered(seen) for seen in in_effect(host, folders).values()]
    return [one for one in found if one]


def _registered(seen: Seen) -> Registered | None:
    try:
        return Registered(where=seen.path, name="hook", program=_program(seen))
    except ValueError as fault:
        warn("podman-hooks-dir", f"{seen.path} cannot be used by any engine: {fault}")
        return None
