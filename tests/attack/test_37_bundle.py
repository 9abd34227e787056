"""A bundle that others can write to, and requests that hook and shim must understand alike (AC-41, AC-76, AC-79)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gpuhook.errors import BadBundle
from gpuhook.runtime import replace as room
from tests.attack.direct import Scene
from tests.attack.race import exchanged
from tests.attack.rig import Lab
from tests.attack.test_33_strings import BY_MOUNT, FOLDER, ODD_MOUNTS
from tests.shim.stand import Stand as Shim
from tests.shim.stand import hooks_of

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

ALL_GPUS = "NVIDIA_VISIBLE_DEVICES=all"
ROUNDS = 1000


@pytest.fixture
def shim(lab: Lab) -> Shim:
    folder = Path(lab.folder, "shim")
    folder.mkdir()
    return Shim(folder)


# --- AC-79: the folder is everybody's ---


def test_ac_79_shim_in_a_folder_that_others_can_write(lab: Lab, shim: Shim) -> None:
    """SAFE: the file is replaced, mode and owner stay, nothing else of the folder changes."""
    bundle = shim.bundle(ALL_GPUS)
    file = bundle / "config.json"
    os.chmod(bundle, 0o777)
    os.chown(bundle, 1000, 1000)
    os.chown(file, 1000, 1000)
    (bundle / "config.json.tmp").symlink_to(f"{lab.canary}/file")
    before = sorted(os.listdir(bundle))
    assert shim.create(bundle).status == 0
    assert (file.stat().st_uid, len(hooks_of(bundle)), sorted(os.listdir(bundle))) == (1000, 1, before)


SWAPS: dict[str, Callable[[str, str], object]] = {
    "hard link": lambda path, canary: os.link(f"{canary}/file", path),
    "link": lambda path, canary: os.symlink(f"{canary}/file", path),
    "file": lambda path, _: Path(path).write_text("{}"),
}


@pytest.mark.parametrize("form", SWAPS)
def test_ac_79_the_new_file_is_exchanged_before_it_gets_its_owner(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """FAIL: owner and mode are given to the file that was made, not to what has its name by then."""
    file, theirs = tmp_path / "config.json", Path(lab.canary, "file")
    file.write_text("{}")
    os.chown(file, 1000, 1000)
    made = room._written

    def exchanged_meanwhile(folder: int, name: str, data: bytes, mode: int) -> tuple[str, int]:
        fresh, new = made(folder, name, data, mode)
        os.unlink(fresh, dir_fd=folder)
        SWAPS[form](f"{tmp_path}/{fresh}", lab.canary)
        return fresh, new

    monkeypatch.setattr(room, "_written", exchanged_meanwhile)
    before = theirs.stat()
    with pytest.raises(BadBundle, match="another program"):
        replace_in(tmp_path)
    after = theirs.stat()
    assert (after.st_uid, after.st_mode, after.st_size) == (before.st_uid, before.st_mode, before.st_size)
    assert file.read_text() == "{}"
    assert os.listdir(tmp_path) == ["config.json"]


def replace_in(bundle: Path) -> None:
    """Puts a new text in place of config.json, as the shim does."""
    folder = os.open(bundle, os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.stat("config.json", dir_fd=folder)
        room.replace(folder, "config.json", b'{"new": true}', status, str(bundle))
    finally:
        os.close(folder)


def test_ac_79_no_moment_of_a_truncated_file(lab: Lab, tmp_path: Path) -> None:
    """SAFE or FAIL in a thousand rounds against somebody who exchanges the file with a link: always a whole document.

    Where the link stands at the moment of reading the file is not opened (ELOOP).
    """
    file, link = tmp_path / "config.json", tmp_path / "link"
    file.write_text('{"old": true}')
    link.symlink_to(f"{lab.canary}/file")
    content = Path(lab.canary, "file").read_bytes()
    with exchanged(lab.folder, str(file), str(link)):
        for _ in range(ROUNDS):
            with suppress(BadBundle, OSError):  # each exchange makes it another file, so that it nearly always fails
                replace_in(tmp_path)
            for path in (file, link):
                if path.is_symlink():
                    continue
                text = path.read_bytes()
                assert text == content or json.loads(text)
    if file.is_symlink():
        link.rename(file)
    replace_in(tmp_path)
    assert json.loads(file.read_bytes()) == {"new": True}
    assert Path(lab.canary, "file").read_bytes() == content
    assert [name for name in os.listdir(tmp_path) if "gpuhook" in name] == []


# --- AC-41: the shim understands mounts as the hook does ---


def mounts_of(*places: str, source: str = "/dev/null") -> list[dict[str, str]]:
    return [{"destination": place, "type": "bind", "source": source} for place in places]


@pytest.mark.parametrize("place", ODD_MOUNTS)
def test_ac_41_the_shim_gives_the_hooks_answer(shim: Shim, place: str) -> None:
    """SAFE without a hook for what is no request, FAIL for a request that is not written plainly."""
    bundle = shim.bundle(mounts=mounts_of(place))
    result = shim.create(bundle, config=shim.config(BY_MOUNT))
    assert hooks_of(bundle) == []
    if ODD_MOUNTS[place]:
        assert (result.status, shim.argv) == (1, None)
        assert f"gpuhook: {ODD_MOUNTS[place]}: " in result.stderr
    else:
        assert result.status == 0


@pytest.mark.parametrize("source", ["/dev//null", "/dev/../dev/null", "/dev/null/", "null", ""])
def test_ac_41_the_shim_and_odd_sources(shim: Shim, source: str) -> None:
    """SAFE without a hook; for the null device, spelled as it is, there is one."""
    for given, hooks in ((source, 0), ("/dev/null", 1)):
        bundle = shim.bundle(mounts=mounts_of(f"{FOLDER}/all", source=given))
        assert shim.create(bundle, config=shim.config(BY_MOUNT)).status == 0
        assert len(hooks_of(bundle)) == hooks


# --- AC-76: keys that nobody knows ---


def test_ac_76_unknown_keys(lab: Lab, scene: Scene) -> None:
    """SAFE: they change nothing, and a warning names each; NVIDIA's own newer keys must not stop containers."""
    scene.write()
    text = '[another]\nx = 1\n[gpuhook-x]\nbackend = "magic"\n'
    config = lab.config(f"disable-requiree = true\n{text}", **{"no-cgroups": True})
    run = scene.start(config=config)
    assert run.started
    assert run.warnings.count("config-toml-broken") == 3
    assert all(key in run.said for key in ("disable-requiree", "another", "gpuhook-x"))
