"""State, config.json and their parser (threats.md 3.4, AC-49 to AC-57)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.attack.direct import Scene
from tests.attack.race import exchanged
from tests.attack.rig import Lab
from tests.attack.rounds import plan_of, rounds
from tests.rig.init import Init
from tests.rig.rootfs import make_rootfs

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

MIB = 1 << 20
DEEP = 100_000
STATE, BUNDLE, CONTAINER = "bad-state", "bad-bundle", "bad-container"


def sparse(path: str, begin: bytes, size: int) -> str:
    """A file that begins so and is as large; the rest costs no room."""
    with open(path, "wb") as file:
        file.write(begin)
        file.truncate(size)
    return path


def test_ac_49_huge_json(scene: Scene) -> None:
    """FAIL within the usual memory: 500 MiB of config.json, 100 MiB of state from a file and from a pipe."""
    for begin in (b"", b'{"ociVersion": "1.0.2", "x": "'):
        sparse(f"{scene.bundle}/config.json", begin, 500 * MIB)
        assert scene.start().slug == BUNDLE
    fd = os.open(sparse(f"{scene.lab.folder}/state", scene.state()[:-1] + b', "x": "', 100 * MIB), os.O_RDONLY)
    assert scene.start(fd).slug == STATE
    os.close(fd)
    assert scene.start(b'{"x": "' + b"x" * (100 * MIB)).slug == STATE


@pytest.mark.parametrize("form", ["lists", "objects"])
def test_ac_50_deep_nesting(scene: Scene, form: str) -> None:
    """FAIL for 100 000 levels in an unrelated key, in annotations and on stdin."""
    deep = b"[" * DEEP + b"]" * DEEP if form == "lists" else b'{"a":' * DEEP + b"1" + b"}" * DEEP
    scene.write()
    good = scene.text()
    for key in (b"unrelated", b"annotations"):
        scene.write_bytes(good[:-1] + b', "%s": %s}' % (key, deep))
        assert scene.start().slug == BUNDLE
    scene.write_bytes(good)
    assert scene.start(scene.state()[:-1] + b', "annotations": %s}' % deep).slug == STATE


def encoded(data: bytes) -> dict[str, bytes]:
    """The text in spellings that are not plain UTF-8."""
    text = data.decode()
    return {
        "a byte that is not UTF-8": data[:-1] + b', "x": "\xff"}',
        "an overlong form": data[:-1] + b', "x": "\xc0\xaf"}',
        "a surrogate in UTF-8": data[:-1] + b', "x": "\xed\xa0\x80"}',
        "UTF-16 with its mark": text.encode("utf-16"),
        "UTF-16 without": text.encode("utf-16-le"),
        "UTF-32": text.encode("utf-32"),
        "UTF-8 with a mark": b"\xef\xbb\xbf" + data,
    }


def test_ac_51_encodings_of_config_json(scene: Scene) -> None:
    """FAIL: nothing but UTF-8 is read."""
    scene.write()
    for data in encoded(scene.text()).values():
        scene.write_bytes(data)
        assert scene.start().slug == BUNDLE


def test_ac_51_encodings_of_the_state(scene: Scene) -> None:
    """FAIL: nothing but UTF-8 is read."""
    for data in encoded(scene.state()).values():
        if data.endswith(b'"}') and b', "x"' not in data:
            continue
        assert scene.start(data).slug == STATE


def test_ac_51_characters_that_are_none(scene: Scene) -> None:
    """FAIL for a lone surrogate and a NUL in root.path, in the request and in the bundle's path.

    A variable that nobody reads may hold a surrogate (SAFE): no path and no message is made of it.
    """
    for odd in ("rootfs\ud800", "rootfs\0", "\0", "rootfs\0/../../.."):
        scene.write(lambda spec, odd=odd: spec["root"].update(path=odd))  # type: ignore[misc]
        assert scene.start().slug == BUNDLE
    for odd in ("\ud800", "0\udfff", "0\0"):
        scene.write(None, f"NVIDIA_VISIBLE_DEVICES={odd}", gpus=False)
        assert scene.start().slug in (BUNDLE, "unknown-device")
    scene.write()
    for odd in ("\ud800", "\0"):
        assert scene.start(bundle=f"{scene.bundle}{odd}").slug == STATE
    scene.write(None, "OTHER=\ud800")
    assert scene.start().started


TWO_SPELLINGS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((), "Root"), ((), "ROOT"), ((), "Process"), ((), "Mounts"), ((), "mount\u017f"), ((), "OCIVersion"),
    (("root",), "Path"), (("process",), "Env"), (("process",), "Capabilities"),
)  # fmt: skip


@pytest.mark.parametrize("alone", [False, True])
def test_ac_52_two_readers_two_documents(scene: Scene, alone: bool) -> None:
    """FAIL for a key in other letters, beside the usual one or in its place; Go's reader would take it."""
    for way, key in TWO_SPELLINGS:
        scene.write()
        spec = table = json.loads(scene.text())
        for step in way:
            table = table[step]
        usual = next(usual for usual in table if usual.casefold() == key.casefold())
        table[key] = {"path": "/"} if usual == "root" else table[usual]
        if alone:
            del table[usual]
        scene.write_bytes(json.dumps(spec).encode())
        assert (key, scene.start().slug) == (key, BUNDLE)


