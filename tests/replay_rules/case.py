"""A recorded case: its members, its paths, and its files on disk."""

from __future__ import annotations

import base64
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.replay_rules.outcome import Outcome, recorded

STUB = {"hook": "{cli}", "docker": "{docker}", "runtime": "{runc}"}
ARGS = {"hook": ["-config", "{config}", "prestart"]}
ENVIRONMENT = {
    "hook": {"PATH": "{path}"},
    "docker": {"PATH": "{dir}/bin:{path}", "NV_DOCKER": "{docker}"},
    "runtime": {"PATH": "{dir}/bin:{path}", "NVIDIA_CTK_CONFIG_FILE_PATH": "{config}"},
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECORDER = """\
#!/bin/sh
{cat} /proc/$$/environ > '{record}/env'
{cat} /proc/$$/cmdline > '{record}/argv'
exit {status}
"""


class Places:
    """The paths of one case below its folder, and the placeholders that stand for them."""

    def __init__(self, base: str) -> None:
        self.dir = base
        self.marks = {
            "{cli}": f"{base}/bin/nvidia-container-cli",
            "{hook}": f"{base}/bin/nvidia-container-runtime-hook",
            "{runc}": f"{base}/bin/runc",
            "{docker}": f"{base}/bin/docker",
            "{config}": f"{base}/config.toml",
            "{rootfs}": f"{base}/bundle/rootfs",
            "{bundle}": f"{base}/bundle",
            "{dir}": base,
        }
        self.record = f"{base}/.record"

    def fill(self, text: str) -> str:
        """The text with real paths in place of placeholders."""
        for mark, path in self.marks.items():
            text = text.replace(mark, path)
        return text.replace("{path}", os.environ.get("PATH", PATH))

    def fill_all(self, value: Any) -> Any:
        """The same for every string of a JSON value."""
        return _each_text(value, self.fill)

    def blank(self, text: str) -> str:
        """The text with placeholders in place of real paths."""
        for mark, path in self.marks.items():
            text = text.replace(path, mark)
        return text

    def blank_all(self, value: Any) -> Any:
        """The same for every string of a JSON value."""
        return _each_text(value, self.blank)


def _each_text(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _each_text(item, change) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class Case:
    """One line of a vector file."""

    members: dict[str, Any]

    @property
    def kind(self) -> str:
        """`hook`, `runtime` or `docker`."""
        return str(self.members.get("kind", "hook"))

    @property
    def name(self) -> str:
        """For people who read a report; nothing may be decided by it."""
        return str(self.members["name"])

    @property
    def recorded(self) -> Outcome:
        """What the reference did."""
        return recorded(self.members["expect"])

    def matches(self, words: list[str]) -> bool:
        """Whether one of the words is a tag or part of the name; True without words."""
        return not words or any(word in self.members["tags"] or word in self.name for word in words)

    def args(self, places: Places) -> list[str]:
        """The arguments of the program under test."""
        return [places.fill(word) for word in self.members.get("args", ARGS.get(self.kind, []))]

    def cwd(self, places: Places) -> str:
        """The folder that the program starts in."""
        return places.fill(self.members.get("cwd", "{bundle}"))

    def environment(self, places: Places) -> dict[str, str]:
        """The whole environment of the program, as the case has it."""
        given = self.members.get("env_of_hook", self.members.get("env"))
        filled: dict[str, str] = places.fill_all(ENVIRONMENT[self.kind] if given is None else given)
        return filled

    def input(self, key: str, places: Places) -> bytes | None:
        """An input that is given as an object, as text or in base64; None where the case has none."""
        if f"{key}_b64" in self.members:
            return base64.b64decode(self.members[f"{key}_b64"])
        if f"{key}_raw" in self.members:
            return places.fill(self.members[f"{key}_raw"]).encode("utf-8", "surrogatepass")
        value = self.members.get(key)
        if value is None:
            return None
        return json.dumps(places.fill_all(value), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def config(self, places: Places) -> bytes | None:
        """The bytes of config.toml; None where there is no such file."""
        if "config_toml_b64" in self.members:
            return base64.b64decode(self.members["config_toml_b64"])
        text = self.members.get("config_toml")
        return None if text is None else places.fill(text).encode()


def load(path: Path) -> list[Case]:
    """The cases of a vector file. Raises ValueError with the line at fault."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            try:
                cases.append(Case(json.loads(line)))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    return cases


def lay_out(case: Case, places: Places) -> bytes:
    """Make the files of a case below its folder, which must not exist yet, and return what goes to stdin."""
    for folder in (places.dir, places.record, f"{places.dir}/bin", places.marks["{rootfs}"]):
        os.makedirs(folder, exist_ok=folder != places.dir)
    cat = shutil.which("cat") or "/bin/cat"
    stub = RECORDER.format(cat=cat, record=places.record, status=case.members.get("stub_exit", 0)).encode()
    _write(places.marks[STUB[case.kind]], stub, 0o755)
    config = case.config(places)
    if config is not None:
        _write(places.marks["{config}"], config)
    spec = case.input("config_json", places)
    if spec is not None:
        _write(f"{places.dir}/bundle/config.json", spec)
    for item in case.members.get("files", ()):
        _make(item, places, stub, spec or b"")
    return (case.input("state", places) or b"") if case.kind == "hook" else b""


def _make(item: dict[str, Any], places: Places, stub: bytes, spec: bytes) -> None:
    """Make one of the case's own files."""
    path = places.fill(item["path"])
    if not os.path.normpath(path).startswith(f"{places.dir}/"):
        raise ValueError(f"a file outside of the case: {path}")
    if not (item.get("dir") and os.path.isdir(path)):
        _remove(path)
    mode = int(item["mode"], 8) if "mode" in item else None
    if item.get("absent"):
        return
    if item.get("dir"):
        os.makedirs(path, exist_ok=True)
    elif "link" in item:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(places.fill(item["link"]), path)
    elif item.get("stub"):
        _write(path, stub, 0o755 if mode is None else mode)
    else:
        _write(path, spec if item.get("copy_config_json") else places.fill(item.get("text", "")).encode(), mode)


def _remove(path: str) -> None:
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)


def _write(path: str, data: bytes, mode: int | None = None) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(data)
    if mode is not None:
        os.chmod(path, mode)
