"""Strings of the image that mean more than they should (threats.md 3.3, AC-38 to AC-44)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.attack.rig import Lab, Run
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

BY_MOUNT = "accept-nvidia-visible-devices-as-volume-mounts = true\n"
FOLDER = "/var/run/nvidia-container-devices"
DEVICES, CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
ENGINE, PROGRAM = "engine", "nvidia-container-cli"


@dataclass(frozen=True)
class Backend:
    """A process that hooks run on, and which of the two does the work; record: the program's argv, divided by NUL."""

    lab: Lab
    init: Init
    name: str
    record: str

    def run(self, *env: str, gpus: str | None = None, text: str = "", **fields: Any) -> Run:
        """Runs the hook for a container with this environment. text: of config.toml."""
        if self.name == ENGINE:
            config = self.lab.config(text, **{"no-cgroups": True})
        else:
            config = self.lab.node.config(backend=PROGRAM, cli={"path": f"{self.record}.sh"}, text=text)
        return self.lab.hook(self.init, config=config, gpus=gpus, env=env, **fields)

    def argv(self) -> list[str] | None:
        """The words that the program got, None where it did not run."""
        if not os.path.exists(self.record):
            return None
        return Path(self.record).read_text("utf-8", "surrogateescape").split("\0")[:-1]


@pytest.fixture(params=[ENGINE, PROGRAM])
def backend(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Backend]:
    record = f"{lab.folder}/argv"
    path = Path(f"{record}.sh")
    path.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {record}\n")
    path.chmod(0o755)
    with Init(make_rootfs(f"{lab.folder}/rootfs")) as init:
        yield Backend(lab, init, request.param, record)


@pytest.fixture
def engine(lab: Lab) -> Iterator[Backend]:
    with Init(make_rootfs(f"{lab.folder}/rootfs")) as init:
        yield Backend(lab, init, ENGINE, "")


@pytest.mark.parametrize("value", ["--ldconfig=@/evil", "-l/evil", "0,--no-cgroups", "0 --ldconfig=@/evil"])
def test_ac_38_option_injection_through_the_device_list(backend: Backend, value: str) -> None:
    """FAIL (unknown device), whoever does the work; the program is not started."""
    assert backend.run(gpus=value).slug == "unknown-device"
    assert backend.argv() is None


def test_ac_38_a_word_that_is_no_option(backend: Backend) -> None:
    """FAIL with the engine; nvidia-container-cli gets it as the one word that it is (decisions.md 1)."""
    run = backend.run(gpus="@/evil")
    if backend.name == ENGINE:
        assert run.slug == "unknown-device"
        return
    argv = backend.argv()
    assert argv
    assert [word for word in argv if "evil" in word] == ["--device=@/evil"]


CONTROLS = {
    "newline": "0\n1", "carriage return": "0\rx", "tab": "0\tx", "NUL": "0\0x", "escape": "0\x1b[2Jx",
    "line separator": "0\u2028x", "bidirectional override": "0\u202ex", "C1 control": "0\x9bx", "delete": "0\x7fx",
    "lone surrogate": "0\ud800x", "newline that forges": "x\ngpuhook: note: all is well",
}  # fmt: skip


@pytest.mark.parametrize("form", CONTROLS)
@pytest.mark.parametrize(
    ("variable", "slug"),
    [
        (DEVICES, "unknown-device"),
        (CAPABILITIES, "unsupported-capability"),
        ("NVIDIA_REQUIRE_X", "bad-requirement"),
        ("NVIDIA_IMEX_CHANNELS", "imex"),
    ],
)
def test_ac_39_control_characters(backend: Backend, form: str, variable: str, slug: str) -> None:
    """FAIL with the text escaped, whoever does the work; a lone surrogate is no text at all, so config.json is bad."""
    value = CONTROLS[form]
    run = backend.run(f"{variable}={value}", gpus=None if variable == DEVICES else "0")
    assert run.slug in (slug, "bad-bundle" if form == "lone surrogate" else slug)
    assert value not in run.said
    assert value not in run.log
    assert backend.argv() is None


