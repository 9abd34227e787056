"""Messages that people and programs look for: the first line is nvidia-container-cli's (engine.md 1.8 and 9)."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import Behaviour, FakeDriver
from gpuhook.driver.query import gpu_facts
from gpuhook.engine_cli import main, show
from tests.engine_cli.cli import Cli, as_nobody
from tests.rig.init import Init
from tests.rig.needs import need
from tests.rig.process import run
from tests.rig.rootfs import TRIPLET, make_rootfs, put

NO_NVML = "load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory"
UPDATE = "please update your driver to a newer version, or use an earlier cuda container"
ABSENT, INVALID = "no such file or directory", "invalid argument"


def fake(folder: Path, **fields: Any) -> FakeDriver:
    need("gcc")
    return build(f"{folder}/root", **fields)


# --- the command line ---


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("configure rootfs", "input error: invalid rootfs directory"),
        ("configure /", "input error: invalid rootfs directory"),
        ("configure --pid=x /r", f"input error: parse pid failed: {INVALID}"),
        ("configure --pid= /r", f"input error: parse pid failed: {INVALID}"),
        ("configure --pid=99999999999 /r", "input error: parse pid failed: numerical result out of range"),
        ("configure --pid=x --foo", f"input error: parse pid failed: {INVALID}"),
        ("--user=nobody-of-this-name list", f"input error: parse user/group failed: {ABSENT}"),
        ("-u1x list", f"input error: parse user/group failed: {INVALID}"),
        ("-u99999999999:0 info", "input error: parse user/group failed: numerical result out of range"),
        ("configure " + "-r a " * 33 + "/r", "input error: too many requirements"),
        ("configure --cuda-compat-mode=x /r", "input error: invalid cuda-compat-mode: x"),
        ("list --imex-channel=a", "error parsing IMEX info: unsupported IMEX channel value: a"),
        ("list --imex-channel=0,1048576", "error parsing IMEX info: unsupported IMEX channel value: 1048576"),
        ("list --imex-channel=-1", "error parsing IMEX info: unsupported IMEX channel value: -1"),
        ("configure --imex-channel=1,+2 /r", "error parsing IMEX info: unsupported IMEX channel value: +2"),
        ("--root= list", f"initialization error: {INVALID}"),
        ("--root=relative info", f"initialization error: {INVALID}"),
        ("--ldcache= info", f"initialization error: {INVALID}"),
        ("--root=/nowhere/at/all list", f"initialization error: change root failed: {ABSENT}"),
    ],
)
def test_bad_values(program: str, words: str, line: str) -> None:
    """One line with prefix and detail, and exit status 1."""
    assert Cli(program).refusal(*words.split()) == line


@pytest.mark.parametrize(
    ("words", "name", "level"),
    [
        ("--foo list", "{program}: unrecognized option '--foo'", ""),
        ("-d", "{program}: option requires an argument -- 'd'", ""),
        ("list --foo", "nvidia-container-cli list: unrecognized option '--foo'", " list"),
        ("info --csv=1", "nvidia-container-cli info: option '--csv' doesn't allow an argument", " info"),
        ("configure --pid", "nvidia-container-cli configure: option '--pid' requires an argument", " configure"),
        ("configure -x", "nvidia-container-cli configure: invalid option -- 'x'", " configure"),
        ("list word", "nvidia-container-cli list: Too many arguments", " list"),
        ("info --csv word", "nvidia-container-cli info: Too many arguments", " info"),
        ("configure /a /b", "nvidia-container-cli configure: Too many arguments", " configure"),
    ],
)
def test_usage_errors(program: str, words: str, name: str, level: str) -> None:
    """A global one names the program as it was started, a command's one the command; then where help is."""
    done = Cli(program)(*words.split())
    first, *others = done.stderr.splitlines()
    assert (done.status, done.stdout, first) == (1, "", name.format(program=program))
    command = f"nvidia-container-cli{level}"
    assert " ".join(others) == f"Try `{command} --help' or `{command} --usage' for more information."