def test_ac_52_a_key_given_twice(scene: Scene) -> None:
    """FAIL in both documents: readers differ in which one counts."""
    scene.write()
    good = scene.text()
    for more in (b'"root": {"path": "/"}', b'"process": {}', b'"annotations": {"a": "1", "a": "2"}'):
        scene.write_bytes(good[:-1] + b", " + more + b"}")
        assert scene.start().slug == BUNDLE
    scene.write_bytes(good)
    for more in (b'"pid": 1', b'"bundle": "/"', b'"Bundle": "/x"', b'"PID": 1', b'"bundlePath": "/x"'):
        assert scene.start(scene.state()[:-1] + b", " + more + b"}").slug == STATE


PIDS = (
    "0", "-1", "-0", "true", '"12"', "12.0", "1e3", "4294967297", "2147483648", "9" * 5000, "NaN", "Infinity", "null",
    "[1]", "{}", "0x10", "01", "+1", "1_0", "", None,
)  # fmt: skip


def test_ac_53_numbers(scene: Scene) -> None:
    """FAIL for whatever is no pid: nothing is converted."""
    scene.write()
    outcomes = {}
    for pid in PIDS:
        more = "" if pid is None else f', "pid": {pid}'
        run = scene.start(scene.state(pid=None)[:-1] + more.encode() + b"}")
        outcomes[pid] = run.slug
    assert {pid for pid, slug in outcomes.items() if slug not in (STATE, CONTAINER)} == set()


def test_ac_54_stdin_that_never_closes(scene: Scene) -> None:
    """SAFE with the complete state; FAIL within the deadline for one that stops in the middle or never comes."""
    scene.write()
    (whole, keeps_whole), (half, keeps_half), (none, keeps_none) = os.pipe(), os.pipe(), os.pipe()
    master, terminal = os.openpty()
    os.write(keeps_half, scene.state()[:-1])
    with ThreadPoolExecutor() as pool:  # each of them waits for five seconds
        runs = list(pool.map(scene.start, (half, none, terminal)))
    assert [(run.slug, 4 < run.report.seconds < 8) for run in runs] == [(STATE, True)] * 3
    os.write(keeps_whole, scene.state())
    run = scene.start(whole)
    assert (run.started, run.report.seconds < 4) == (True, True)
    for fd in (whole, keeps_whole, half, keeps_half, none, keeps_none, master, terminal):
        os.close(fd)


def test_ac_54_stdin_that_is_closed_or_no_pipe(scene: Scene) -> None:
    """FAIL at once."""
    scene.write()
    assert scene.start(b"").slug == STATE
    for redirection in ("<&-", "</dev/null", "</dev/zero"):
        run = scene.start(b"", before=("sh", "-c", f'exec "$@" {redirection}', "sh"))
        assert (run.slug, run.report.seconds < 5) == (STATE, True)


def test_ac_55_paths_of_the_bundle(scene: Scene) -> None:
    """FAIL for a relative path, one with `..`, and two that differ; SAFE for one that is a link itself."""
    scene.write()
    name = os.path.basename(scene.bundle)
    link = f"{scene.lab.folder}/link"
    os.symlink(scene.bundle, link)
    for bundle in (name, f"./{name}", f"{scene.bundle}/../{name}", "", None, f"{scene.bundle}/config.json", "/", 5):
        assert scene.start(bundle=bundle, cwd=scene.lab.folder).slug in (STATE, BUNDLE)
    assert scene.start(bundlePath=link).slug == STATE
    assert scene.start(bundle=link).started


def file_forms(scene: Scene) -> dict[str, Callable[[str], object]]:
    """What can stand in config.json's place."""
    other = f"{scene.lab.folder}/other.json"
    Path(other).write_bytes(scene.text())
    return {
        "FIFO": os.mkfifo,
        "link": lambda path: os.symlink(other, path),
        "dangling link": lambda path: os.symlink("nowhere", path),
        "folder": os.mkdir,
        "zeros": lambda path: os.mknod(path, 0o020644, os.makedev(1, 5)),
        "nothing": lambda path: None,
        "group-writable": lambda path: write_mode(path, Path(other).read_bytes(), 0o664),
        "writable by all": lambda path: write_mode(path, Path(other).read_bytes(), 0o646),
    }


