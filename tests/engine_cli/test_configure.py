"""`configure` in real namespaces and under real runtimes: our engine behind nvidia-container-cli's options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.driver.model import FakeDriver
from gpuhook.launchers import write_launcher
from tests.engine_cli.cli import Cli
from tests.rig.container import Hook
from tests.rig.init import Init
from tests.rig.needs import need, unified_host
from tests.rig.process import run
from tests.rig.rootfs import make_rootfs
from tests.rig.snapshot import Snapshot, snapshot
from tests.runtime.node import COMMON, PAIRS, Node

pytestmark = pytest.mark.engine

GROUP = not unified_host()
RULES = () if GROUP else ("--no-cgroups",)
EACH_RUNTIME = pytest.mark.parametrize(("runtime", "cgroup"), PAIRS)


@pytest.fixture
def rootfs(tmp_path: Path) -> str:
    return make_rootfs(f"{tmp_path}/rootfs", "debian")


def configured(cli: Cli, init: Init, *words: str) -> None:
    """Configures this process's container, in silence."""
    done = cli("configure", f"--pid={init.pid}", *RULES, *words, init.rootfs)
    assert (done.status, done.stdout, done.stderr) == (0, "", "")


def test_it_does_what_the_hook_does(node: Node, cli_of_node: Cli, tmp_path: Path) -> None:
    """The same mounts with the same flags, the same files, the same rules as the embedded backend."""
    outcomes = []
    for name in ("hook", "cli"):
        with Init(make_rootfs(f"{tmp_path}/{name}", "debian"), group=GROUP) as init:
            if name == "hook":
                done = node.prestart(init, "NVIDIA_VISIBLE_DEVICES=2,0", "NVIDIA_DRIVER_CAPABILITIES=all")
                assert done.status == 0, done.stderr
            else:
                configured(cli_of_node, init, "-d2,0", "-cugvDn", "--compat32", "--ldconfig=@/sbin/ldconfig")
            seen = init.run("/bin/probe", "devices", "dlopen:libcuda.so.1", "dlopen:libnvidia-ml.so.1").seen
            outcomes.append((init.mount_points, init.rules if GROUP else [], seen.devices, tree_of(init.rootfs)))
    hooks, clis = outcomes
    assert {path: clis[3].get(path) for path in hooks[3] if hooks[3][path] != clis[3].get(path)} == {}
    assert hooks == clis
    assert len(hooks[0]) > 50


def tree_of(rootfs: str) -> dict[str, object]:
    """What is in a tree, by path below it, without the notes of the ldconfig that made it, which hold times."""
    entries = snapshot(rootfs, mounts=False).entries
    return {path.removeprefix(rootfs): entry for path, entry in entries.items() if not path.endswith("/aux-cache")}


@pytest.fixture
def cli_of_node(node: Node) -> Cli:
    """The command over the driver of the node."""
    return Cli(str(write_launcher(Path(node.folder), "nvidia-container-cli")), node.driver.root)


def test_capabilities_choose_files(cli: Cli, rootfs: str) -> None:
    """Without one there are only nodes, procfs and firmware; utility brings its programs and sockets."""
    with Init(rootfs, group=GROUP) as init:
        configured(cli, init, "-d0")
        bare = set(init.mount_points)
        configured(cli, init, "-d0", "--utility")
        more = set(init.mount_points) - bare
    assert {"/dev/nvidiactl", "/dev/nvidia2", "/lib/firmware/nvidia/550.54.14/gsp_ga10x.bin"} <= {
        point.replace("/usr/lib/firmware", "/lib/firmware") for point in bare
    }
    assert not any(".so" in point or "/bin/" in point for point in bare)
    assert "/usr/bin/nvidia-smi" in more
    assert any("libnvidia-ml.so" in point for point in more)
    assert not any("libcuda.so" in point for point in more)


@pytest.mark.parametrize(
    ("option", "gone"),
    [
        ("--no-devbind", "/dev/nvidia"),
        ("--no-persistenced", "/run/nvidia-persistenced/socket"),
        ("--no-fabricmanager", "/run/nvidia-fabricmanager/socket"),
        ("--no-gsp-firmware", "/usr/lib/firmware"),
    ],
)
def test_options_leave_things_out(cli: Cli, tmp_path: Path, option: str, gone: str) -> None:
    """What they name is not mounted, everything else is; rules for devices stay with --no-devbind."""
    points: list[set[str]] = []
    rules: list[list[str]] = []
    for words in ((), (option,)):
        with Init(make_rootfs(f"{tmp_path}/{len(points)}", "debian"), group=GROUP) as init:
            configured(cli, init, "-d0", "-cu", *words)
            points.append(set(init.mount_points))
            rules.append(init.rules if GROUP else [])
    assert points[1] == {point for point in points[0] if not point.startswith(gone)} != points[0]
    assert rules[0] == rules[1]