@pytest.mark.parametrize("value", ["x\ny", "a\x1b]0;t\x07"])
def test_ac_39_control_characters_in_what_is_only_shown(engine: Backend, value: str) -> None:
    """SAFE: names of variables and of entries without a value go into notes, escaped."""
    run = engine.run(f"A{value}", f"B{value}=1", f"NVIDIA_DISABLE_REQUIRE={value}", gpus="0")
    assert run.report.status == 0
    assert value not in run.said


def mounted(*places: str, source: str = "/dev/null") -> dict[str, Any]:
    """Fields of a run whose config.json has these mounts."""

    def edit(spec: dict[str, Any]) -> None:
        spec["mounts"] += [{"destination": place, "type": "bind", "source": source} for place in places]

    return {"edit": edit, "text": BY_MOUNT}


@pytest.mark.parametrize("name", ["0,all", "GPU-x,GPU-y", "all ", " all", "0,1", "all,"])
def test_ac_40_comma_smuggling_in_mount_requests(backend: Backend, name: str) -> None:
    """FAIL: one mount asks for one device."""
    assert backend.run(**mounted(f"{FOLDER}/{name}")).slug == "unknown-device"
    assert backend.argv() is None


ODD_MOUNTS = {
    f"{FOLDER}/../../../etc": "", f"{FOLDER}X/all": "", f"{FOLDER}//all/": "unknown-device",
    f"{FOLDER}/./all": "unknown-device", f"{FOLDER}/cdi/../x": "unknown-device",
    f"{FOLDER}/cdi/a/b/c/d": "unknown-device", f"{FOLDER}/imex/-1": "", FOLDER: "", f"{FOLDER}/": "",
    f"/x{FOLDER}/all": "", f"relative{FOLDER}/all": "", f"{FOLDER}/../nvidia-container-devices/all": "unknown-device",
    f"{FOLDER}/--no-cgroups": "unknown-device",
}  # fmt: skip


@pytest.mark.parametrize("place", ODD_MOUNTS)
def test_ac_41_odd_mount_requests(backend: Backend, place: str) -> None:
    """SAFE without a GPU for what is no request, FAIL for a request that is not written plainly."""
    run = backend.run(**mounted(place))
    assert run.slug == ODD_MOUNTS[place]
    assert nothing_was_given(backend, run)


@pytest.mark.parametrize("place", [f"{FOLDER}/imex/-1", f"{FOLDER}/imex/0,1", f"{FOLDER}/imex/./0", f"{FOLDER}/imex/"])
def test_ac_41_odd_channels_beside_a_device(backend: Backend, place: str) -> None:
    """FAIL for a channel that is none."""
    run = backend.run(**mounted(f"{FOLDER}/0", place))
    assert run.slug in ("imex", "unknown-device")
    assert nothing_was_given(backend, run)


@pytest.mark.parametrize("source", ["/dev//null", "/dev/../dev/null", "/dev/null/", "LINK", "FILE", "null", ""])
def test_ac_41_odd_sources(backend: Backend, source: str) -> None:
    """SAFE without a GPU: only the null device, spelled as it is, asks for one."""
    link, file = f"{backend.lab.folder}/null", f"{backend.lab.folder}/file"
    os.symlink("/dev/null", link)
    Path(file).touch()
    run = backend.run(**mounted(f"{FOLDER}/all", source=source.replace("LINK", link).replace("FILE", file)))
    assert run.slug == ""
    assert nothing_was_given(backend, run)


def nothing_was_given(backend: Backend, run: Run) -> bool:
    return backend.argv() is None and run.changes == () and "/dev/nvidia" not in str(backend.init.mount_points)


@pytest.mark.parametrize(
    "value",
    [
        "../../x", "compute/../all", "compute\nutility", "--debug=/x", "compute;utility", "COMPUTE", "compute utility",
        "all\0", "compute,", ",", "," * (1 << 16), "," * (1 << 20), "x," * (1 << 15), "x," * (1 << 17),
        "x" * (1 << 20),
    ],
    ids=lambda value: ascii(value[:20]),
)  # fmt: skip
def test_ac_42_capability_strings(backend: Backend, value: str) -> None:
    """FAIL for words that are no capability, and for what no program could be given (128 KiB, execve(2)).

    Commas alone are nothing said, so that the default holds.
    """
    run = backend.run(f"{CAPABILITIES}={value}", gpus="0")
    if value.strip(",") in ("", "compute") and len(value) <= 1 << 17:
        assert run.report.status == 0
    else:
        assert run.slug == "unsupported-capability"
        assert backend.argv() is None


