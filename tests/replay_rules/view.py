"""A hook case's input, parsed: what rules look at. Nothing here knows the case's name or what was recorded."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.replay_rules import config as toml
from tests.replay_rules.case import Case, Places
from tests.replay_rules.document import Document, member, texts

BASE = "/replay=of=a=case"  # no text of a case holds it
SYSTEM_CONFIG = "/etc/nvidia-container-runtime/config.toml"
TRUE = ("1", "t", "T", "true", "TRUE", "True")
FALSE = ("0", "f", "F", "false", "FALSE", "False")
IDLE = ("poststart", "poststop")
DEVICE_FOLDER = "/var/run/nvidia-container-devices"


@dataclass(frozen=True)
class Call:
    """A command line, in the reference's forms (hook.md §1).

    talks: it asks for help or the version; fault: an option is unknown or lacks its value; late: the words after the
    command, which the reference ignores.
    """

    command: str = ""
    config: str = ""
    debug: bool = False
    talks: bool = False
    fault: bool = False
    late: tuple[str, ...] = ()


def parse_call(args: list[str]) -> Call:
    """The call that these arguments make."""
    call, left = Call(), list(args)
    while left and left[0].startswith("-") and left[0] not in ("-", "--"):
        name, equals, value = left.pop(0).removeprefix("-").removeprefix("-").partition("=")
        if name == "config":
            if not equals and not left:
                return replace(call, fault=True)
            call = replace(call, config=value if equals else left.pop(0))
        elif name in ("h", "help", "version", "debug") and (not equals or value in TRUE + FALSE):
            on = value not in FALSE
            call = replace(call, debug=on) if name == "debug" else replace(call, talks=on)
        else:
            return replace(call, fault=True)
    words = left[left[:1] == ["--"] :]
    return replace(call, command=words[0] if words else "", late=tuple(words[1:]))


@dataclass(frozen=True)
class View:
    """The whole input of a run of the hook. Paths are real ones below BASE.

    given_path: the PATH that the hook got; kinds: what the case has at each path; entries: process.env; mounts:
    (source, destination) pairs; root: root.path; look: the same case with other arguments and variables.
    """

    args: tuple[str, ...]
    look: Callable[[list[str], dict[str, str]], View] = field(repr=False)
    call: Call
    hook_env: dict[str, str]
    given_path: str
    cwd: str
    stub_exit: int
    state: Document
    spec: Document
    config: toml.Config
    config_data: bytes
    kinds: dict[str, str]
    links: dict[str, str]
    entries: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...]
    root: str

    @property
    def works(self) -> bool:
        """Whether this run has work to do: the stage is prestart."""
        return self.call.command == "prestart" and not self.call.fault and not self.call.talks

    @property
    def pid(self) -> Any:
        """The state's pid; 0 where it has none."""
        return member(self.state.value, "pid") or 0

    @property
    def bundle(self) -> str:
        """The bundle's path as the state has it; "" where it has none."""
        return str(member(self.state.value, "bundle") or member(self.state.value, "bundlePath") or "")

    @property
    def config_text(self) -> str:
        """The text of the configuration, with a mark for every byte that is not UTF-8."""
        return self.config_data.decode("utf-8", "replace")

    @property
    def env(self) -> dict[str, str]:
        """The container's variables; of a name given twice the last value."""
        return dict(entry.split("=", 1) for entry in self.entries if "=" in entry)

    @property
    def privileged(self) -> bool:
        """Whether CAP_SYS_ADMIN is in the bounding set."""
        given = member(member(self.spec.value, "process"), "capabilities")
        return "CAP_SYS_ADMIN" in texts(given if isinstance(given, list) else member(given, "bounding"))

    def kind(self, path: str) -> str:
        """What is at a path: "folder", "file", "program" or ""."""
        path = followed(posixpath.normpath(path), self.links)
        if path.startswith(f"{BASE}/") or path == BASE:
            return self.kinds.get(path, "")
        if os.path.isdir(path):
            return "folder"
        return "" if not os.path.exists(path) else "program" if os.access(path, os.X_OK) else "file"

    def again(self, args: list[str]) -> View:
        """The same with other arguments."""
        return self.look(args, self.hook_env)

    def with_config(self, config: toml.Config) -> View:
        """The same under another configuration."""
        return replace(self, config=config)


