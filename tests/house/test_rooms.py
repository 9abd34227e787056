"""The plan of the house: who may import whom, and what the hot rooms may cost."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "gpuhook"
GROUND = ("", "value", "errors", "refusals", "note", "jsontext", "preload")
FLOOR = {
    **dict.fromkeys(GROUND, 0),
    "kernel": 1,
    **dict.fromkeys(("oci", "settings", "loader"), 2),
    **dict.fromkeys(("request", "driver"), 3),
    "plan": 4,
    "backend": 5,
    **dict.fromkeys(("settings.model", "settings.reader", "settings.decide"), 6),
}
# For people: they may import every room, and each other.
EDGES = ("install", "catalogue", "explain", "doctor", "ps", "completion")
ENTRY = 8  # every module without a floor of its own: hook, cli, launchers
WARM = ("settings.model", "settings.reader", "settings.decide", "settings.grammar", "settings.tokens")
WARM_ENTRIES = ("archive", "launchers", "cli", "terminal")
# Third parties, and the rooms that may know them.
THIRD_PARTIES = {
    "toml": ("settings", "install"),
    "pydantic": ("settings", "catalogue", "explain", "doctor", "ps"),
    "psutil": ("doctor", "ps"),
}
COSTLY = frozenset(
    """argparse collections contextlib dataclasses enum functools importlib inspect json logging os pathlib psutil
    pydantic re shutil subprocess toml tomllib typing""".split()  # noqa: SIM905  # a list that people read
)


def modules() -> dict[str, ast.Module]:
    """Every module of ours under its name without the package's."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found[name] = ast.parse(path.read_text(), str(path))
    return found


MODULES = modules()


def imports(tree: ast.AST, *, inside_functions: bool) -> set[str]:
    """The modules that a tree imports at run time: at its top, or everywhere."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            found |= imports(ast.Module(body=node.orelse, type_ignores=[]), inside_functions=inside_functions)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif inside_functions or not isinstance(node, ast.FunctionDef):
            found |= imports(node, inside_functions=inside_functions)
    return found


def ours(names: set[str]) -> set[str]:
    """Those of the imported names that are modules of this package."""
    inside = {name.removeprefix("gpuhook").removeprefix(".") for name in names if name.split(".")[0] == "gpuhook"}
    return {name for name in inside if name in MODULES}


def floor(module: str) -> int:
    """On which floor a module lives."""
    return FLOOR.get(module, FLOOR.get(module.partition(".")[0], ENTRY))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_rooms_import_only_downstairs(module: str) -> None:
    """A room knows itself and the rooms below it; only inside a function may a room ask its own upper floor."""
    room = module.partition(".")[0]
    others = ours(imports(MODULES[module], inside_functions=False)) - {""}
    beside = {other for other in others if other.partition(".")[0] == room or {module, other} <= set(GROUND)}
    above = {other for other in others - beside if floor(other) >= floor(module)}
    assert floor(module) == ENTRY or above == set()


def is_hot(module: str) -> bool:
    """Whether a container's start may load this module."""
    return room_of(module) not in EDGES and module not in (*WARM, *WARM_ENTRIES)


def room_of(module: str) -> str:
    """The room that a module is in."""
    return module.partition(".")[0]


@pytest.mark.parametrize("module", sorted(module for module in MODULES if is_hot(module)))
def test_hot_rooms_import_nothing_costly(module: str) -> None:
    """What a container start loads costs a millisecond or so, never a package of the warm side."""
    top = {name.split(".")[0] for name in imports(MODULES[module], inside_functions=False)}
    assert set() == top & COSTLY


@pytest.mark.parametrize("module", sorted(MODULES))
def test_only_the_kernel_and_the_driver_know_ctypes(module: str) -> None:
    """System calls are made in one room; the driver's own libraries are called in one other."""
    names = {name.split(".")[0] for name in imports(MODULES[module], inside_functions=True)}
    assert "ctypes" not in names or module.startswith(("kernel.", "driver."))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_third_parties_stay_where_they_belong(module: str) -> None:
    """config.toml's model, and the commands for people."""
    names = {name.split(".")[0] for name in imports(MODULES[module], inside_functions=True)}
    assert [] == [name for name in names & THIRD_PARTIES.keys() if room_of(module) not in THIRD_PARTIES[name]]


def test_there_are_no_import_cycles() -> None:
    """At their tops, modules import each other in one direction only."""
    edges = {name: ours(imports(tree, inside_functions=False)) - {name, ""} for name, tree in MODULES.items()}
    left = dict(edges)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    assert {} == left


@pytest.mark.parametrize("module", sorted(MODULES))
def test_files_and_functions_stay_small(module: str) -> None:
    """300 lines a file, 45 a function."""
    tree = MODULES[module]
    path = PACKAGE / Path(*module.split("."))
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    assert len(source.read_text().splitlines()) <= 300
    long = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 45
    ]
    assert [] == long


NO_PATHS_IN_THE_CONTAINER = frozenset({"exists", "isdir", "isfile", "glob", "walk", "makedirs", "realpath", "abspath"})


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.startswith("backend.")))
def test_the_engine_uses_no_call_that_looks_a_path_up_twice(module: str) -> None:
    """os.path and friends check a name and then use it again; in the engine only descriptors count."""
    called = {node.attr for node in ast.walk(MODULES[module]) if isinstance(node, ast.Attribute)}
    assert set() == called & NO_PATHS_IN_THE_CONTAINER
