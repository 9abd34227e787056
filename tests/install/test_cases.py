"""The installer's cases: what users ran into, and the right outcome (fixtures/install)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuhook.install.tomledit import Toml, at
from tests.install.conftest import FIXTURES, HOOK, SHIM, Machine, case_machine

CASES = sorted(path.parent.name for path in FIXTURES.glob("*/case.json"))
KNOWN = {
    "exit", "files", "keeps_text", "keeps_order", "backup", "idempotent", "mentions_restart", "reference", "says",
    "unchanged", "effective", "text_not",
}  # fmt: skip


def runs() -> list[Any]:
    """Every run of every case, with its name."""
    cases = [(name, json.loads((FIXTURES / name / "case.json").read_text())) for name in CASES]
    return [
        pytest.param(name, {**case["given"]["install"], **run.get("change", {}).get("install", {})}, run["expect"],
                     id=f"{name}: {run['name']}")
        for name, case in cases for run in case["runs"]
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "install", "expect"), runs())
def test_a_case(machine: Machine, name: str, install: dict[str, Any], expect: dict[str, Any]) -> None:
    """The outcome is the one that is right for the user."""
    assert set(expect) <= KNOWN
    case_machine(machine, name)
    before = {path: (machine.root / path).read_bytes() for path in expect.get("unchanged", [])}
    status = machine("install", install["engine"], *(["--set-as-default"] if install.get("default") else []))
    output = machine.out + machine.err
    assert bool(status) == (expect["exit"] == "nonzero"), output
    assert before == {path: (machine.root / path).read_bytes() for path in before}
    says(output, expect)
    files(machine, name, expect)
    backups(machine, name, expect)
    if expect.get("idempotent"):
        idempotent(machine, install)


def says(output: str, expect: dict[str, Any]) -> None:
    """What the user is told."""
    assert expect.get("mentions_restart", "") in output
    assert expect.get("reference", "") in output
    for text in expect.get("says", []):
        texts = text if isinstance(text, list) else [text]
        assert any(one.lower() in output.lower() for one in texts), text


def files(machine: Machine, name: str, expect: dict[str, Any]) -> None:
    """What is in the files."""
    for path, right in expect.get("files", {}).items():
        wanted = (FIXTURES / name / right["equals"]).read_text().replace("@SHIM@", SHIM).replace("@HOOK@", HOOK)
        read = json.loads if right["as"] == "json" else lambda text: Toml(text).table
        assert read(wanted) == read(machine.text(path))
    for path, texts in expect.get("keeps_text", {}).items():
        assert [] == [text for text in texts if text not in machine.text(path)]
    for path, keys in expect.get("keeps_order", {}).items():
        assert keys == [key for key in json.loads(machine.text(path)) if key in keys]
    toml = Toml("\n".join(path.read_text() for path in machine.root.rglob("config.toml")))
    for path, value in expect.get("effective", []):
        assert value == at(toml.table, tuple(path)) or (value == "@SHIM@" and at(toml.table, tuple(path)) == SHIM)
    for text in expect.get("text_not", []):
        assert not any(text in path.read_text() for path in machine.root.rglob("*.toml"))


def backups(machine: Machine, name: str, expect: dict[str, Any]) -> None:
    """The old file is beside the new one."""
    for path in expect.get("backup", []):
        kept = list(machine.path(path).parent.glob(f"{machine.path(path).name}.*"))
        assert [(FIXTURES / name / "before" / path).read_bytes()] == [file.read_bytes() for file in kept]


def idempotent(machine: Machine, install: dict[str, Any]) -> None:
    """A second run changes nothing and says so."""
    before = machine.tree()
    assert machine("install", install["engine"], *(["--set-as-default"] if install.get("default") else [])) == 0
    assert "nothing changed" in machine.out
    assert before == machine.tree()


@pytest.mark.parametrize("name", [name for name in CASES if name != "daemon-json-two-documents"])
@pytest.mark.parametrize("options", [(), ("--set-as-default", "--replace-nvidia")])
def test_uninstall_leaves_every_byte_as_it_was(machine: Machine, name: str, options: tuple[str, ...]) -> None:
    """Contents, modes, owners and times of all files, and no folder more than before."""
    case_machine(machine, name)
    before = machine.tree()
    engine = "docker" if name.startswith("daemon") else "containerd"
    assert machine("install", engine) == 0
    assert machine("install", engine, *options) == 0
    assert before != machine.tree()
    assert machine("uninstall", engine) == 0
    assert before == machine.tree()