@pytest.mark.parametrize("words", ["", "frobnicate", "--no-pivot", "configure", "configure --pid=1"])
def test_an_incomplete_command_line(program: str, words: str) -> None:
    """Without a command, or configure without its ROOTFS: the usage, on stderr."""
    done = Cli(program)(*words.split())
    assert (done.status, done.stdout) == (1, "")
    assert done.stderr.startswith("Usage: nvidia-container-cli ")
    assert "--help' or" in done.stderr


@pytest.mark.parametrize("level", [(), ("info",), ("list",), ("configure",)])
@pytest.mark.parametrize("word", ["--help", "-?", "--usage", "--usa", "-V", "--version"])
def test_what_is_answered_at_once(program: str, level: tuple[str, ...], word: str) -> None:
    """On stdout with exit status 0, at every level, whatever follows."""
    done = Cli(program)(*level, word, "--foo")
    assert (done.status, done.stderr) == (0, "")
    if word in ("-V", "--version"):
        keys = [line.partition(":")[0] for line in done.stdout.splitlines()]
        built = [f"build {what}" for what in ("date", "revision", "compiler", "platform", "flags")]
        assert keys == ["cli-version", "lib-version", *built]
        assert done.stdout.splitlines()[:2] == ["cli-version: 1.17.0", "lib-version: 1.17.0"]
    else:
        assert done.stdout.startswith(f"Usage: {' '.join(('nvidia-container-cli', *level))} ")


def test_configure_wants_capabilities(driver: FakeDriver) -> None:
    """Without root it is refused before anything is looked at."""
    status, out, err = as_nobody(driver.root, "configure", "--pid=1", "/r")
    assert (status, out) == (1, "")
    line = "nvidia-container-cli: permission error: capability change failed: operation not permitted"
    assert err.splitlines()[0] == line


def test_a_message_is_escaped(cli: Cli) -> None:
    """What an image's author wrote cannot forge lines or steer a terminal."""
    done = cli("list", "-d", "x\x1b[31m\ny")
    first = "nvidia-container-cli: device error: x\\x1b[31m\\ny: unknown device"
    assert done.stderr.splitlines()[0] == first


def test_our_own_lines_follow(cli: Cli) -> None:
    """What there is, where, and what to do, are below the first line."""
    lines = cli("list", "-d", "7").stderr.splitlines()
    assert lines[1].startswith("  GPU 7 was requested, and this host has 3: 0 = GPU-0a")
    assert lines[2] == "  in --device"
    assert lines[3].startswith("  hint: indices go from 0 to 2")


@pytest.mark.parametrize("stream", ["/dev/full"])
def test_a_full_disk_is_no_success(cli: Cli, stream: str) -> None:
    """Output that is lost is an error."""
    done = run(["busybox", "sh", "-c", f'exec "$@" > {stream}', "sh", cli.program, f"--root={cli.root}", "list"])
    assert done.status == 1
    assert done.stderr == "nvidia-container-cli: output error: No space left on device\n"


# --- the driver ---


