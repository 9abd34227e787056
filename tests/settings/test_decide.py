from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import ConfigBroken
from gpuhook.settings.decide import KEYS, decide, known_keys, tables_of
from gpuhook.settings.model import ConfigFile
from gpuhook.settings.values import CAPABILITIES, Settings

FEATURES = [name for name in KEYS if KEYS[name].startswith("features.")]
RUNTIME = "nvidia-container-runtime"
LEGACY = f"{RUNTIME}.modes.legacy"
CLI = "nvidia-container-cli"


def line(key: str, value: str) -> bytes:
    """A file of one line that sets a dotted key."""
    return f"{key} = {value}\n".encode()


def refusal(data: bytes) -> ConfigBroken:
    with pytest.raises(ConfigBroken) as broken:
        decide(data, "/etc/c.toml")
    return broken.value


def test_an_empty_file_decides_the_defaults() -> None:
    """The defaults of the schema and of Settings are the same."""
    assert Settings(source="/c") == decide(b"", "/c")


def test_every_key_has_one_setting() -> None:
    """No key of the file is without effect, and no setting without a key."""
    leaves = {key for key in known_keys() if not any(other[: len(key)] == key != other for other in known_keys())}

    assert leaves == {tuple(key.split(".")) for key in KEYS.values()}
    assert {*KEYS, "source", "warnings"} == set(Settings.fields())


@pytest.mark.parametrize(
    ("key", "value", "setting", "decided"),
    [
        ("disable-require", "true", "disable_require", True),
        ("swarm-resource", '" A , B,,"', "swarm_resource", ("A", "B")),
        ("swarm-resource", '","', "swarm_resource", ()),
        (KEYS["accept_envvar_when_unprivileged"], "false", "accept_envvar_when_unprivileged", False),
        (KEYS["accept_volume_mounts"], "true", "accept_volume_mounts", True),
        (f"{CLI}.root", '"/run/nvidia/driver"', "cli_root", "/run/nvidia/driver"),
        (f"{CLI}.path", '"/usr/bin/nvidia-container-cli"', "cli_path", "/usr/bin/nvidia-container-cli"),
        (f"{CLI}.path", '""', "cli_path", ""),
        (f"{CLI}.environment", '["A=1", "B=", "C=x=y"]', "cli_environment", ("A=1", "B=", "C=x=y")),
        (f"{CLI}.debug", '"/d.log"', "cli_debug", "/d.log"),
        (f"{CLI}.ldcache", '"/c"', "cli_ldcache", "/c"),
        (f"{CLI}.load-kmods", "false", "load_kmods", False),
        (f"{CLI}.no-pivot", "true", "no_pivot", True),
        (f"{CLI}.no-cgroups", "true", "no_cgroups", True),
        (f"{CLI}.no-cgroups", "false", "no_cgroups", False),
        (f"{CLI}.user", '"root:video"', "cli_user", "root:video"),
        (f"{CLI}.ldconfig", '"@/opt/ldconfig"', "ldconfig", "@/opt/ldconfig"),
        (f"{RUNTIME}.debug", '"/x"', "runtime_debug", "/x"),
        (f"{RUNTIME}.log-level", '"WARNING"', "runtime_log_level", "warning"),
        (f"{RUNTIME}.runtimes", '["/opt/runc"]', "runtimes", ("/opt/runc",)),
        (f"{RUNTIME}.mode", '"jit-cdi"', "mode", "jit-cdi"),
        (f"{RUNTIME}.modes.csv.mount-spec-path", '"/x"', "csv_mount_spec_path", "/x"),
        (f"{RUNTIME}.modes.csv.compat-container-root", '"/x"', "csv_compat_container_root", "/x"),
        (f"{RUNTIME}.modes.cdi.spec-dirs", '["/x"]', "cdi_spec_dirs", ("/x",)),
        (f"{RUNTIME}.modes.cdi.default-kind", '"a.b/c"', "cdi_default_kind", "a.b/c"),
        (f"{RUNTIME}.modes.cdi.annotation-prefixes", "[]", "cdi_annotation_prefixes", ()),
        (f"{RUNTIME}.modes.jit-cdi.nvcdi-feature-flags", '["x"]', "jit_cdi_nvcdi_feature_flags", ("x",)),
        (f"{RUNTIME}.modes.jit-cdi.nvcdi-disable-hooks", '["x"]', "jit_cdi_nvcdi_disable_hooks", ("x",)),
        (f"{LEGACY}.cuda-compat-mode", '"hook"', "cuda_compat_mode", "hook"),
        ("nvidia-container-runtime-hook.path", '"/h"', "hook_path", "/h"),
        ("nvidia-container-runtime-hook.skip-mode-detection", "true", "skip_mode_detection", True),
        ("nvidia-ctk.path", '"/t"', "ctk_path", "/t"),
        *((KEYS[name], "true", name, True) for name in FEATURES),
        ("gpuhook.backend", '"embedded"', "backend", "embedded"),
        ("gpuhook.write-into-volumes", "true", "write_into_volumes", True),
        ("gpuhook.failure-log", '"/var/log/gpuhook.log"', "failure_log", "/var/log/gpuhook.log"),
    ],
)
def test_each_key_decides_its_setting(key: str, value: str, setting: str, decided: object) -> None:
    """One line in the file changes one setting, and says nothing."""
    assert Settings(source="/c").with_(**{setting: decided}) == decide(line(key, value), "/c")


