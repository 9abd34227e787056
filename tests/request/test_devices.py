import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import DevicesRefused, GpuhookError, UnknownDevice
from gpuhook.request.devices import VARIABLE, choose_devices, is_cdi_name, split_words
from gpuhook.request.model import DeviceChoice
from gpuhook.settings.values import DEFAULT_CONFIG, Settings
from tests.request.make import FOLDER, bundle

STRICT = Settings(accept_envvar_when_unprivileged=False)
MOUNTS = Settings(accept_volume_mounts=True)


def by_variable(value: str) -> tuple[str, ...] | None:
    choice, warnings = choose_devices(bundle(NVIDIA_VISIBLE_DEVICES=value), Settings())

    assert () == warnings
    return choice.names if choice else None


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("all", ("all",)),
        ("none", ()),
        ("0", ("0",)),
        (" 0 ", ("0",)),
        ("2,0,1", ("2", "0", "1")),
        (",0,, 1 ,", ("0", "1")),
        ("\xa00\u2000", ("0",)),
        ("GPU-1, MIG-2", ("GPU-1", "MIG-2")),
        ("0,0", ("0",)),
        ("0,1,0", ("0", "1")),
        ("0,00", ("0", "00")),
        ("0,all", ("all",)),
        ("all,none", ("all",)),
        ("none,all", ()),
        ("0,none", ()),
        ("all,--x", ("all",)),
        ("ALL", ("ALL",)),
        ('"0"', ('"0"',)),
        ("@/evil", ("@/evil",)),
        ("%s{0.__class__}$(id)", ("%s{0.__class__}$(id)",)),
        ("0-3", ("0-3",)),
        ("0=1", ("0=1",)),
        ("nvidia.com/gpu=", ("nvidia.com/gpu=",)),
        ("显卡", ("显卡",)),
    ],
)
def test_the_variable_names_devices(value: str, names: tuple[str, ...]) -> None:
    """A list is split, trimmed and kept in order; the first of `all` and `none` decides; no word comes twice."""
    assert names == by_variable(value)


@pytest.mark.parametrize(
    "value", ["", " ", ",", " , ,", "void", "0,void", "all, void ", "void\n", "\n", "\0,void", "--x,void"]
)
def test_an_empty_list_or_void_is_no_request(value: str) -> None:
    """Such a container is left alone, whatever else the value holds."""
    assert by_variable(value) is None


def test_without_a_variable_there_is_no_request() -> None:
    """Most containers of a node ask for nothing."""
    assert (None, ()) == choose_devices(bundle(PATH="/bin", nvidia_visible_devices="all"), Settings())


@pytest.mark.parametrize(
    "value",
    ["-1", "--ldconfig=@/evil", "-l/evil", "0,--no-cgroups", "0 --ldconfig=@/evil", "0, -x"],
)
def test_a_word_that_could_be_an_option_is_refused(value: str) -> None:
    """Nothing that begins with a dash reaches a program (AC-38)."""
    with pytest.raises(UnknownDevice, match="unknown device") as caught:
        by_variable(value)

    assert caught.value.where == VARIABLE


@pytest.mark.parametrize(
    "value", ["0\n", "\t0", "0\0", "\x1b[2J0", "0,1\r\n", "0\u2028", "\u202e0", "\x1c0", "\ud8000", "all\n"]
)
def test_control_characters_are_refused(value: str) -> None:
    """They are refused wherever they stand, and shown escaped (AC-39)."""
    with pytest.raises(UnknownDevice, match="control character") as caught:
        by_variable(value)

    assert caught.value.render().replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "value", ["nvidia.com/gpu=0", "1,nvidia.com/gpu=all", "v/c=d", "vendor.example/my-class=a:b_c.0"]
)
def test_cdi_names_are_refused_with_a_hint(value: str) -> None:
    """A qualified name is for an engine that knows CDI."""
    with pytest.raises(UnknownDevice) as caught:
        by_variable(value)

    assert "--device" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "0=1",
        "a/b",
        "nvidia.com=0",
        "/c=d",
        "v/=d",
        "v/c=",
        "0v/c=d",
        "v-/c=d",
        "v/0c=d",
        "v/c_=d",
        "v/c=.d",
        "v/c=d.",
        "v/c=a=b",
        "v/c=a/b",
        "v/c=ü",
        "v/c=a b",
        "ü/c=d",
    ],
)
def test_what_is_no_cdi_name(name: str) -> None:
    """Anything else is an unknown device of the ordinary kind."""
    assert not is_cdi_name(name)


@pytest.mark.parametrize("folder", [FOLDER, f"{FOLDER}/", "/run/nvidia-container-devices"])
def test_the_folder_as_value_names_the_key_to_set(folder: str) -> None:
    """A device plugin that uses mounts writes this value: the cause is certain."""
    with pytest.raises(DevicesRefused, match="volume mounts") as caught:
        by_variable(folder)

    assert "accept-nvidia-visible-devices-as-volume-mounts = true" in caught.value.hint
    assert DEFAULT_CONFIG in caught.value.render()
    assert "unknown device" not in caught.value.render()


def test_the_folder_as_value_names_the_file_that_was_read() -> None:
    """The hint is about the configuration in force."""
    with pytest.raises(DevicesRefused) as caught:
        choose_devices(bundle("0", NVIDIA_VISIBLE_DEVICES=FOLDER), Settings(source="/x/config.toml"))

    assert "/x/config.toml" in caught.value.hint