@pytest.mark.parametrize("words", [("info",), ("list",), ("configure", "--dry-run", "/r")])
def test_no_driver(program: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    """An empty driver root, or one where nothing of the driver is: NVML cannot be loaded."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other/etc").mkdir(parents=True)
    (tmp_path / "r").mkdir()
    words = tuple(word if word != "/r" else f"{tmp_path}/r" for word in words)
    for root in ("empty", "other"):
        assert Cli(program, f"{tmp_path}/{root}").refusal(*words) == f"initialization error: {NO_NVML}"


def test_libraries_without_the_module(program: str, tmp_path: Path) -> None:
    """NVML is there and would say this."""
    driver = fake(tmp_path, module_loaded=False)
    assert Cli(program, driver.root).refusal("list") == "initialization error: nvml error: driver not loaded"


def test_the_module_without_libraries(program: str, tmp_path: Path) -> None:
    """The kernel's part runs, the rest is not installed."""
    driver = fake(tmp_path, without=("libcuda.so", "libnvidia-ml.so"))
    assert Cli(program, driver.root).refusal("list") == f"initialization error: {NO_NVML}"


def test_two_versions(program: str, tmp_path: Path) -> None:
    """Libraries of another version than the module: refused, with both versions below."""
    driver = fake(tmp_path, libraries_version="535.161.08")
    cli = Cli(program, driver.root)
    assert cli.refusal("list") == "initialization error: nvml error: driver/library version mismatch"
    assert "kernel module 550.54.14, libraries 535.161.08" in cli("list").stderr.splitlines()[1]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (9, "driver not loaded"),
        (4, "insufficient permissions"),
        (18, "driver/library version mismatch"),
        (999, "unknown error"),
    ],
)
def test_nvml_refuses(program: str, tmp_path: Path, status: int, text: str) -> None:
    """Its own words, in lower case."""
    driver = fake(tmp_path, nvml=Behaviour(status=status))
    assert Cli(program, driver.root).refusal("info") == f"initialization error: nvml error: {text}"


def test_nvml_crashes(program: str, tmp_path: Path) -> None:
    """The child dies, and this process lives to tell."""
    driver = fake(tmp_path, nvml=Behaviour(crashes=True))
    line = "initialization error: driver rpc error: failed to process request"
    assert Cli(program, driver.root).refusal("info") == line


def test_nvml_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """There is a limit, here a shorter one."""
    driver = fake(tmp_path, nvml=Behaviour(delay_ms=20_000))
    monkeypatch.setattr(show, "gpu_facts", partial(gpu_facts, seconds=0.2))
    assert main([f"--root={driver.root}", "info"]) == 1
    first = capfd.readouterr().err.splitlines()[0]
    assert first == "nvidia-container-cli: initialization error: driver rpc error: timed out"


def test_sixty_five_gpus(program: str, tmp_path: Path) -> None:
    """One more than NVML's limit; 64 are served."""
    gpus = [
        {"pci": f"0000:{bus:02x}:00.0", "uuid": f"GPU-00000000-0000-0000-0000-0000000001{bus:02x}"}
        for bus in range(1, 66)
    ]
    assert Cli(program, fake(tmp_path / "65", gpus=gpus).root).refusal("list") == "detection error: too many devices"
    lines = Cli(program, fake(tmp_path / "64", gpus=gpus[:64]).root).lines("list", "-dall")
    assert len(lines) == 4 + 64


@pytest.mark.parametrize("content", ["no cache", None])
def test_a_cache_that_is_none(program: str, tmp_path: Path, content: str | None) -> None:
    """Refused by the original; here the usual folders are searched."""
    driver = fake(tmp_path)
    before = Cli(program, driver.root).lines("list", "-l")
    cache = Path(driver.path("/etc/ld.so.cache"))
    cache.unlink()
    if content:
        cache.write_text(content)
    assert Cli(program, driver.root).lines("list", "-l") == before == list(driver.libraries)


def test_without_a_path(program: str, driver: FakeDriver) -> None:
    """Refused by the original; a hook may well be started without PATH, and the usual folders are known."""
    done = run([program, f"--root={driver.root}", "list", "-b"], env={})
    assert (done.status, done.stdout.splitlines()) == (0, list(driver.binaries))


# --- devices and requirements ---


@pytest.mark.parametrize(
    ("names", "element"),
    [
        *((name, name) for name in ("7", "none", "void", "0x1", "-1", "MIG-1", "0:5", "0:1:0:0", "GPU-1", "GPU-")),
        ("GPU-ffffffff-0000-0000-0000-000000000000", "GPU-ffffffff-0000-0000-0000-000000000000"),
        ("0,9,8", "9"),
        ("all,bogus", "bogus"),
    ],
)
def test_unknown_devices(cli: Cli, names: str, element: str) -> None:
    """The first element that means nothing is named."""
    assert cli.refusal("list", f"--device={names}") == f"device error: {element}: unknown device"
    assert cli.refusal("configure", "--dry-run", "-d", names, "/usr") == f"device error: {element}: unknown device"


