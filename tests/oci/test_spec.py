"""Edits of a specification as text."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import BadBundle
from gpuhook.oci.spec import Device, add_hook, add_nodes, add_rules, append, dump, gpu_hooks

HOOK = {"path": "/usr/bin/gpuhook", "args": ["gpuhook", "prestart"], "env": ["PATH=/bin"]}
GPU = Device(path="/dev/nvidia0", major=195, minor=0, mode=0o660, uid=1, gid=44)
NODE = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 0o660, "uid": 1, "gid": 44}
RULE = {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}


def hooked(text: str) -> str:
    """The text with our hook."""
    return add_hook(text, "/usr/bin/gpuhook", ["gpuhook", "prestart"], ["PATH=/bin"])


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{}", '{"hooks":{"prestart":[H]}}'),
        ('{"a":1}', '{"a":1,"hooks":{"prestart":[H]}}'),
        ('{"hooks":null,"a":1}', '{"hooks":{"prestart":[H]},"a":1}'),
        ('{"hooks":{}}', '{"hooks":{"prestart":[H]}}'),
        ('{"hooks":{"poststop":[]}}', '{"hooks":{"poststop":[],"prestart":[H]}}'),
        ('{"hooks":{"prestart":null}}', '{"hooks":{"prestart":[H]}}'),
        ('{"hooks":{"prestart":[]},"b":2}', '{"hooks":{"prestart":[H]},"b":2}'),
        ('{"hooks":{"prestart":[1]}}', '{"hooks":{"prestart":[1,H]}}'),
        (' {\n "hooks" : {\n "prestart" : [\n 1\n ]\n }\n}\n', ' {\n "hooks" : {\n "prestart" : [\n 1,H\n ]\n }\n}\n'),
        ('{"x":{"hooks":1,"prestart":2},"hooks":{ }}', '{"x":{"hooks":1,"prestart":2},"hooks":{"prestart":[H] }}'),
        ('{"h\\u006fooks":1,"h\\u006foks":{}}', '{"h\\u006fooks":1,"h\\u006foks":{"prestart":[H]}}'),
    ],
)
def test_a_hook_is_put_at_the_end_of_its_stage(text: str, result: str) -> None:
    """Whatever is missing on the way is made, null is nothing, and not a blank elsewhere moves."""
    assert hooked(text) == result.replace("H", dump(HOOK))


@pytest.mark.parametrize(
    "part",
    [
        '"n":18446744073709551615',
        '"n":-9223372036854775808',
        '"n":1e400',
        '"n":0.10000000000000000001',
        '"n":1.0E+2',
        '"t":"日本 \\u65e5 \\/ <&> \\ud800"',
        '"z":1,"a":2,"m":3',
        '"unknown":{"deep":[{"x":null}]}',
        '  "blanks"\t:\n[ 1 , 2 ]  ',
    ],
)
def test_the_rest_stays_byte_for_byte(part: str) -> None:
    """Long numbers, spellings of texts, order, unknown fields and blanks are nobody's business (AC-79)."""
    text = f'{{{part},"hooks":{{}}}}'
    assert hooked(text) == f'{{{part},"hooks":{{"prestart":[{dump(HOOK)}]}}}}'


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OTHERS = st.dictionaries(st.text(min_size=3), TREES, max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], list[str], list[Any]]:
    """A document with a path in it that ends early, in null or in a list; and that list."""
    path = draw(st.lists(st.sampled_from(["a", "b", "", "é"]), min_size=1, max_size=3))
    depth = draw(st.integers(0, len(path)))
    there = draw(st.lists(TREES, max_size=3)) if depth == len(path) else []
    inner: Any = there or draw(st.sampled_from([None, [] if depth == len(path) else {}]))
    for key in reversed(path[:depth]):
        inner = {**draw(OTHERS), key: inner, **draw(OTHERS)}
    return (inner if depth else draw(OTHERS)), path, there


