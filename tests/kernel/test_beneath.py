"""Paths that are resolved inside a folder, whatever stands in it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuhook.kernel import beneath
from gpuhook.kernel.beneath import Root
from gpuhook.refusals import KernelTooOld

ODD_NAMES = (
    "plain",
    "with blank",
    "new\nline",
    "back\\slash",
    "\\040",
    "x (deleted)",
    "ü",
    "\udcff",
    "'\"$(id)",
    "%s",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with a secret beside it, which nothing may reach."""
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/file").write_text("inside")
    return root


def read(root: Path, path: str) -> str:
    with Root(str(root)) as opened:
        return opened.read(path, 1000)[0].decode()


@pytest.mark.parametrize("path", ["/etc/file", "etc/file", "/etc/../etc/./file", "/../../etc/file", "//etc//file"])
def test_paths_start_at_the_root(tree: Path, path: str) -> None:
    """A leading slash is the root's, and `..` stops there."""
    assert read(tree, path) == "inside"


@pytest.mark.parametrize("target", ["/etc/file", "etc/file", "../../../../etc/file"])
def test_links_lead_inside(tree: Path, target: str) -> None:
    """An absolute link restarts at the root, a relative one cannot climb out."""
    (tree / "link").symlink_to(target)
    assert read(tree, "/link") == "inside"


@pytest.mark.parametrize("target", ["/secret", "../secret", "../../../../../../secret"])
def test_links_do_not_lead_out(tree: Path, target: str) -> None:
    """What lies beside the root does not exist, whatever a link says."""
    (tree / "link").symlink_to(target)
    with pytest.raises(FileNotFoundError):
        read(tree, "/link")


def test_magic_links_are_refused(tree: Path) -> None:
    """A link of procfs leads anywhere at all; none is followed."""
    with Root("/") as root, pytest.raises(OSError, match="symbolic links"):
        root.open("/proc/self/root/etc")


def test_the_link_itself_can_be_looked_at(tree: Path) -> None:
    """Without follow, the last component is what it is."""
    (tree / "link").symlink_to("/etc")
    with Root(str(tree)) as root:
        assert (root.stat("/link").st_mode & 0o170000, root.stat("/link", follow=False).st_mode & 0o170000) == (
            0o040000,
            0o120000,
        )


@pytest.mark.parametrize("kind", ["fifo", "folder", "socket", "link-loop"])
def test_only_regular_files_are_read(tree: Path, kind: str) -> None:
    """Nothing else is even opened for reading, so that nothing can block us."""
    path = tree / "thing"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link-loop":
        path.symlink_to("thing")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    with pytest.raises(OSError, match=r"regular file|symbolic links"):
        read(tree, "/thing")


def test_a_large_file_is_refused(tree: Path) -> None:
    """The limit holds for what is read, not for what the status says."""
    (tree / "large").write_bytes(b"x" * 1001)
    with pytest.raises(OSError, match="larger than 1000 bytes"):
        read(tree, "/large")


def test_read_gives_the_status_of_what_was_read(tree: Path) -> None:
    """Content and status belong to one file."""
    with Root(str(tree)) as root:
        data, status = root.read("/etc/file", 1000)
    assert (len(data), os.stat(tree / "etc/file").st_ino) == (status.st_size, status.st_ino)


def test_listdir_is_sorted_and_bounded(tree: Path) -> None:
    """Names come in order, and a folder of too many is refused."""
    for name in ("b", "a", "c"):
        (tree / "etc" / name).touch()
    with Root(str(tree)) as root:
        assert root.listdir("/etc", 4) == ["a", "b", "c", "file"]
        with pytest.raises(OSError, match="more than 3 entries"):
            root.listdir("/etc", 3)


@pytest.mark.parametrize("outer", ODD_NAMES)
@pytest.mark.parametrize("inner", ODD_NAMES)
def test_resolve_is_right_for_odd_names(tmp_path: Path, outer: str, inner: str) -> None:
    """Whatever the root and the file are called, the path below the root is found."""
    (tmp_path / outer / "deep").mkdir(parents=True)
    (tmp_path / outer / "deep" / inner).touch()
    (tmp_path / outer / "link").symlink_to(f"/deep/{inner}")
    with Root(str(tmp_path / outer)) as root:
        assert root.resolve("/link") == f"/deep/{inner}"
        assert root.resolve("/") == "/"


def test_resolve_through_links_on_the_way_to_the_root(tree: Path) -> None:
    """The root may be named by a link; paths are still relative to it."""
    link = tree.parent / "link"
    link.symlink_to(tree)
    with Root(str(link)) as root:
        assert root.resolve("/etc/file") == "/etc/file"