@pytest.mark.parametrize(
    ("value", "supported"),
    [
        ("all", CAPABILITIES),
        ("", ()),
        (" , ", ()),
        ("video, compute ,", ("compute", "video")),
        ("utility,utility", ("utility",)),
    ],
)
def test_supported_capabilities_are_a_set(value: str, supported: tuple[str, ...]) -> None:
    """Elements are trimmed, put in order and kept once; `all` alone means every one (hook.md 2.2)."""
    assert supported == decide(line("supported-driver-capabilities", f'"{value}"'), "/c").supported_driver_capabilities


@pytest.mark.parametrize(
    ("value", "element", "near"),
    [
        ("compute,Video", "Video", "video"),
        ("utilty", "utilty", "utility"),
        ("all,compute", "all", ""),
        (" all", "all", ""),
        ("ALL", "ALL", ""),
        ("none", "none", ""),
        ("compute utility", "compute utility", ""),
    ],
)
def test_an_unknown_capability_is_refused(value: str, element: str, near: str) -> None:
    """The message has the key, the element, the allowed words, file and line, and the nearest word (hook.md 11.1)."""
    broken = refusal(line("supported-driver-capabilities", f'"{value}"'))

    assert "/etc/c.toml:1" == broken.where
    assert "supported-driver-capabilities" in broken.text
    assert f'"{element}"' in broken.text
    assert all(word in broken.text for word in CAPABILITIES)
    assert (f'"{near}"' in broken.hint) == bool(near)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{RUNTIME}.mode", "legcy"),
        (f"{RUNTIME}.mode", ""),
        (f"{RUNTIME}.mode", "LEGACY"),
        (f"{RUNTIME}.log-level", "loud"),
        (f"{LEGACY}.cuda-compat-mode", "mont"),
        (f"{LEGACY}.cuda-compat-mode", ""),
        ("gpuhook.backend", "engine"),
    ],
)
def test_enumerations_are_checked_on_load(key: str, value: str) -> None:
    """A word that is none of the allowed ones is refused at once, with these (hook.md 11.10)."""
    broken = refusal(line(key, f'"{value}"'))

    assert "/etc/c.toml:1" == broken.where
    assert f'{key} is "{value}" and must be one of ' in broken.text


def test_a_typo_in_an_enumeration_gets_its_nearest_word() -> None:
    """The hint proposes what was probably meant."""
    assert 'did you mean "legacy"?' in refusal(line(f"{RUNTIME}.mode", '"legcy"')).hint


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("\ndisable-require = 1", 2, "disable-require is the number 1 and must be true or false"),
        ('disable-require = "true"', 1, 'disable-require is "true" and must be true or false'),
        ("disable-require = 1.0", 1, "the number 1.0 and must be true or false"),
        ("disable-require = 1979-05-27", 1, "the date 1979-05-27 and must be true or false"),
        ("swarm-resource = true", 1, "swarm-resource is true and must be a text in quotes"),
        ('swarm-resource = ["A"]', 1, "swarm-resource is a list and must be a text in quotes"),
        ("[nvidia-container-cli]\nroot = {}", 2, "nvidia-container-cli.root is a table and must be a text"),
        ('[nvidia-container-cli]\nenvironment = "A=1"', 2, "must be a list"),
        ('[nvidia-container-cli]\nenvironment = [\n"A=1",\n"B"]', 4, 'environment.1 is "B" and must be NAME=value'),
        ('[nvidia-container-cli]\nenvironment = ["=1"]', 2, "must be NAME=value"),
        ('[nvidia-container-cli]\nenvironment = ["A=\\u0000"]', 2, "must be NAME=value"),
        ("[nvidia-container-runtime]\nruntimes = [1]", 2, "runtimes.0 is the number 1 and must be a text"),
        ("[[nvidia-container-cli]]", 1, "nvidia-container-cli is a list and must be a table"),
        ("features = true", 1, "features is true and must be a table"),
        ("[features]\ndisable-imex-channel-creation = 1", 2, "must be true or false"),
        ('[nvidia-container-cli]\npath = "../x"', 2, 'is "../x" and must be an absolute path'),
        ('[gpuhook]\nfailure-log = "x.log"', 2, 'is "x.log" and must be the absolute path of a file'),
        ('[gpuhook]\nfailure-log = "/var/log/"', 2, 'is "/var/log/" and must be the absolute path of a file'),
        ("[nvidia-container-cli]\n\nNO-CGROUPS = 0", 3, "nvidia-container-cli.no-cgroups is the number 0"),
        ("[NVIDIA-CONTAINER-CLI]\nno-pivot = 0", 2, "nvidia-container-cli.no-pivot is the number 0"),
        ("[nvidia-container-cli]\nno-pivot = 0\nroot = 1\nuser = 2", 2, "(and 2 more)"),
    ],
)
def test_values_of_a_wrong_kind_are_refused(text: str, where: int, says: str) -> None:
    """Nothing is converted; the message has file, line, key, the value found and what is allowed."""
    broken = refusal(text.encode())

    assert f"/etc/c.toml:{where}" == broken.where
    assert says in broken.text


