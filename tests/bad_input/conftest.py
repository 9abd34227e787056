"""The scene of all bad inputs: a node with a driver, a waiting container, and the proof that nothing changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.init import Init, run_hook
from tests.rig.needs import need, unified_host
from tests.rig.process import Result
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import RULES, Node, make_node, state_of


@dataclass(frozen=True)
class Scene:
    """A node, a container that is being created, and its bundle, which asks for all GPUs."""

    node: Node
    init: Init
    bundle: str

    @property
    def config(self) -> str:
        """A configuration in order."""
        return self.node.config(cli=RULES)

    def state(self, **changes: Any) -> bytes:
        """The state in order but for these changes; None removes."""
        return self.init.state(**{"bundle": self.bundle, **changes})

    def hook(self, stdin: bytes | None = None, *, config: str = "", timeout: float = 20) -> Result:
        """Runs the hook: with what is in order, but for what is given."""
        argv = [self.node.launcher, "--config", config or self.config, "prestart"]
        return run_hook(argv, self.state() if stdin is None else stdin, timeout=timeout)

    def spec_hook(self, edit: Any, *, config: str = "") -> Result:
        """Runs the hook with a config.json that was changed: by a function of its value, or replaced by bytes."""
        bundle = Path(self.node.bundle(self.init.rootfs, "NVIDIA_VISIBLE_DEVICES=all"))
        file = bundle / "config.json"
        if isinstance(edit, bytes):
            file.write_bytes(edit)
        else:
            spec = json.loads(file.read_text())
            edit(spec)
            file.write_text(json.dumps(spec))
        return self.hook(self.state(bundle=str(bundle)), config=config)

    def env_hook(self, *env: str, config: str = "") -> Result:
        """Runs the hook for a container with these variables, without the one that asks for all GPUs."""
        bundle = self.node.bundle(self.init.rootfs, *env)
        return self.hook(self.state(bundle=bundle), config=config)


@pytest.fixture(scope="package")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    need()
    folder = tmp_path_factory.mktemp("bad")
    node = make_node(str(tmp_path_factory.mktemp("node")))
    rootfs = make_rootfs(str(folder / "rootfs"))
    with Init(rootfs, group=not unified_host()) as init:
        yield Scene(node, init, node.bundle(rootfs, "NVIDIA_VISIBLE_DEVICES=all"))


@pytest.fixture
def scene(waiting: Scene) -> Iterator[Scene]:
    """The scene; after the test, container and host are what they were, and no process of ours is left."""
    init, driver = waiting.init, waiting.node.driver.folder

    def now() -> tuple[object, ...]:
        rules = init.rules if init.group_path else []
        return init.mounts, rules, state_of(init.rootfs).entries, state_of(driver)

    before = now()
    yield waiting
    assert now() == before
    assert waiting.node.processes() == []


def refused(result: Result, slug: str, *says: str) -> None:
    """The one form of a refusal: a status, a line that stands on its own, where, a hint; no trace of Python."""
    lines = result.stderr.splitlines()
    assert result.status == 1, result
    assert result.stdout == ""
    assert lines[0].startswith(f"gpuhook: {slug}: "), result.stderr
    assert [line for line in lines[1:] if not line.startswith(("  in ", "  hint: "))] == []
    assert len(lines) <= 3
    assert "Traceback" not in result.stderr
    assert result.stderr.replace("\n", "").isprintable()
    assert max(len(line) for line in lines) < 700
    for text in says:
        assert text in result.stderr