def test_the_folder_as_value_without_a_mount_is_explained() -> None:
    """Where mounts are accepted and none is there, the plugin failed."""
    with pytest.raises(DevicesRefused, match="none below that folder"):
        choose_devices(bundle(NVIDIA_VISIBLE_DEVICES=FOLDER), MOUNTS)


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ({"CUDA_VERSION": "9.0.176"}, ("all",)),
        ({"CUDA_VERSION": "junk", "NVIDIA_REQUIRE_CUDA": ""}, ("all",)),
        ({"CUDA_VERSION": "9.0", "NVIDIA_VISIBLE_DEVICES": "1"}, ("1",)),
        ({"CUDA_VERSION": "9.0", "NVIDIA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VERSION": "9.0", "NVIDIA_VISIBLE_DEVICES": "void"}, None),
        ({"CUDA_VERSION": "", "OTHER": "x"}, None),
        ({"CUDA_VERSION": "12.4.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}, None),
    ],
)
def test_an_old_image_means_all(env: dict[str, str], names: tuple[str, ...] | None) -> None:
    """An image with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA is older than the variable."""
    choice, _ = choose_devices(bundle(**env), Settings())

    assert names == (choice.names if choice else None)


def test_the_source_of_an_old_image_is_its_version() -> None:
    """Messages can say why a container gets all GPUs."""
    choice, _ = choose_devices(bundle(CUDA_VERSION="9.0"), Settings())

    assert DeviceChoice(names=("all",), sources=("CUDA_VERSION",)) == choice


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ({"A": "0", "NVIDIA_VISIBLE_DEVICES": "2"}, ("0",)),
        ({"A": "0", "B": "1,0"}, ("0", "1")),
        ({"B": "1"}, ("1",)),
        ({"A": "", "NVIDIA_VISIBLE_DEVICES": "2"}, None),
        ({"A": "0", "B": "void"}, None),
        ({"A": "0", "B": "none"}, ()),
        ({"NVIDIA_VISIBLE_DEVICES": "2"}, ("2",)),
        ({"CUDA_VERSION": "9.0"}, ("all",)),
        ({"CUDA_VERSION": "9.0", "A": ""}, None),
    ],
)
def test_swarm_resources_come_before_the_variable(env: dict[str, str], names: tuple[str, ...] | None) -> None:
    """Those that are present count together, in the configured order."""
    choice, _ = choose_devices(bundle(**env), Settings(swarm_resource=("A", "B", "A")))

    assert names == (choice.names if choice else None)


@pytest.mark.parametrize(
    "env",
    [
        {"NVIDIA_VISIBLE_DEVICES": "all"},
        {"NVIDIA_VISIBLE_DEVICES": "none"},
        {"NVIDIA_VISIBLE_DEVICES": "--x\n"},
        {"NVIDIA_VISIBLE_DEVICES": FOLDER},
        {"CUDA_VERSION": "9.0"},
        {"SWARM": "0"},
    ],
)
def test_a_strict_node_ignores_variables_with_a_warning(env: dict[str, str]) -> None:
    """An unprivileged container starts without a GPU, and the log says why (AC-46)."""
    choice, warnings = choose_devices(bundle(**env), STRICT.with_(swarm_resource=("SWARM",)))

    assert choice is None
    [(slug, text)] = warnings
    assert slug == "strict-mode-mismatch"
    assert next(iter(env)) in text
    assert "accept-nvidia-visible-devices-envvar-when-unprivileged" in text


def test_a_strict_node_obeys_a_privileged_container() -> None:
    """Privileged containers may ask by variable."""
    choice, warnings = choose_devices(bundle(NVIDIA_VISIBLE_DEVICES="0").with_(privileged=True), STRICT)

    assert (DeviceChoice(names=("0",), sources=(VARIABLE,)), ()) == (choice, warnings)


@pytest.mark.parametrize("value", ["", "void"])
def test_a_strict_node_says_nothing_without_a_request(value: str) -> None:
    """A warning is for somebody who expected a GPU."""
    assert (None, ()) == choose_devices(bundle(NVIDIA_VISIBLE_DEVICES=value), STRICT)


words = st.lists(
    st.sampled_from(["all", "none", "void", "0", "1", " 0 ", "", "-x", "a/b=c", "\n", FOLDER]) | st.text(max_size=6)
).map(",".join)


@given(words)
def test_any_value_gives_a_choice_or_a_reason(value: str) -> None:
    """No value crashes; what is chosen has no repetition, no comma, no dash in front, no blank around."""
    with contextlib.suppress(GpuhookError):
        names = by_variable(value) or ()

        assert len(set(names)) == len(names)
        assert not any("," in name or name.startswith("-") or not name or name != name.strip(" ") for name in names)


@given(words)
def test_a_container_that_asks_for_nothing_never_fails(value: str) -> None:
    """`void` anywhere, or a strict node, and no value can do harm."""
    assert by_variable(f"{value},void") is None
    assert choose_devices(bundle(NVIDIA_VISIBLE_DEVICES=value), STRICT)[0] is None


@given(st.text())
def test_split_words_trims_what_go_trims(value: str) -> None:
    """A word holds no comma and no blank at its ends."""
    assert all(word and "," not in word and word == word.strip(" \t\r\n\xa0\u2028") for word in split_words(value))