REQUIREMENTS = {
    "10 000 variables": [f"NVIDIA_REQUIRE_{n}=cuda>=1" for n in range(10_000)],
    "1 MiB": [f"NVIDIA_REQUIRE_X={'cuda>=1 ' * (1 << 17)}"],
    "a number of 22 digits": ["NVIDIA_REQUIRE_X=cuda>=9999999999999999999999"],
    "a version of 100 000 parts": [f"NVIDIA_REQUIRE_X=driver>={'.'.join('1' * 100_000)}"],
    "a version of many parts": [f"NVIDIA_REQUIRE_X=driver>=999.{'.'.join('9' * 60_000)}"],
    "operators alone": ["NVIDIA_REQUIRE_X=<>=!"],
    "no value": ["NVIDIA_REQUIRE_X=cuda>="],
    "no key": ["NVIDIA_REQUIRE_X=>=1"],
    "two operators": ["NVIDIA_REQUIRE_X=cuda>=<1"],
    "an unknown key": ["NVIDIA_REQUIRE_X=cudas>=1"],
    "a word": ["NVIDIA_REQUIRE_X=cuda"],
    "for a backtracking search": [f"NVIDIA_REQUIRE_X={'a' * 60_000}!"],
    "for another": [f"NVIDIA_REQUIRE_X={'cuda>=' * 10_000}"],
    "nested": [f"NVIDIA_REQUIRE_X={'(' * 50_000}cuda>=1{')' * 50_000}"],
    "a sum that is too long": [f"NVIDIA_REQUIRE_{n}={'cuda>=1 ' * 16_000}" for n in range(3)],
}


@pytest.mark.parametrize("form", REQUIREMENTS)
def test_ac_43_requirement_expressions(engine: Backend, form: str) -> None:
    """FAIL in time: what is no requirement, or one that does not hold, is never taken for satisfied."""
    run = engine.run(*REQUIREMENTS[form], gpus="0")
    assert run.slug in ("bad-requirement", "requirement-cuda")
    assert run.report.seconds < 5


TEXTS = "%s %n {0.__class__} ${HOME} $(id) `id`"


@pytest.mark.parametrize(
    ("variable", "slug"),
    [
        (DEVICES, "unknown-device"),
        (CAPABILITIES, "unsupported-capability"),
        ("NVIDIA_REQUIRE_X", "bad-requirement"),
        ("NVIDIA_IMEX_CHANNELS", "imex"),
        ("NVIDIA_MIG_CONFIG_DEVICES", "not-privileged"),
    ],
)
def test_ac_44_format_and_shell_text(engine: Backend, variable: str, slug: str) -> None:
    """FAIL with the text in the message as it is; nothing is expanded."""
    run = engine.run(f"{variable}={TEXTS}", gpus=None if variable == DEVICES else "0")
    assert run.slug == slug
    assert "uid=" not in run.said
    assert any(part in run.said for part in ("{0.__class__}", "$(id)", "%s"))


@pytest.mark.parametrize("variable", [DEVICES, "NVIDIA_REQUIRE_X"])
def test_ac_44_the_program_gets_the_text_as_it_is(lab: Lab, variable: str) -> None:
    """SAFE with nvidia-container-cli, which judges it: one word, unexpanded."""
    record = f"{lab.folder}/argv"
    path = Path(f"{record}.sh")
    path.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {record}\n")
    path.chmod(0o755)
    with Init(make_rootfs(f"{lab.folder}/rootfs")) as init:
        backend = Backend(lab, init, PROGRAM, record)
        assert backend.run(f"{variable}={TEXTS}", gpus=None if variable == DEVICES else "0").report.status == 0
    argv = backend.argv()
    assert argv
    assert f"{'--device' if variable == DEVICES else '--require'}={TEXTS}" in argv