@pytest.mark.skipif(not GROUP, reason="a devices cgroup without a runtime needs version 1")
@pytest.mark.parametrize(("words", "ruled"), [((), True), (("--no-cgroups",), False)])
def test_no_cgroups(cli: Cli, rootfs: str, words: tuple[str, ...], ruled: bool) -> None:
    """Rules are written, or the cgroup is left alone."""
    with Init(rootfs, group=True) as init:
        before = init.rules
        configured(cli, init, "-d1", *words)
        after = init.rules
    assert (after != before) == ruled
    assert ("c 195:0 rw" in after) == ruled


def test_twice_is_once(cli: Cli, rootfs: str) -> None:
    """A second run finds everything in place."""
    with Init(rootfs, group=GROUP) as init:
        configured(cli, init, "-dall", "-cu")
        mounts = init.mounts
        configured(cli, init, "-dall", "-cu")
        assert init.mounts == mounts


@pytest.mark.parametrize("user", ["--user", "--user=12345:54321", "-u0:0", "--user=root"])
def test_users_ask_the_driver(cli: Cli, rootfs: str, user: str) -> None:
    """A requirement that NVML has to answer holds, whoever asks it."""
    with Init(rootfs, group=GROUP) as init:
        words = ("configure", f"--pid={init.pid}", *RULES, "-d0", "-r", "arch>=7.5", init.rootfs)
        done = cli(*words, top=(user,))
    assert (done.status, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "options", [("-k",), ("-n",), ("--no-create-imex-channels",), ("--ldcache=/etc/ld.so.cache",)]
)
def test_global_options_are_taken(cli: Cli, rootfs: str, options: tuple[str, ...]) -> None:
    """They may stand before the command, and the container gets its GPU."""
    with Init(rootfs, group=GROUP) as init:
        done = cli("configure", f"--pid={init.pid}", *RULES, "-d0", init.rootfs, top=options)
        assert (done.status, done.stderr) == (0, "")
        assert "/dev/nvidia2" in init.mount_points


# --- processes that are no container (AC-58) ---


def host(driver: FakeDriver, rootfs: str) -> Snapshot:
    return snapshot(driver.folder, rootfs)


def test_a_process_of_the_host(cli: Cli, driver: FakeDriver, rootfs: str) -> None:
    """Our own mount namespace is the host's: refused, and nothing has changed."""
    before = host(driver, rootfs)
    line = cli.refusal("configure", f"--pid={os.getpid()}", "-dall", "-cu", rootfs)
    assert line.startswith(f"container error: process {os.getpid()} is in our own mount namespace")
    assert before.differences(host(driver, rootfs)) == []


def test_a_process_of_the_host_from_elsewhere(cli: Cli, driver: FakeDriver, rootfs: str) -> None:
    """The same for a caller in a mount namespace of its own, also where the root is a mount on the host."""
    need("unshare")
    before = host(driver, rootfs)
    machine = ["unshare", "-pfm", "--mount-proc", "busybox", "sh", "-c", 'mount -o bind "$0" "$0"; "$@"', rootfs]
    callers: list[tuple[list[str], int]] = [([], os.getpid()), (machine, 1)]
    for caller, pid in callers:
        words = [cli.program, f"--root={cli.root}", "configure", f"--pid={pid}", "-dall", rootfs]
        done = run([*caller, "unshare", "-m", *words])
        assert done.status == 1
        assert done.stderr.startswith(f"nvidia-container-cli: container error: process {pid} "), done.stderr
        assert "in the host's mount namespace" in done.stderr or not caller
    assert before.differences(host(driver, rootfs)) == []


