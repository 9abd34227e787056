"""The low-level runtime: which one it is, and which ones it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.refusals import NoLowLevelRuntime
from gpuhook.runtime.lowlevel import find_runtime, refuse_loop
from tests.rig.needs import need
from tests.shim.stand import Stand, write_launchers, write_program

SCRIPT = "#!/bin/sh\n"


def refusal(*candidates: str, path: str = "") -> str:
    """Why no candidate can be used."""
    with pytest.raises(NoLowLevelRuntime) as caught:
        find_runtime(candidates, path, "/etc/x.toml")
    assert caught.value.where == "/etc/x.toml: [nvidia-container-runtime] runtimes"
    return caught.value.text


@pytest.fixture
def runc(tmp_path: Path) -> str:
    """A program that could be runc, in a folder of its own."""
    (tmp_path / "bin").mkdir()
    return write_program(tmp_path / "bin" / "runc", SCRIPT)


def test_a_path_is_taken_as_it_is(runc: str) -> None:
    """The first usable one of the list wins."""
    assert find_runtime(("/nowhere/runc", runc, "/bin/sh"), "") == runc


def test_a_name_is_looked_up_in_path(runc: str) -> None:
    """Folder by folder; relative ones do not count (AC-70)."""
    assert find_runtime(("runc",), f"/nowhere:{Path(runc).parent}:/usr/bin") == runc


def test_relative_folders_of_path_do_not_count(runc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an empty one nor one with a name: the current folder is the bundle."""
    monkeypatch.chdir(Path(runc).parent.parent)
    os.rename(runc, f"{runc}-of-mine")
    assert "it does not exist" in refusal("runc-of-mine", path=":bin:.")


def test_the_usual_folders_are_searched_too() -> None:
    """A daemon may have a PATH without them."""
    assert find_runtime(("sh",), "/nowhere") in ("/usr/bin/sh", "/bin/sh")


def test_every_candidate_has_its_reason(tmp_path: Path, runc: str) -> None:
    """A person has to know what to repair."""
    plain = tmp_path / "plain"
    plain.write_text("x")
    text = refusal("/nowhere/runc", "no-such-runtime", str(tmp_path), str(plain), "bin/runc", "")
    assert text == (
        "no low-level runtime can be used: /nowhere/runc (it does not exist); no-such-runtime (it does not exist); "
        f"{tmp_path} (it is a folder); {plain} (it is not executable); bin/runc (it is no absolute path); "
        "'' (it is no absolute path)"
    )
    assert refusal() == "no low-level runtime can be used: the list is empty"


def test_what_others_can_write_is_not_run(tmp_path: Path, runc: str) -> None:
    """Neither such a program nor one in such a folder (AC-70)."""
    need()
    os.chmod(runc, 0o777)
    assert "others can write it (mode 0777)" in refusal(runc)
    os.chmod(runc, 0o755)
    os.chown(Path(runc).parent, 1000, 1000)
    assert f"{Path(runc).parent} is not safe: it belongs to uid 1000" in refusal(runc)


def test_it_is_never_gpuhook_itself(tmp_path: Path) -> None:
    """By no name and through no link: our launchers, and pip's, are known by what they say."""
    shim = write_launchers(tmp_path)
    os.symlink(shim, tmp_path / "runc")
    script = write_program(tmp_path / "crun", "#!/usr/bin/python3\nfrom gpuhook.runtime.entry import main\n")
    for place in (shim, str(tmp_path / "runc"), script):
        assert "it is gpuhook itself" in refusal(place)


def test_a_list_that_names_us_is_refused_at_once(stand: Stand) -> None:
    """No second round is needed to notice."""
    os.rename(stand.shim, stand.folder / "nvidia-container-runtime")
    stand.shim = str(stand.folder / "nvidia-container-runtime")
    result = stand.create(stand.bundle("NVIDIA_VISIBLE_DEVICES=all"), config=stand.config(runtimes=[stand.shim]))
    assert result.status == 1
    assert "low-level-runtime: no low-level runtime can be used:" in result.stderr
    assert "it is gpuhook itself" in result.stderr


@pytest.mark.parametrize("words", [("create", "c1"), ("state", "c1")])
def test_a_wrapper_that_leads_back_is_noticed(stand: Stand, words: tuple[str, ...]) -> None:
    """It is not called for ever: after some rounds there is an error that says what to change."""
    wrapper = write_program(stand.folder / "wrapper", f'#!/bin/sh\nexec {stand.shim} "$@"\n')
    bundle = stand.bundle()
    result = stand.run(*words, config=stand.config(runtimes=[wrapper]), cwd=str(bundle))
    assert result.status == 1
    assert "low-level-runtime: the low-level runtime leads back to gpuhook-runtime" in result.stderr


def test_an_ordinary_depth_is_no_loop() -> None:
    """A runtime may have been started from within another one's hook."""
    refuse_loop({b"GPUHOOK_RUNTIME_DEPTH": b"xxx"})
    with pytest.raises(NoLowLevelRuntime):
        refuse_loop({b"GPUHOOK_RUNTIME_DEPTH": b"xxxxxxxx"})
