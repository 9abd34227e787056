from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuhook.settings import decide
from gpuhook.settings.load import load_settings
from gpuhook.settings.values import Settings


class Node:
    """A folder with configuration files and one for snapshots, and how often a file was decided."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder, self.decisions = home, str(home / "run"), 0
        self.config = home / "etc" / "config.toml"
        self.config.parent.mkdir()

    def write(self, text: str | bytes, path: Path | None = None) -> Path:
        path = path or self.config
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        time.sleep(0.05)  # a file that was just written gets no snapshot
        return path

    def load(self, explicit: str | Path = "", **environ: str) -> Settings:
        variables = {name.encode(): value.encode() for name, value in environ.items()}
        return load_settings(str(explicit), variables, default=str(self.config), folder=self.folder)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made, real = Node(tmp_path), decide.decide

    def counted(data: bytes, path: str) -> Settings:
        made.decisions += 1
        return real(data, path)

    monkeypatch.setattr(decide, "decide", counted)
    return made