@pytest.mark.parametrize("kind", ["mig-config", "mig-monitor"])
@pytest.mark.parametrize("command", [("list",), ("configure", "--dry-run", "/usr")])
def test_only_the_whole_of_mig(program: str, cut: FakeDriver, kind: str, command: tuple[str, ...]) -> None:
    """Anything but all is refused, and so is all beside single MIG devices."""
    cli = Cli(program, cut.root)
    refused = cli.refusal(*command, "-d0", f"--{kind}=0")
    assert refused == f"{kind} error: 0: only 'all' devices are currently supported"
    refused = cli.refusal(*command, "-d", "0:1", f"--{kind}=all")
    assert refused == f"{kind} error: all: cannot enable {kind} with specific MIG devices selected"


@pytest.mark.parametrize(
    ("expression", "detail"),
    [
        ("cuda>=99", f"unsatisfied condition: cuda>=99, {UPDATE}"),
        ("CUDA>=99", "unsatisfied condition: CUDA>=99"),
        ("cuda>=99.0 brand=nvs,driver>=1", f"unsatisfied condition: cuda>=99.0, {UPDATE}"),
        ("driver>=999 cuda>=99.0", "unsatisfied condition: driver>=999"),
        (" cuda>=99.0", "unsatisfied condition: "),
        ("cuda>=12,arch>=99", f"unsatisfied condition: cuda>=12,arch>=99, {UPDATE}"),
        ("brand=tesla,driver>=470,driver<471", "unsatisfied condition: brand=tesla,driver>=470,driver<471"),
        ("foo>=1", "invalid expression"),
        ("cuda==12", "invalid expression"),
        ("brand>=tesla", "invalid expression"),
    ],
)
def test_requirements(cli: Cli, expression: str, detail: str) -> None:
    """The first alternative as it was given, with advice where it asks for a newer CUDA."""
    refused = cli.refusal("configure", "--dry-run", "-d0", "-r", "cuda>=1", "--require", expression, "/usr")
    assert refused == f"requirement error: {detail}"


@pytest.mark.parametrize(
    "expression", ["", "cuda>=12.4", "arch>=7.5", "brand=TESLA", "cuda>=99 driver>=550", "cuda!12", "cuda>=12 foo=1"]
)
def test_requirements_that_hold(cli: Cli, expression: str) -> None:
    """Nothing is said."""
    done = cli("configure", "--dry-run", "-d0", f"--require={expression}", "/usr")
    assert (done.status, done.stderr) == (0, "")


# --- nodes ---


def test_nodes_that_must_exist(program: str, tmp_path: Path) -> None:
    """The control node always, modeset's with display, UVM's never."""
    driver = fake(tmp_path, uvm_major=None)
    cli = Cli(program, driver.root)
    Path(driver.path("/dev/nvidia-modeset")).unlink()
    assert cli("configure", "--dry-run", "-d0", "-cugvn", "/usr").status == 0
    line = "mount error: stat failed: /dev/nvidia-modeset: no such file or directory"
    assert cli.refusal("configure", "--dry-run", "-d0", "--display", "/usr") == line
    Path(driver.path("/dev/nvidiactl")).unlink()
    line = "mount error: stat failed: /dev/nvidiactl: no such file or directory"
    assert cli.refusal("configure", "--dry-run", "-d0", "/usr") == line


def test_a_node_of_another_number(program: str, tmp_path: Path) -> None:
    """Another device under a GPU's name is not given."""
    driver = fake(tmp_path, gpus=[{"state": "wrong-node"}, {}])
    line = "mount error: invalid device node: /dev/nvidia0"
    assert Cli(program, driver.root).refusal("configure", "--dry-run", "-d0", "/usr") == line