@given(documents(), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_an_edit_means_what_it_would_mean_in_a_tree(
    document: tuple[dict[str, Any], list[str], list[Any]], indent: Any, ascii_only: bool
) -> None:
    """For any document: nothing but an insertion, or a null replaced; and it reads as the tree with the value."""
    tree, path, there = document
    text = json.dumps(tree, indent=indent, ensure_ascii=ascii_only)
    new = append(text, tuple(path), [{"v": [1]}])
    same = next((n for n, (one, two) in enumerate(zip(text, new, strict=False)) if one != two), len(text))
    assert new.endswith((text[same:], text[same:].removeprefix("null")))
    wanted = copy.deepcopy(tree)
    here = wanted
    for key in path[:-1]:
        here[key] = here.get(key) or {}
        here = here[key]
    here[path[-1]] = [*there, {"v": [1]}]
    assert json.loads(new) == wanted


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/nvidia-container-runtime-hook",
        "/usr/bin/nvidia-container-toolkit",
        "/opt/x/gpuhook",
        "nvidia-container-runtime-hook",
        "/usr/bin/nvidia-container-runtime-hook/",
        "/usr/local/nvidia/toolkit/nvidia-container-runtime-hook.real",
    ],
)
@pytest.mark.parametrize("stage", ["prestart", "createRuntime"])
def test_a_gpu_hook_is_known_by_its_name(path: str, stage: str) -> None:
    """Ours and NVIDIA's, with an operator's suffix too, in both stages in which it does its work."""
    assert gpu_hooks({"hooks": {stage: [{"path": "/a"}, {"path": path}]}}) == [path]


@pytest.mark.parametrize(
    "hooks",
    [
        None,
        {},
        {"prestart": None},
        {"poststop": [{"path": "/usr/bin/gpuhook"}]},
        {"prestart": [{"path": "/bin/sh", "args": ["nvidia-container-runtime-hook"]}]},
        {"prestart": [{"path": "/usr/bin/NVIDIA-container-runtime-hook"}, {"path": 1}, "gpuhook", {}]},
        {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook-old"}]},
    ],
)
def test_other_hooks_are_none_of_ours(hooks: Any) -> None:
    """Arguments, other stages, other letters and longer names do not count."""
    assert gpu_hooks({"hooks": hooks}) == []


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"hooks": "x"}, "hooks is str 'x'; it must be an object"),
        ({"hooks": {"prestart": {}}}, "prestart is dict {}; it must be a list"),
        ({"Hooks": {}}, "the key 'Hooks' stands where 'hooks' is meant"),
        ({"hooks": {"PreStart": []}}, "the key 'PreStart' stands where 'prestart' is meant"),
    ],
)
def test_hooks_of_another_kind_are_refused(spec: dict[str, Any], says: str) -> None:
    """What runtimes would read in another way is not edited (AC-52)."""
    with pytest.raises(BadBundle, match=says.split(";")[0].replace("{", r"\{")):
        gpu_hooks(spec)


def edited(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with the GPU's node and rule."""
    text = add_rules(add_nodes(json.dumps(spec), spec, [GPU]), spec, [GPU])
    result: dict[str, Any] = json.loads(text)
    return result


@pytest.mark.parametrize(
    "linux",
    [None, {}, {"devices": None}, {"resources": None}, {"resources": {"devices": []}}, {"resources": {"memory": {}}}],
)
def test_a_device_is_a_node_and_a_rule(linux: Any) -> None:
    """As the host has it, and for reading and writing only."""
    spec = edited({"linux": linux})
    assert (spec["linux"]["devices"], spec["linux"]["resources"]["devices"]) == ([NODE], [RULE])


def test_rules_come_after_the_ones_that_deny() -> None:
    """The last rule that matches decides."""
    deny = {"allow": False, "access": "rwm"}
    assert edited({"linux": {"resources": {"devices": [deny]}}})["linux"]["resources"]["devices"] == [deny, RULE]


def test_what_the_user_has_put_there_stays() -> None:
    """A node and a mount of the same path win; a rule is not repeated."""
    theirs = {"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3}
    linux = {"devices": [theirs], "resources": {"devices": [RULE]}}
    assert edited({"linux": linux}) == {"linux": linux}
    mounted = edited({"mounts": [{"destination": "/dev/nvidia0"}]})
    assert "devices" not in mounted["linux"]
