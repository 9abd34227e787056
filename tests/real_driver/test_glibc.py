"""The merged cache under the C libraries of several Debian releases: their ldconfig lists it, their loaders use it.

`make test-real-driver` fetches them; without it these tests are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from gpuhook.loader.cache import NEW_MAGIC, OLD_MAGIC, parse
from gpuhook.loader.order import MACHINE
from tests.real_driver.conftest import ASKED
from tests.real_driver.releases import FOLDERS, NARROW, WIDE, Release, build_program
from tests.rig.container import Container
from tests.rig.needs import need
from tests.runtime.node import Node, make_node
from tools.glibc import Glibc, ready

pytestmark = [
    pytest.mark.real_driver,
    pytest.mark.runtime,
    pytest.mark.skipif(MACHINE != "x86_64", reason="the images' own libraries are for CPUs of x86"),
]

GLIBCS = tuple(ready()) if ASKED else ()
LAYOUTS = ("new", "compat")
T = TypeVar("T")


@pytest.fixture(scope="module", params=GLIBCS or [None], ids=[each.version for each in GLIBCS] or ["none"])
def glibc(request: pytest.FixtureRequest) -> Glibc:
    """Each that was fetched; at least two."""
    if not ASKED:
        pytest.skip("make test-real-driver runs it")
    assert len(GLIBCS) > 1, "python -m tools.glibc has not fetched two versions"
    need("gcc", "runc", "busybox")
    found: Glibc = request.param
    return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    need("gcc")
    return make_node(str(tmp_path_factory.mktemp("node")))


@pytest.fixture(scope="module")
def program(glibc: Glibc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(glibc, tmp_path_factory.mktemp("opens"))


@pytest.fixture
def release(glibc: Glibc, program: Path, node: Node) -> Iterator[Release]:
    with Container(hooks={"prestart": [node.hook()]}) as container:
        yield Release(glibc, program, container)


def index(release: Release, layout: str) -> bytes:
    """The image's cache in this layout, by the release's own ldconfig: the old table before the new one, or not."""
    data = release.index("-c", layout)
    assert data.startswith(OLD_MAGIC if layout == "compat" else NEW_MAGIC)
    return data


def before_of(release: Release, layout: str, ask: Callable[[], T]) -> T:
    """An answer before the hook comes, with the cache in this layout from then on.

    Since glibc-hwcaps ldconfig and loader read their names wrongly from the older layout, and then leave these entries
    alone; so the newer layout says what there is.
    """
    index(release, "new" if release.glibc.number >= FOLDERS else layout)
    answer = ask()
    index(release, layout)
    return answer


def of_the_driver(line: str) -> bool:
    """Whether a line of `ldconfig -p` is about a library that the driver brings."""
    return line.startswith(("libcuda.so", "libnvidia-", "libGL", "libEGL", "libnv", "libcudadebugger", "libvdpau"))


def names(lines: list[str]) -> list[str]:
    return [line.partition(" ")[0] for line in lines]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_own_ldconfig_lists_the_merged_cache(release: Release, node: Node, layout: str) -> None:
    """The driver's libraries of both sizes; all of the image's else as before, in the same order."""
    before = before_of(release, layout, lambda: release.listed("void"))
    after = release.listed()
    version = node.driver.version
    assert [line for line in after if line.startswith("libcuda.so.1 ")] == [
        f"libcuda.so.1 (libc6,x86-64) => {WIDE}/libcuda.so.{version}",
        f"libcuda.so.1 (libc6) => {NARROW}/libcuda.so.{version}",
    ]
    assert [line for line in after if not of_the_driver(line)] == [line for line in before if not of_the_driver(line)]
    assert len([line for line in before if line.startswith("libother.so.1 ")]) == 4
    assert any("=> /opt/image/" in line for line in before if line.startswith("libcuda.so.1 "))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_own_loader_finds_the_driver_and_all_else(release: Release, node: Node, layout: str) -> None:
    """By dlopen: the image's libcuda wins before and loses after, and every other name leads where it led."""
    others = ("libother.so.1", "libcudart.so.12", "libm.so.6", "libpthread.so.0", "libresolv.so.2")
    before = before_of(release, layout, lambda: release.opened("libcuda.so.1", *others, gpus="void"))
    after = release.opened("libcuda.so.1", "libnvidia-ml.so.1", *others)
    major, minor = node.driver.cuda
    assert before["libcuda.so.1"].file.startswith("/opt/image/")
    assert (after["libcuda.so.1"].file, after["libcuda.so.1"].says) == (
        f"{WIDE}/libcuda.so.{node.driver.version}",
        f"{major * 1000 + minor * 10}",
    )
    assert after["libnvidia-ml.so.1"].file == f"{WIDE}/libnvidia-ml.so.{node.driver.version}"
    assert {name: after[name] for name in others} == {name: before[name] for name in others}
    assert all(before[name].file for name in others)