def look_at(case: Case) -> View:
    """The input of a hook case."""
    return _look(case, case.args(Places(BASE)), case.environment(Places(BASE)))


def _look(case: Case, args: list[str], hook_env: dict[str, str]) -> View:
    places = Places(BASE)
    call, cwd = parse_call(args), case.cwd(places)
    spec = Document(case.input("config_json", places))
    data = config_data(call, hook_env, cwd, _contents(case, places), _links(case, places))
    return View(
        args=tuple(args),
        look=partial(_look, case),
        call=call,
        hook_env=hook_env,
        given_path=hook_env.get("PATH", ""),
        cwd=cwd,
        stub_exit=case.members.get("stub_exit", 0),
        state=Document(case.input("state", places)),
        spec=spec,
        config=toml.Config({}, "no such file") if data is None else toml.read(data.decode("utf-8", "replace")),
        config_data=data or b"",
        kinds=_kinds(case, places),
        links=_links(case, places),
        entries=texts(member(member(spec.value, "process"), "env")),
        mounts=_mounts(member(spec.value, "mounts")),
        root=str(member(member(spec.value, "root"), "path") or ""),
    )


def _mounts(value: Any) -> tuple[tuple[str, str], ...]:
    items = value if isinstance(value, list) else []
    return tuple((str(member(item, "source") or ""), str(member(item, "destination") or "")) for item in items)


def config_path(call: Call, hook_env: dict[str, str]) -> tuple[str, bool]:
    """Where the configuration is looked for, and whether it must be there (hook.md §2)."""
    named = call.config or hook_env.get("NVIDIA_CTK_CONFIG_FILE_PATH", "")
    if named:
        return named, True
    home = hook_env.get("XDG_CONFIG_HOME", "")
    return (f"{home}/nvidia-container-runtime/config.toml" if home else SYSTEM_CONFIG), False


def config_data(
    call: Call, hook_env: dict[str, str], cwd: str, files: dict[str, bytes], links: dict[str, str]
) -> bytes | None:
    """The configuration's bytes: empty where it may be absent and is, None where it must be there and is not."""
    path, required = config_path(call, hook_env)
    return files.get(followed(posixpath.normpath(posixpath.join(cwd, path)), links), None if required else b"")


def _contents(case: Case, places: Places) -> dict[str, bytes]:
    """The case's regular files that may be a configuration."""
    files: dict[str, bytes] = {}
    config = case.config(places)
    if config is not None:
        files[places.marks["{config}"]] = config
    for item in case.members.get("files", ()):
        files.pop(places.fill(item["path"]), None)
        if "text" in item:
            files[places.fill(item["path"])] = places.fill(item["text"]).encode()
    return files


def _links(case: Case, places: Places) -> dict[str, str]:
    """The case's links and what they point at, absolute."""
    links = [(places.fill(i["path"]), places.fill(i["link"])) for i in case.members.get("files", ()) if "link" in i]
    return {path: posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for path, target in links}


def followed(path: str, links: dict[str, str]) -> str:
    """A path with the case's links followed, as far as a kernel would."""
    for _ in range(40):
        link = next((link for link in links if f"{path}/".startswith(f"{link}/")), None)
        if link is None:
            break
        path = links[link] + path.removeprefix(link)
    return path


def _kinds(case: Case, places: Places) -> dict[str, str]:
    """What the case has at each path below its folder, links aside."""
    spec = places.marks["{bundle}"] + "/config.json"
    kinds = {places.marks["{cli}"]: "program", places.marks["{rootfs}"]: "folder"}
    if case.input("config_json", places) is not None:
        kinds[spec] = "file"
    for item in case.members.get("files", ()):
        path = places.fill(item["path"])
        runs = item.get("stub") and int(item.get("mode", "0755"), 8) & 0o111
        kinds[path] = "" if item.get("absent") else "folder" if item.get("dir") else "program" if runs else "file"
    for path in list(kinds):
        for folder in _folders(path):
            kinds.setdefault(folder, "folder")
    return kinds


def _folders(path: str) -> list[str]:
    """The folders above a path, down to BASE."""
    folder = posixpath.dirname(path)
    return [folder, *_folders(folder)] if folder.startswith(BASE) else []
