"""A place to try `gpuhook-runtime` in: launchers, configuration, bundle, and a low-level runtime that records."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from gpuhook.archive import archive_path
from gpuhook.launchers import package_folders, text_for
from gpuhook.runtime_launcher import runtime_text
from tests.rig.process import PATH, Result, run

RECORDER = """\
#!/bin/sh
printf '%s\\0' "$0" "$@" > '{folder}/argv'
/bin/cat /proc/$$/environ > '{folder}/environ'
/bin/cat {folder}/answer 2>/dev/null
exit {status}
"""
SPEC = {
    "ociVersion": "1.0.2",
    "process": {"user": {"uid": 0, "gid": 0}, "args": ["sh"], "env": ["PATH=/usr/bin"], "cwd": "/"},
    "root": {"path": "rootfs"},
    "linux": {"resources": {"devices": [{"allow": False, "access": "rwm"}]}},
}
_numbers = count()


def write_program(path: Path, text: str) -> str:
    """An executable file of this text; returns its path."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def write_launchers(folder: Path, config: str = "/etc/nvidia-container-runtime/config.toml", kept: str = "") -> str:
    """The launchers of the hook and of the shim in this folder; returns the shim's path."""
    places = os.path.realpath(sys.executable), package_folders(), archive_path()
    write_program(folder / "gpuhook", text_for("gpuhook"))
    text = runtime_text(*places, config=config, folder=kept or "/run/gpuhook")
    return write_program(folder / "gpuhook-runtime", text)


@dataclass
class Stand:
    """folder: of everything; root: of a driver, "" for the host's own."""

    folder: Path
    root: str = ""
    shim: str = field(init=False)
    runc: str = field(init=False)

    def __post_init__(self) -> None:
        self.shim = write_launchers(self.folder)
        self.runc = self.runtime("runc")

    def runtime(self, name: str, status: int = 0) -> str:
        """A low-level runtime that records how it was called and ends with this status."""
        return write_program(self.folder / name, RECORDER.format(folder=self.folder, status=status))

    def config(self, text: str = "", *, runtimes: object = None, mode: str = "auto", debug: str = "") -> str:
        """The path of a config.toml: this text, then the usual keys."""
        lines = [
            text,
            "[nvidia-container-cli]",
            f'root = "{self.root}"',
            "[nvidia-container-runtime]",
            f"runtimes = {json.dumps([self.runc] if runtimes is None else runtimes)}",
            f'mode = "{mode}"',
            f'debug = "{debug}"',
        ]
        return self.write(f"config-{next(_numbers)}.toml", "\n".join(lines))

    def write(self, name: str, text: str) -> str:
        """A file of this text; returns its path."""
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def bundle(self, *env: str, **changes: Any) -> Path:
        """A bundle whose container has this environment; changes: of the specification's top level."""
        folder = self.folder / f"bundle-{next(_numbers)}"
        (folder / "rootfs").mkdir(parents=True)
        spec = json.loads(json.dumps({**SPEC, **changes}))
        spec["process"]["env"] += env
        (folder / "config.json").write_text(json.dumps(spec))
        return folder

    def run(self, *args: object, config: str = "", env: Mapping[str, str] | None = None, cwd: str = "/") -> Result:
        """Run the shim, under this configuration or one that names the recorder."""
        chosen = {"PATH": PATH, "NVIDIA_CTK_CONFIG_FILE_PATH": config or self.config()}
        self.forget()
        return run([self.shim, *map(str, args)], env={**chosen, **(env or {})}, cwd=cwd)

    def create(self, bundle: Path, *options: str, config: str = "", env: Mapping[str, str] | None = None) -> Result:
        """Run `create` for this bundle."""
        return self.run(*options, "create", "--bundle", bundle, "c1", config=config, env=env)

    def forget(self) -> None:
        """Forget what the low-level runtime recorded."""
        for name in ("argv", "environ"):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def argv(self) -> list[str] | None:
        """How the low-level runtime was called; None where it was not."""
        try:
            data = (self.folder / "argv").read_bytes()
        except FileNotFoundError:
            return None
        return [os.fsdecode(word) for word in data.split(b"\0")[:-1]]

    @property
    def environ(self) -> dict[str, str]:
        """The low-level runtime's environment."""
        entries = (self.folder / "environ").read_bytes().split(b"\0")[:-1]
        return dict(os.fsdecode(entry).split("=", 1) for entry in entries)


def spec_of(bundle: Path) -> dict[str, Any]:
    """The specification in a bundle."""
    spec: dict[str, Any] = json.loads((bundle / "config.json").read_bytes())
    return spec


def hooks_of(bundle: Path, stage: str = "prestart") -> list[dict[str, Any]]:
    """The specification's hooks of a stage."""
    return list((spec_of(bundle).get("hooks") or {}).get(stage) or [])