# --- the container ---


def test_a_container_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    """No such process, no such root, a root that is no folder."""
    gone = next(pid for pid in range(4_000_000, 5_000_000) if not os.path.exists(f"/proc/{pid}"))
    line = f"container error: open failed: /proc/{gone}/root/: {ABSENT}"
    assert cli.refusal("configure", f"--pid={gone}", "/r") == line
    rootfs = make_rootfs(f"{tmp_path}/rootfs")
    with Init(rootfs) as init:
        line = f"container error: open failed: /proc/{init.pid}/root/nowhere/r: {ABSENT}"
        assert cli.refusal("configure", f"--pid={init.pid}", "/nowhere/r") == line
        line = f"container error: open failed: /proc/{init.pid}/root/etc/passwd: not a directory"
        assert cli.refusal("configure", f"--pid={init.pid}", "/etc/passwd") == line


def test_without_cgroups_in_sight(cli: Cli, tmp_path: Path) -> None:
    """Where no hierarchy is mounted there is nothing to write rules into."""
    need("unshare")
    with Init(make_rootfs(f"{tmp_path}/rootfs")) as init:
        hidden = ["unshare", "-m", "busybox", "sh", "-c", 'umount -l /sys/fs/cgroup; exec "$@"', "sh"]
        done = run([*hidden, cli.program, f"--root={cli.root}", "configure", f"--pid={init.pid}", init.rootfs])
        points = init.mount_points
    assert done.stderr.splitlines()[0] == "nvidia-container-cli: container error: cgroup subsystem devices not found"
    assert not [point for point in points if "nvidia" in point]


def test_absurd_repetition(cli: Cli, tmp_path: Path) -> None:
    """The words of capabilities are limited as in the original."""
    with Init(make_rootfs(f"{tmp_path}/rootfs")) as init:
        words = ("configure", f"--pid={init.pid}", "--no-cgroups", init.rootfs)
        assert cli.refusal(*words, "-" + "u" * 32) == "container error: too many options"
        assert cli.refusal(*words, "--dry-run", "-" + "u" * 32) == "container error: too many options"
        assert cli(*words, "-" + "u" * 20).status == 0


def test_a_read_only_root(cli: Cli, tmp_path: Path) -> None:
    """What would have to be made cannot be."""
    with Init(make_rootfs(f"{tmp_path}/rootfs", "debian"), readonly=True) as init:
        line = cli.refusal("configure", f"--pid={init.pid}", "--no-cgroups", "-u", init.rootfs)
    assert line == f"mount error: file creation failed: {init.rootfs}/usr/bin/nvidia-smi: read-only file system"


def test_a_folder_in_the_way(cli: Cli, tmp_path: Path) -> None:
    """A file cannot be put where the image has a folder."""
    rootfs = make_rootfs(f"{tmp_path}/rootfs", "debian")
    place = f"usr/lib/{TRIPLET}/libcuda.so.550.54.14"
    put(rootfs, {f"{place}/inside": "x"})
    with Init(rootfs) as init:
        line = cli.refusal("configure", f"--pid={init.pid}", "--no-cgroups", "-c", init.rootfs)
    assert line == f"mount error: file creation failed: {rootfs}/{place}: is a directory"


def test_a_fault_of_ours_is_a_line(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever happens, there is no traceback, and the status is 1."""

    def broken(*_arguments: object) -> int:
        raise KeyError("x\x1b")

    monkeypatch.setattr(show, "show_list", broken)
    assert main([f"--root={driver.root}", "list"]) == 1
    first, second, third = capfd.readouterr().err.splitlines()
    assert first == "nvidia-container-cli: internal error: KeyError: 'x\\x1b'"
    assert "test_errors.py" in second
    assert "please report" in third
