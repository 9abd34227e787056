"""The command line and the environment of nvidia-container-cli (hook.md 8)."""

from __future__ import annotations

import pytest

from gpuhook.backend.cli import Surroundings, configure_argv, environment, resolve_ldconfig
from gpuhook.backend.program import Program
from gpuhook.request.model import DeviceChoice, Request, Requirement
from gpuhook.settings.values import Settings

CLI = Program(path="/usr/bin/nvidia-container-cli")
AROUND = Surroundings(ldconfig="@/sbin/ldconfig", no_cgroups=False, user="")
REQUEST = Request(
    container="c",
    pid=7,
    rootfs="/r",
    devices=DeviceChoice(names=("0",), sources=("NVIDIA_VISIBLE_DEVICES",)),
    capabilities=("compute", "utility"),
)


def argv(
    request: Request = REQUEST,
    settings: Settings = Settings(),  # noqa: B008  # a value
    around: Surroundings = AROUND,
    program: Program = CLI,
    *,
    debug: bool = False,
) -> list[str]:
    """The command line without the program."""
    return list(configure_argv(program, request, settings, around, debug=debug)[1:])


def test_the_default_command_line() -> None:
    """The example of the reference, word for word."""
    words = (
        "--load-kmods configure --cuda-compat-mode=ldconfig --ldconfig=@/sbin/ldconfig --device=0 --compute --utility"
    )
    assert argv() == [*words.split(), "--pid=7", "/r"]


def test_every_option_has_its_place() -> None:
    """All of them at once, in the reference's order."""
    settings = Settings(
        cli_root="/d", no_pivot=True, cli_debug="/l", cli_ldcache="/c", disable_imex_channel_creation=True
    )
    request = REQUEST.with_(
        mig_config="all",
        mig_monitor="0",
        imex_channels=("0", "1"),
        requirements=(Requirement(source="NVIDIA_REQUIRE_CUDA", expression="cuda>=12"),),
    )
    around = Surroundings(ldconfig="@/l", no_cgroups=True, user="root:video")
    assert argv(request, settings, around) == [
        "--root=/d", "--load-kmods", "--no-create-imex-channels", "--no-pivot", "--debug=/l", "--ldcache=/c",
        "--user=root:video",
        "configure", "--cuda-compat-mode=ldconfig", "--ldconfig=@/l", "--no-cgroups", "--device=0",
        "--mig-config=all", "--mig-monitor=0", "--imex-channel=0,1", "--compute", "--utility", "--require=cuda>=12",
        "--pid=7", "/r",
    ]  # fmt: skip


def test_none_gives_no_device_option() -> None:
    """Driver files without a GPU."""
    request = REQUEST.with_(devices=DeviceChoice(names=(), sources=()))
    assert not [word for word in argv(request) if word.startswith("--device")]


def test_an_old_program_does_not_get_options_that_it_refuses() -> None:
    """What it does not know only confirms what it does anyway (decisions.md 9)."""
    old = Program(path="/p", knows=())
    words = argv(settings=Settings(disable_imex_channel_creation=True), program=old)
    assert "--cuda-compat-mode=ldconfig" not in words
    assert "--no-create-imex-channels" not in words


def test_debug_goes_to_stderr() -> None:
    """--debug overrides the configured file."""
    assert "--debug=/dev/stderr" in argv(settings=Settings(cli_debug="/l"), debug=True)


def test_our_own_user_is_an_option_without_a_value() -> None:
    """Where the default id is not mapped, the program is told to stay who we are."""
    assert "--user" in argv(around=AROUND.with_(user="="))


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "PYTHONPATH",
        "NVC_DEBUG_FILE",
        "GLIBC_TUNABLES",
        "OPENSSL_CONF",
        "CUDA_MPS_PIPE_DIRECTORY",
        "TMPDIR",
    ],
)
def test_what_could_steer_the_program_is_dropped(name: str) -> None:
    """decisions.md 7."""
    assert environment({name.encode(): b"x", b"A": b"1"}, Settings(), "") == {b"A": b"1"}


def test_a_configured_entry_replaces_an_inherited_one() -> None:
    """hook.md 11.4; and PATH is the long one only where it was searched."""
    env = environment({b"A": b"1", b"PATH": b"/x"}, Settings(cli_environment=("A=2", "B=")), "/long")
    assert env == {b"A": b"2", b"B": b"", b"PATH": b"/long"}
    assert environment({b"PATH": b"/x"}, Settings(), "")[b"PATH"] == b"/x"


def test_an_absent_ldconfig_falls_back_to_the_one_that_exists() -> None:
    """decisions.md 6: with a warning that names both and the file."""
    value, warnings = resolve_ldconfig(Settings(ldconfig="@/no/such/ldconfig", source="/etc/c.toml"))
    assert value in ("@/sbin/ldconfig", "@/sbin/ldconfig.real", "@/usr/sbin/ldconfig")
    [(slug, text)] = warnings
    assert slug == "ldconfig-path"
    assert "/no/such/ldconfig" in text
    assert value[1:] in text
    assert "/etc/c.toml" in text


def test_a_path_in_the_container_is_handed_over_as_it_is() -> None:
    """Only the feature switch lets such a value get here."""
    assert resolve_ldconfig(Settings(ldconfig="/sbin/ldconfig")) == ("/sbin/ldconfig", ())