@pytest.mark.parametrize("pid", [[], ["--pid=0"], ["--pid=-5"]], ids=str)
def test_standalone_needs_procfs_in_the_root(cli: Cli, driver: FakeDriver, rootfs: str, pid: list[str]) -> None:
    """Without a pid the container is our parent, which its own /proc has to show."""
    before = host(driver, rootfs)
    line = cli.refusal("configure", *pid, "-dall", rootfs)
    assert line == f"container error: stat failed: {rootfs}/proc/{os.getpid()}: no such file or directory"
    assert before.differences(host(driver, rootfs)) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [('exec "$@"', "nvidia-container-cli: container error: "), ('"$@"; exit $?', "is in our own mount namespace")],
)
def test_standalone_never_mounts_on_the_host(
    cli: Cli, driver: FakeDriver, rootfs: str, script: str, message: str
) -> None:
    """A parent on the host, or one in the same namespace as we: refused, and the mount table stays."""
    need("unshare")
    before = host(driver, rootfs)
    shell = ["unshare", "-m", "busybox", "sh", "-c", f'mount -t proc proc "$0/proc"; {script}', rootfs]
    done = run([*shell, cli.program, f"--root={cli.root}", "configure", "-dall", "-cu", rootfs])
    assert (done.status, message in done.stderr.splitlines()[0]) == (1, True), done.stderr
    assert before.differences(host(driver, rootfs)) == []


# --- in the place of nvidia-container-cli ---


def cli_config(node: Node, path: str) -> str:
    return node.config(backend="nvidia-container-cli", cli={"path": path})


def wrapper(node: Node, program: str) -> str:
    """A program that the hook does not know as ours: it notes its arguments and becomes gpuhook-cli."""
    return node.script(f'printf "%s\\n" "$@" > {node.folder}/wrapped; exec {program} "$@"\n')


@pytest.mark.runtime
@EACH_RUNTIME
def test_a_hook_that_executes_it(node: Node, cli_of_node: Cli, runtime: str, cgroup: str) -> None:
    """With the reference's own command line: the container gets what the embedded backend gives."""
    questions = ("devices", "mounts", "dlopen:libcuda.so.1", "rule:195:0", "rule:195:1", "rule:195:2", "fds", "env")
    env = ("NVIDIA_DRIVER_CAPABILITIES=compute,utility", "NVIDIA_REQUIRE_CUDA=cuda>=12.0 brand=tesla,driver>=470")
    seen = []
    for config in (node.config(), cli_config(node, wrapper(node, cli_of_node.program))):
        hooks = {"prestart": [Hook(node.launcher, ("--config", config, "prestart"))]}
        result = node.run(*questions, gpus="1", env=env, hooks=hooks, runtime=runtime, cgroup=cgroup)
        assert result.status == 0, result.stderr
        assert not result.mounts_leaked
        seen.append(result.seen)
    embedded, executed = seen
    assert f"--root={node.driver.root}" in Path(f"{node.folder}/wrapped").read_text().splitlines()
    assert executed.devices == embedded.devices
    assert sorted(executed.devices) == sorted((*COMMON, "/dev/nvidia0"))
    assert executed.rules == embedded.rules == {(195, 0): True, (195, 1): False, (195, 2): False}
    assert executed.mount_points == embedded.mount_points
    assert executed.library("libcuda.so.1") == embedded.library("libcuda.so.1")
    assert executed.library("libcuda.so.1")["cuda"] == 12040


@pytest.mark.runtime
@pytest.mark.parametrize(
    ("gpus", "env", "line"),
    [
        ("7", (), "nvidia-container-cli: device error: 7: unknown device"),
        (
            "0",
            ("NVIDIA_REQUIRE_CUDA=cuda>=99",),
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=99, ",
        ),
    ],
)
def test_its_refusals_reach_the_user(node: Node, cli_of_node: Cli, gpus: str, env: tuple[str, ...], line: str) -> None:
    """The container does not start, and the runtime shows the words that people know."""
    config = cli_config(node, wrapper(node, cli_of_node.program))
    hooks = {"prestart": [Hook(node.launcher, ("--config", config, "prestart"))]}
    result = node.run("id", gpus=gpus, env=env, hooks=hooks)
    assert (result.status != 0, result.stdout) == (True, "")
    assert line in result.stderr


@pytest.mark.runtime
def test_its_launcher_as_path_means_the_embedded_backend(node: Node, cli_of_node: Cli) -> None:
    """The hook knows its own program and does the work itself: nothing is executed, the outcome is the same."""
    log = f"{node.folder}/as-path.log"
    hook = node.hook(config=cli_config(node, cli_of_node.program), log=log)
    result = node.run("devices", "dlopen:libcuda.so.1", gpus="1", hooks={"prestart": [hook]})
    assert result.status == 0, result.stderr
    assert sorted(result.seen.devices) == sorted((*COMMON, "/dev/nvidia0"))
    assert result.seen.library("libcuda.so.1")["cuda"] == 12040
    assert "nvidia-container-cli: " not in Path(log).read_text()
