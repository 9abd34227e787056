import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import BadBundle
from gpuhook.oci.bundle import Bundle, Mount, clean, parse_bundle, read_bundle

Spec = dict[str, object]


def spec(**changes: object) -> Spec:
    return {"ociVersion": "1.0.2", "process": {}, "root": {"path": "rootfs"}, **changes}


def process(**fields: object) -> Spec:
    return spec(process=fields)


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "config.json"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_bundle_is_read_from_its_file(tmp_path: Path) -> None:
    """The parts that the hook needs, with unknown fields skipped."""
    mounts = [{"destination": "/proc", "source": "proc", "type": "proc", "options": ["ro"]}]
    write(
        tmp_path, json.dumps({**process(env=["A=1", "B=x=y"], user={"uid": 0}), "mounts": mounts, "linux": {"x": 1}})
    )

    assert Bundle(
        path=str(tmp_path),
        env={"A": "1", "B": "x=y"},
        mounts=(Mount(destination="/proc", source="proc", index=0),),
        root_path="rootfs",
    ) == read_bundle(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("{", "Expecting"),
        ("null", "missing"),
        ("[]", "list"),
        ('{"a": 1, "a": 1}', "twice"),
        ("{} {}", "follows"),
    ],
)
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """The message says what is wrong with the file and where it is."""
    file = write(tmp_path, text)

    with pytest.raises(BadBundle, match=reason) as caught:
        read_bundle(str(tmp_path))

    assert str(file) in caught.value.where


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Whoever can write config.json decides what root does (AC-55)."""
    write(tmp_path, json.dumps(spec()), mode)

    with pytest.raises(BadBundle, match="others can write"):
        read_bundle(str(tmp_path))


def test_a_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """config.json is opened without following a link (AC-55)."""
    (tmp_path / "real").write_text(json.dumps(spec()))
    (tmp_path / "config.json").symlink_to("real")

    with pytest.raises(BadBundle, match="cannot read"):
        read_bundle(str(tmp_path))


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    """A FIFO without a writer is refused at once (AC-55)."""
    os.mkfifo(tmp_path / "config.json")

    with pytest.raises(BadBundle, match="FIFO"):
        read_bundle(str(tmp_path))


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """A huge config.json is not read as a whole (AC-49)."""
    file = write(tmp_path, "")
    os.truncate(file, 500 << 20)

    with pytest.raises(BadBundle, match="larger than"):
        read_bundle(str(tmp_path))


def test_a_missing_bundle_is_explained(tmp_path: Path) -> None:
    """The path that was looked at is named."""
    with pytest.raises(BadBundle, match="No such file") as caught:
        read_bundle(f"{tmp_path}/gone")

    assert f"{tmp_path}/gone/config.json" == caught.value.where


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({"process": {}, "root": {}}, "ociVersion"),
        (spec(ociVersion=1), "ociVersion"),
        (spec(process=None), "process"),
        (spec(process=[]), "process"),
        (spec(root=None), "root"),
        (spec(root="x"), "root"),
        (spec(root={"path": 5}), "root.path"),
        (process(env="A=1"), "process.env"),
        (process(env=["A=1", 5]), "process.env[1]"),
        (process(env=[{}]), "process.env[0]"),
        (spec(mounts={}), "mounts"),
        (spec(mounts=["x"]), "mounts[0]"),
        (spec(mounts=[{}, {"source": []}]), "mounts[1].source"),
        (spec(mounts=[{"destination": 5}]), "mounts[0].destination"),
        (spec(mounts=[{"type": 5}]), "mounts[0].type"),
        (spec(mounts=[{"options": "ro"}]), "mounts[0].options"),
        (spec(mounts=[{"options": [1]}]), "mounts[0].options[0]"),
        (spec(mounts=[{"uidMappings": {}}]), "mounts[0].uidMappings"),
        (spec(mounts=[{"gidMappings": [{"size": -1}]}]), "mounts[0].gidMappings.size"),
        (spec(mounts=[{"gidMappings": [{"hostID": True}]}]), "mounts[0].gidMappings.hostID"),
        (process(capabilities=["CAP_SYS_ADMIN"]), "process.capabilities"),
        (process(capabilities={"bounding": "CAP_SYS_ADMIN"}), "process.capabilities.bounding"),
        (process(capabilities={"ambient": [1]}), "process.capabilities.ambient[0]"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(value: Spec, key: str) -> None:
    """The key at fault stands in the message, with its index in a list."""
    with pytest.raises(BadBundle) as caught:
        parse_bundle("/b", value)

    assert caught.value.text.startswith(f"{key} is ")
    assert caught.value.where == f"/b/config.json: {key}"


@pytest.mark.parametrize(
    "value",
    [
        {**spec(), "Process": {}},
        {**spec(), "ROOT": {}},
        {**spec(), "ociversion": "1.0.2"},
        {**spec(), "OCIVERSION": "1.0.2"},
        {**spec(), "Mounts": []},
        process(Env=["A=1"]),
        process(capabilities={"Bounding": []}),
        spec(mounts=[{"Source": "/dev/null"}]),
        spec(root={"Path": "/"}),
    ],
)
def test_a_key_in_another_case_is_refused(value: Spec) -> None:
    """A runtime in Go reads `Env` as `env`: two readers would see two containers."""
    with pytest.raises(BadBundle):
        parse_bundle("/b", value)


@pytest.mark.parametrize("value", [spec(), process(env=None, capabilities=None), spec(mounts=None), spec(mounts=[])])
def test_what_is_absent_is_empty(value: Spec) -> None:
    """A container without variables, mounts or capabilities is an ordinary one."""
    assert Bundle(path="/b", env={}, mounts=(), root_path="rootfs") == parse_bundle("/b", value)


def test_null_in_a_list_is_the_empty_value() -> None:
    """Runtimes in Go read null as nothing."""
    bundle = parse_bundle("/b", {**process(env=["A=1", None]), "mounts": [None, {"destination": None}]})

    assert {"A": "1"} == bundle.env
    assert ("",) == bundle.ignored
    assert [("", ""), ("", "")] == [(mount.source, mount.destination) for mount in bundle.mounts]


def test_of_a_variable_given_twice_the_last_counts() -> None:
    """The runtime takes the last one, so do we (AC-47)."""
    assert {"A": "2", "B": ""} == parse_bundle("/b", process(env=["A=1", "B=", "A=2"])).env


def test_entries_that_are_no_variables_are_set_aside() -> None:
    """They are ignored, and known for a note (AC-47)."""
    bundle = parse_bundle("/b", process(env=["FOO", "", "=x", "A=1"]))

    assert {"A": "1"} == bundle.env
    assert ("FOO", "", "=x") == bundle.ignored


@pytest.mark.parametrize(
    ("capabilities", "privileged"),
    [
        (None, False),
        ({}, False),
        ({"bounding": ["CAP_CHOWN", "CAP_SYS_ADMIN"]}, True),
        ({"bounding": [None, "CAP_SYS_ADMIN"]}, True),
        ({"bounding": ["cap_sys_admin", "SYS_ADMIN", " CAP_SYS_ADMIN", "ALL"]}, False),
        ({"effective": ["CAP_SYS_ADMIN"], "permitted": ["CAP_SYS_ADMIN"], "ambient": ["CAP_SYS_ADMIN"]}, False),
    ],
)
def test_privileged_means_sys_admin_in_the_bounding_set(capabilities: object, privileged: bool) -> None:
    """No other set and no other spelling makes a container privileged (AC-45)."""
    assert privileged is parse_bundle("/b", process(capabilities=capabilities)).privileged


def test_old_versions_have_one_list_of_capabilities() -> None:
    """From 1.0.0-rc1 to rc4 capabilities were a list."""
    old = {**process(capabilities=["CAP_SYS_ADMIN"]), "ociVersion": "1.0.0-rc3"}

    assert parse_bundle("/b", old).privileged
    with pytest.raises(BadBundle, match="a list"):
        parse_bundle("/b", {**process(capabilities={"bounding": []}), "ociVersion": "1.0.0-rc3"})


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/", "/"), ("//a/./b//", "/a/b"), ("/a/../b", "/b"), ("/../../a", "/a"), ("/a/b/../..", "/"), ("/...", "/...")],
)
def test_clean_is_lexical(path: str, expected: str) -> None:
    """Dots and doubled slashes go; the root has no parent."""
    assert expected == clean(path)


@pytest.mark.parametrize(
    ("root", "expected"),
    [("rootfs", "/b/rootfs"), ("./rootfs/../x", "/b/x"), ("/r/", "/r"), ("../c", "/c"), ("a b", "/b/a b")],
)
def test_the_rootfs_is_relative_to_the_bundle(root: str, expected: str) -> None:
    """The working directory plays no part (AC-56)."""
    assert expected == Bundle(path="/b", env={}, mounts=(), root_path=root).rootfs()


@pytest.mark.parametrize("root", ["", "/", "//", "..", "../../..", "/./", "a\0b", "a\nb", "\ud800", "\u202ea"])
def test_a_rootfs_that_is_none_or_the_host_is_refused(root: str) -> None:
    """The host's root is refused in every spelling (AC-56)."""
    with pytest.raises(BadBundle, match="root filesystem"):
        Bundle(path="/b", env={}, mounts=(), root_path=root).rootfs()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["env", "path", "source", "bounding", "Env"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"ociVersion": st.sampled_from(["1.0.2", "1.0.0-rc3"]), "process": values, "root": values, "mounts": values}
    )
)
def test_no_value_raises_anything_but_bad_bundle(value: Spec) -> None:
    """Whatever config.json says, there is a bundle or a reason."""
    with contextlib.suppress(BadBundle):
        bundle = parse_bundle("/b", value)

        assert all(isinstance(value, str) for value in bundle.env.values())