def test_its_own_loader_finds_every_name(release: Release) -> None:
    """Each 64-bit name that `ldconfig -p` lists is found by halves in our order, at a path that is listed for it."""
    release.index()
    listed: dict[str, set[str]] = {}
    for line in release.listed():
        if "(libc6,x86-64" in line:
            listed.setdefault(line.partition(" ")[0], set()).add(line.rpartition(" => ")[2])
    found = release.opened(*listed)
    ours = {name: each for name, each in found.items() if each.file}
    assert {name for name, each in ours.items() if each.file not in listed[name]} <= {"ld-linux-x86-64.so.2"}
    assert len(ours) > 30


def test_its_own_32_bit_loader_finds_the_driver(release: Release, node: Node) -> None:
    """And the image's own libraries, among the entries of both sizes."""
    release.index()
    assert release.traced_narrow("libcuda.so.1") == f"{NARROW}/libcuda.so.{node.driver.version}"
    assert release.traced_narrow("libother.so.1").endswith("/lib32/libother.so.1")


@pytest.mark.parametrize("found", ["absent", "damaged", "of before 2.2"])
def test_without_a_good_cache(release: Release, node: Node, found: str) -> None:
    """A new one is written, by us alone or with this machine's ldconfig; the release's programs take it."""
    if found == "of before 2.2":
        release.index("-c", "old")
    if found == "damaged":
        data = release.index()
        Path(f"{release.rootfs}/etc/ld.so.cache").write_bytes(data[: len(data) // 2])
    lines = release.listed()
    assert f"libcuda.so.1 (libc6,x86-64) => {WIDE}/libcuda.so.{node.driver.version}" in lines
    assert ("libcudart.so.12" in names(lines)) == (found != "absent")
    opened = release.opened("libcuda.so.1", "libother.so.1", "libm.so.6")
    assert opened["libcuda.so.1"].file == f"{WIDE}/libcuda.so.{node.driver.version}"
    assert all(each.file for each in opened.values())


def test_an_ldconfig_afterwards_keeps_the_driver(release: Release) -> None:
    """As a package's installation in the running container runs it: the links lead it to the same files."""
    release.index()
    lines = release.listed(after="/sbin/ldconfig")
    places = [line.rpartition(" => ")[2] for line in lines if line.startswith("libcuda.so.1 (libc6,x86-64")]
    assert [place for place in places if not place.startswith("/opt/image/")] in (
        [f"{WIDE}/libcuda.so.1"],
        [f"{WIDE.removeprefix('/usr')}/libcuda.so.1"],
    )
    assert "libnvidia-ml.so.1" in names(lines)


def test_a_second_start_changes_nothing(release: Release) -> None:
    """The cache that the first start has made is read again, and found right."""
    release.index()
    assert release.listed() == release.listed()
    cache = parse(Path(f"{release.rootfs}/etc/ld.so.cache").read_bytes())
    assert ("x86-64-v3" in cache.hwcaps) == (release.glibc.number >= FOLDERS)
