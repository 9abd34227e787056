"""containerd's file in every form that TOML has for the same thing: changed in that form, and taken back."""

from __future__ import annotations

import pytest

from gpuhook.install.tomledit import Toml, at
from gpuhook.install.tomllist import with_item, without_item
from tests.install.conftest import SHIM, Machine

FILE = "/etc/containerd/config.toml"
CRI = 'plugins."io.containerd.grpc.v1.cri"'
V2 = ("plugins", "io.containerd.grpc.v1.cri", "containerd")
NVIDIA = f"{CRI}.containerd.runtimes.nvidia"
FORMS = {
    "headers with tabs": f'version = 2\n\t[{CRI}.containerd.runtimes.runc]\n\t\truntime_type = "t"\n',
    "inline runtimes": f'version = 2\n[{CRI}.containerd]\nruntimes = {{ runc = {{ runtime_type = "t" }} }} # all\n',
    "all inline": f'version = 2\n{CRI} = {{ containerd = {{ runtimes = {{ runc = {{ runtime_type = "t" }} }} }} }}\n',
    "dotted keys": (
        f'version = 2\n[{CRI}]\ncontainerd.snapshotter = "s"\ncontainerd.runtimes.runc.runtime_type = "t"\n'
    ),
    "dotted root": f'version = 2\n{CRI}.containerd.runtimes.runc.runtime_type = "t"\n[debug]\nlevel = "info"\n',
    "literal quotes": (
        "'version' = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.'runc']\nruntime_type = 't'\n"
    ),
    "arrays of tables": (
        f'version = 2\n[[x.y]]\na = 1\n[[x.y]]\na = 2\n[{CRI}.containerd.runtimes.runc]\nruntime_type = "t"\n'
    ),
    "windows": f'version = 2\r\n[{CRI}.containerd.runtimes.runc]\r\nruntime_type = "t"\r\n',
    "no line end": f'version = 2\n[{CRI}.containerd.runtimes.runc]\nruntime_type = "t"',
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("edited", [False, True], ids=["untouched", "edited since"])
def test_a_form_is_kept(machine: Machine, text: str, edited: bool) -> None:
    """The runtime and the default are in it, every other key and comment stays; an undo leaves what was there."""
    machine.put({FILE: text})
    before, meant = machine.tree(), Toml(text).table
    assert machine("install", "containerd", "--set-as-default") == 0, machine.err
    table = Toml(machine.path(FILE).read_bytes().decode()).table
    assert at(table, (*V2, "runtimes", "nvidia")) == {"runtime_type": "t", "options": {"BinaryName": SHIM}}
    assert at(table, (*V2, "default_runtime_name")) == "nvidia"
    assert at(table, (*V2, "snapshotter")) == at(meant, (*V2, "snapshotter"))
    assert ("# all" in text) == ("# all" in machine.text(FILE))
    if edited:
        machine.put({FILE: machine.path(FILE).read_bytes().decode() + "# mine\n"})
    assert machine("uninstall") == 0
    if edited:
        assert Toml(machine.path(FILE).read_bytes().decode()).table == meant
        assert machine.text(FILE).endswith("# mine\n")
    else:
        assert before == machine.tree()


@pytest.mark.parametrize(
    "text",
    [
        f'version = 2\n[{CRI}.containerd.runtimes.nvidia]\noptions = {{ IoUid = 7, BinaryName = "/usr/bin/n" }}\n',
        f'version = 2\n[{CRI}.containerd]\nruntimes.nvidia.options = {{ IoUid = 7, BinaryName = "/usr/bin/n" }}\n',
        f'version = 2\n{NVIDIA}.options.BinaryName = "/usr/bin/n" # old\n{NVIDIA}.options.IoUid = 7\n',
    ],
)
def test_an_entry_of_nvidias_in_any_form(machine: Machine, text: str) -> None:
    """Its program is ours, what it has stays, and an undo in the edited file restores its program."""
    machine.put({FILE: text})
    assert machine("install", "containerd") == 0, machine.err
    options = at(Toml(machine.text(FILE)).table, (*V2, "runtimes", "nvidia", "options"))
    assert options == {**Toml("IoUid = 7").table, "BinaryName": SHIM}
    machine.put({FILE: machine.text(FILE) + "\n# mine\n"})
    assert machine("uninstall") == 0
    assert at(Toml(machine.text(FILE)).table, (*V2, "runtimes", "nvidia", "options", "BinaryName")) == "/usr/bin/n"


def test_lines_of_both_kinds_keep_their_ends(machine: Machine) -> None:
    """Somebody's editor has left a mixture; only our lines are new."""
    text = 'version = 2\r\n# unix\n[debug]\nlevel = "info"\r\n'
    machine.put({FILE: text})
    assert machine("install", "containerd") == 0
    after = machine.path(FILE).read_bytes().decode()
    assert after.startswith(text)
    assert after[len(text) :].count("\n") == after[len(text) :].count("\r\n")
    assert machine("install", "containerd") == 0
    assert "nothing changed" in machine.out


@pytest.mark.parametrize("value", ['"x.toml"', "5", '["a", 5]'])
def test_imports_that_are_none_are_refused(machine: Machine, value: str) -> None:
    """With one of these containerd would not start with it."""
    machine.put({FILE: f"version = 2\nimports = {value}\n"})
    before = machine.tree()
    assert machine("install", "containerd") == 1
    assert f"in {FILE}:2" in machine.err
    assert before == machine.tree()


def test_imports_of_imports_are_read(machine: Machine) -> None:
    """As containerd follows them: each from its own file's folder."""
    machine.put(
        {
            FILE: 'version = 2\nimports = ["sub/a.toml"]\n',
            "/etc/containerd/sub/a.toml": 'version = 2\nimports = ["b.toml", "/etc/containerd/config.toml"]\n',
            "/etc/containerd/sub/b.toml": f'version = 2\n[{NVIDIA}]\noptions.BinaryName = "n"\n',
        }
    )
    assert machine("install", "containerd") == 0
    assert SHIM in machine.text("/etc/containerd/sub/b.toml")
    assert machine.text(FILE) == 'version = 2\nimports = ["sub/a.toml"]\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("imports = []\n", 'imports = ["n"]\n'),
        ('imports = ["a"]\n', 'imports = ["a", "n"]\n'),
        ('imports = ["a",] # why\n', 'imports = ["a", "n"] # why\n'),
        ('imports = [ "a" ]\n', 'imports = [ "a", "n" ]\n'),
        (
            'imports = [\n  # site\n  "a", # first\n  "b" # ] last\n]\n',
            'imports = [\n  # site\n  "a", # first\n  "b",\n  "n" # ] last\n]\n',
        ),
        ('imports = [\n\t"a",\n]\n', 'imports = [\n\t"a",\n\t"n",\n]\n'),
        ('imports = ["a",\n  "b"]\n', 'imports = ["a",\n  "b",\n  "n"]\n'),
    ],
)
def test_one_element_comes_and_goes(before: str, after: str) -> None:
    """In the style of the others, and with every comment."""
    assert with_item(Toml(before), "imports", "n") == after
    left = without_item(Toml(after), "imports", "n")
    assert left is not None
    assert Toml(left).table == Toml(before).table
    assert [part for part in before.split() if part.startswith("#")] == [
        part for part in left.split() if part.startswith("#")
    ]


@pytest.mark.parametrize("text", ["x = 1\n", "imports = 1\n", "imports = [1]\n"])
def test_what_is_no_list_of_texts_is_not_touched(text: str) -> None:
    """The caller decides then."""
    assert with_item(Toml(text), "imports", "n") is None
    assert without_item(Toml(text), "imports", "n") is None