def write_mode(path: str, data: bytes, mode: int) -> None:
    """A file with this mode."""
    Path(path).write_bytes(data)
    os.chmod(path, mode)


def test_ac_55_forms_of_config_json(scene: Scene) -> None:
    """FAIL without a wait for everything that is no regular file that only its owner writes."""
    scene.write()
    forms = file_forms(scene)
    path = f"{scene.bundle}/config.json"
    for form, make in forms.items():
        if os.path.lexists(path):
            (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
        make(path)
        run = scene.start()
        assert (form, run.slug, run.report.seconds < 5) == (form, BUNDLE, True)


def test_ac_56_usual_paths_of_the_root(scene: Scene) -> None:
    """SAFE for spellings of the right folder, from whatever working directory; there is a decoy in that."""
    os.makedirs(f"{scene.lab.folder}/decoy/rootfs")
    for path in ("rootfs", "./rootfs/../rootfs", "rootfs/", "rootfs//.", scene.init.rootfs):
        scene.write(lambda spec, path=path: spec["root"].update(path=path))  # type: ignore[misc]
        assert scene.start(cwd=f"{scene.lab.folder}/decoy").started
    assert os.listdir(f"{scene.lab.folder}/decoy/rootfs") == []


def test_ac_56_paths_that_are_no_root(scene: Scene) -> None:
    """FAIL for the host's root by whatever spelling, for what is no folder, and for another folder.

    A path that climbs out behind somebody's link is refused as well.
    """
    up = "../" * 12
    os.symlink("/", f"{scene.bundle}/slash")
    os.symlink("rootfs", f"{scene.bundle}/theirs")
    os.lchown(f"{scene.bundle}/theirs", 1000, 1000)
    os.mkdir(f"{scene.bundle}/empty")
    paths = (
        up, f"{up}proc/1/root", "/", "//", "/.", "/proc/../", "", None, "/proc/1/root", "/proc/self/root", "slash",
        "slash/.", "config.json", "absent", "empty", "/proc/self/cwd", "/dev/fd/0", "theirs/../slash",
    )  # fmt: skip
    for path in paths:
        scene.write(lambda spec, path=path: spec["root"].update(path=path))  # type: ignore[misc]
        assert (path, scene.start().slug) in ((path, BUNDLE), (path, CONTAINER))
    for edit in (lambda spec: spec.pop("root"), lambda spec: spec.update(root=None)):
        scene.write(edit)
        assert scene.start().slug == BUNDLE


def test_ac_56_a_path_through_somebodys_link(scene: Scene) -> None:
    """SAFE: it leads to the very folder (device and inode) that is the container's root in its namespace."""
    os.symlink(scene.bundle, f"{scene.lab.folder}/theirs")
    os.lchown(f"{scene.lab.folder}/theirs", 1000, 1000)
    scene.write(lambda spec: spec["root"].update(path=f"{scene.lab.folder}/theirs/rootfs"))
    assert scene.start().started


@pytest.fixture
def swapped(lab: Lab) -> Iterator[tuple[Init, str]]:
    """A process whose root filesystem's name changes places with a link to the host's root all the time."""
    rootfs = make_rootfs(f"{lab.folder}/swapped")
    os.symlink("/", f"{lab.folder}/slash")
    lab.looks_at_tree = False  # it is the host's at half of all times
    with Init(rootfs) as init, lab.guard(), exchanged(lab.folder, rootfs, f"{lab.folder}/slash"):
        yield init, rootfs


def test_ac_57_rootfs_swapped_under_the_engine(lab: Lab, swapped: tuple[Init, str]) -> None:
    """FAIL, or SAFE on the first object, in each of a thousand rounds."""
    init, _ = swapped
    ops = plan_of(lab.node.driver.root, ("utility",))[:6]
    errors = rounds(init, lab.node.driver.root, ops, rounds=1000)
    slugs = {error.split(": ")[1] if error else "" for error in errors}
    assert slugs <= {"", CONTAINER}
    assert CONTAINER in slugs


def test_ac_57_rootfs_swapped_under_the_hook(lab: Lab, swapped: tuple[Init, str]) -> None:
    """The same for the hook as a program, fifteen times."""
    init, rootfs = swapped
    bundle = lab.bundle(rootfs)
    scene = Scene(lab, init, bundle)
    slugs = [scene.start().slug for _ in range(15)]
    assert set(slugs) <= {"", CONTAINER}