@pytest.mark.parametrize(
    "key",
    [
        f"{CLI}.root",
        f"{CLI}.path",
        f"{CLI}.debug",
        f"{CLI}.ldcache",
        f"{CLI}.user",
        f"{CLI}.ldconfig",
        f"{RUNTIME}.debug",
        "nvidia-container-runtime-hook.path",
        "nvidia-ctk.path",
    ],
)
@pytest.mark.parametrize("escape", ["\\n", "\\u0000", "\\u001b", "\\u0085", "\\t"])
def test_control_characters_in_paths_are_refused(key: str, escape: str) -> None:
    """A path or argument with a control character is never meant (decisions.md 1)."""
    assert "without control characters" in refusal(line(key, f'"/x{escape}y"')).text


@pytest.mark.parametrize("key", [f"{RUNTIME}.runtimes", f"{RUNTIME}.modes.cdi.spec-dirs"])
def test_control_characters_in_lists_are_refused(key: str) -> None:
    """The same holds for each element of a list of paths."""
    assert "without control characters" in refusal(line(key, '["/x", "/y\\n"]')).text


def test_a_line_break_in_a_variable_is_kept() -> None:
    """A variable's value may hold what an environment can."""
    assert ("A=x\ny",) == decide(line(f"{CLI}.environment", '["A=x\\ny"]'), "/c").cli_environment


def test_ldconfig_without_at_is_the_hosts() -> None:
    """An old file means the host's program: it gets its @, and a warning that names file and key (decisions.md 6)."""
    settings = decide(b'[nvidia-container-cli]\nldconfig = "/sbin/ldconfig"\n', "/etc/c.toml")

    assert "@/sbin/ldconfig" == settings.ldconfig
    [(slug, text)] = settings.warnings
    assert "unsafe-config" == slug
    assert all(part in text for part in ("/etc/c.toml:2", "nvidia-container-cli.ldconfig", "@/sbin/ldconfig"))


@pytest.mark.parametrize("value", ["", "ldconfig", " @/sbin/ldconfig"])
def test_an_ldconfig_that_is_no_path_is_refused(value: str) -> None:
    """Only an absolute path can be taken for the host's program."""
    broken = refusal(line(f"{CLI}.ldconfig", f'"{value}"'))

    assert "/etc/c.toml:1" == broken.where
    assert "nvidia-container-cli.ldconfig" in broken.text
    assert "@/sbin/ldconfig" in broken.hint


@pytest.mark.parametrize("value", ["/sbin/ldconfig", "", "ldconfig"])
def test_the_containers_ldconfig_needs_its_feature(value: str) -> None:
    """With features.allow-ldconfig-from-container the value stays as it is."""
    data = line(f"{CLI}.ldconfig", f'"{value}"') + line("features.allow-ldconfig-from-container", "true")
    settings = decide(data, "/c")

    assert (value, ()) == (settings.ldconfig, settings.warnings)


def test_long_values_are_cut_in_messages() -> None:
    """A message shows the beginning of what was found."""
    assert "x" * 100 not in refusal(line("disable-require", f'"{"x" * 5000}"')).text


scalars = st.booleans() | st.integers(-9, 9) | st.text("a\n@/=,é\0", max_size=4) | st.none()
keys = st.sampled_from(sorted({part for key in known_keys() for part in key}))
tables = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3))


def toml_of(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_of(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(character):04x}" for character in value) + '"'
    return "1979-05-27" if value is None else str(value)


@given(st.dictionaries(keys, tables, max_size=4))
def test_any_table_is_decided_or_refused(table: dict[str, object]) -> None:
    """Whatever stands at a known key, the outcome is settings or ConfigBroken that names a line of the file."""
    text = "".join(f"{key} = {toml_of(value)}\n" for key, value in table.items())
    try:
        line = decide(text.encode(), "/c").source
    except ConfigBroken as broken:
        line = broken.where

    assert line in {"/c", *(f"/c:{number + 1}" for number in range(len(table)))}


def test_the_schema_can_be_published() -> None:
    """The model describes every top-level key for programs that check files."""
    assert set(tables_of(ConfigFile)) == set(ConfigFile.model_json_schema()["properties"])