def test_resolve_of_the_host_root() -> None:
    """The root `/` has no prefix to take away."""
    with Root("/") as root:
        assert root.resolve("/proc/self/../version") == "/proc/version"


def test_a_sibling_with_a_longer_name_is_outside(tree: Path) -> None:
    """The root's name is compared as components, not as text."""
    sibling = tree.parent / "rootX"
    sibling.mkdir()
    fd = os.open(sibling, os.O_PATH)
    try:
        with Root(str(tree)) as root, pytest.raises(OSError, match="outside"):
            root.path_of(fd)
    finally:
        os.close(fd)


def test_a_removed_file_has_no_path(tree: Path) -> None:
    """The kernel's " (deleted)" is not mistaken for a name."""
    with Root(str(tree)) as root:
        fd = root.open("/etc/file")
        (tree / "etc/file").unlink()
        (tree / "etc/file (deleted)").touch()
        with pytest.raises(FileNotFoundError):
            root.path_of(fd)
        os.close(fd)


def test_a_nul_is_refused(tree: Path) -> None:
    """A NUL would cut the path short in the kernel."""
    with Root(str(tree)) as root, pytest.raises(OSError, match="NUL"):
        root.open("/etc/file\0/x")


def test_files_can_be_made(tree: Path) -> None:
    """With O_CREAT and a mode, the file lands inside."""
    (tree / "out").symlink_to("/../etc")
    with Root(str(tree)) as root:
        os.close(root.open("/out/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode=0o640))
    assert (tree / "etc/new").stat().st_mode & 0o777 == 0o640


def test_descriptors_are_closed_on_exec(tree: Path) -> None:
    """Nothing leaks into a program that we start."""
    with Root(str(tree)) as root:
        fd = root.open("/etc")
        assert not any(os.get_inheritable(each) for each in (fd, root.fd))
        os.close(fd)


def test_a_root_of_a_descriptor_is_its_own(tree: Path) -> None:
    """The descriptor is duplicated: closing the Root leaves the caller's alone, twice as well."""
    fd = os.open(tree, os.O_PATH)
    root = Root(fd)
    assert root.listdir("/", 10) == ["etc"]
    root.close()
    root.close()
    os.fstat(fd)
    os.close(fd)


def test_a_root_that_is_no_folder_leaks_nothing(tree: Path) -> None:
    """A failed constructor leaves no descriptor behind."""
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(NotADirectoryError):
        Root(str(tree / "etc/file"))
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_foreign_proc_does_not_fool_reopen(tree: Path) -> None:
    """Where procfs is not ours, the file that it names is not the one that we hold."""
    (tree / "self/fd").mkdir(parents=True)
    proc = os.open(tree, os.O_PATH)
    with Root(str(tree), proc=proc) as root:
        fd = root.open("/etc/file")
        (tree / f"self/fd/{fd}").write_text("forged")
        with pytest.raises(OSError, match="exchanged"):
            root.reopen(fd)
        os.close(fd)
    os.close(proc)


def test_an_old_kernel_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without openat2 there is one way out: nvidia-container-cli."""
    monkeypatch.setattr(beneath, "_SYS_OPENAT2", 1_000_000)  # a call that no kernel has
    with Root(str(tree)) as root, pytest.raises(KernelTooOld, match="openat2") as caught:
        root.open("/etc")
    assert "nvidia-container-cli" in caught.value.hint


def test_resolution_survives_a_neighbour_who_renames(tree: Path) -> None:
    """While names change under us, we get the file, or an error, never what is outside."""
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/up").symlink_to("../../../../secret")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(tree / "a", tree / "c")
            os.rename(tree / "c", tree / "a")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        with Root(str(tree)) as root:
            for _ in range(2000):
                with pytest.raises(OSError, match=r"No such file|temporarily"):
                    root.read("/a/b/up", 100)
    finally:
        stop.set()
        thread.join()


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.lists(st.sampled_from(["..", ".", "", "etc", "file", "secret", "proc", "self"])).map("/".join))
def test_no_path_leads_to_the_secret(tmp_path: Path, path: str) -> None:
    """Whatever the components, nothing outside is reached."""
    root = tmp_path / "r"
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (tmp_path / "secret").write_text("outside")
    with Root(str(root)) as opened:
        try:
            found = opened.resolve(f"/{path}")
        except OSError:
            return
    assert found in ("/", "/etc")
