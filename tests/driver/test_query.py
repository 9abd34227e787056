"""The driver's own libraries, asked in a child: good ones, and such as hang, crash and lie."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.driver.build import build
from fixtures.driver.model import Behaviour, FakeDriver
from gpuhook.driver.child import Confinement, NoAnswer, ask
from gpuhook.driver.inventory import take_inventory
from gpuhook.driver.model import Inventory
from gpuhook.driver.query import GpuFacts, arch_and_brand, cuda_version, gpu_facts, with_uuids
from gpuhook.refusals import DriverFault, DriverLibsMissing
from tests.rig.needs import need

Compile = Callable[[str], bytes]
NOTHING = Confinement()


@pytest.fixture(autouse=True)
def _reachable(tmp_path: Path) -> None:
    """A driver root is open to everybody, and the child is nobody."""
    tmp_path.chmod(0o755)


@pytest.fixture
def compile_library(tmp_path: Path) -> Compile:
    """A shared library from C source."""
    need("gcc", root=False)

    def compile_(source: str) -> bytes:
        out = tmp_path / "made.so"
        command = ["gcc", "-shared", "-fPIC", "-w", "-xc", "-", "-o", str(out)]
        subprocess.run(command, input=source, text=True, check=True)
        return out.read_bytes()

    return compile_


def with_libcuda(tmp_path: Path, data: bytes) -> Inventory:
    driver = build(str(tmp_path / "driver"))
    inventory = take_inventory(driver.host())
    Path(driver.path(driver.library("libcuda.so"))).write_bytes(data)
    return inventory


@pytest.mark.parametrize("version", [(9, 0), (11, 8), (12, 4), (13, 0)])
def test_the_cuda_version_is_libcudas(tmp_path: Path, version: tuple[int, int]) -> None:
    """What cuDriverGetVersion says, as people write it."""
    driver = build(str(tmp_path), cuda=version)
    assert cuda_version(take_inventory(driver.host())) == f"{version[0]}.{version[1]}"


def test_without_libcuda_there_is_no_version(tmp_path: Path) -> None:
    """The name and version of what is missing are said."""
    driver = build(str(tmp_path), without=("libcuda.so",))
    with pytest.raises(DriverLibsMissing, match=r"no 64-bit libcuda\.so\.550\.54\.14"):
        cuda_version(take_inventory(driver.host()))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("int cuDriverGetVersion(int *v) { *v = -7; return 0; }", "CUDA version is -7"),
        ("int cuDriverGetVersion(int *v) { *v = 0; return 0; }", "CUDA version is 0"),
        ("int cuDriverGetVersion(int *v) { *v = 2147483647; return 0; }", "CUDA version is 2147483647"),
        ("int cuDriverGetVersion(int *v) { return 0; }", "CUDA version is -1"),
        ("int cuDriverGetVersion(int *v) { return 999; }", "cuDriverGetVersion returned 999"),
        ("int other;", "undefined symbol: cuDriverGetVersion"),
        ("int cuDriverGetVersion(int *v) { *(int *)8 = 1; return 0; }", "crashed with SIGSEGV"),
        ("int cuDriverGetVersion(int *v) { __builtin_trap(); }", "crashed with SIGILL"),
        ("void abort(void); int cuDriverGetVersion(int *v) { abort(); }", "crashed with SIGABRT"),
        ("void _exit(int); int cuDriverGetVersion(int *v) { _exit(0); }", "it ended the process"),
        ("void _exit(int); __attribute__((constructor)) void f(void) { _exit(3); }", "it ended the process"),
        ("int missing(void); int cuDriverGetVersion(int *v) { return missing(); }", "missing"),
    ],
)
def test_a_bad_libcuda_is_refused(tmp_path: Path, compile_library: Compile, source: str, says: str) -> None:
    """Nonsense, errors and crashes end as one error that says what happened."""
    inventory = with_libcuda(tmp_path, compile_library(source))
    with pytest.raises(DriverFault) as caught:
        cuda_version(inventory)
    assert says in caught.value.text
    assert caught.value.where.endswith("/libcuda.so.550.54.14")


@pytest.mark.parametrize("wait", ["for (;;);", "pause();"])
def test_a_hanging_libcuda_is_left_behind(tmp_path: Path, compile_library: Compile, wait: str) -> None:
    """After the deadline the child is killed, and reaped."""
    inventory = with_libcuda(
        tmp_path, compile_library(f"int pause(void); int cuDriverGetVersion(int *v) {{ {wait} }}")
    )
    start = time.monotonic()
    with pytest.raises(DriverFault, match=r"did not answer within 0\.3 seconds"):
        cuda_version(inventory, seconds=0.3)
    assert time.monotonic() - start < 8
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_what_a_library_starts_is_killed_too(tmp_path: Path, compile_library: Compile) -> None:
    """A process that the library forks keeps nobody waiting and does not stay."""
    source = """
        int fork(void), pause(void);
        int cuDriverGetVersion(int *v) {
            int pid = fork();
            if (!pid) for (;;) pause();
            *v = 10000 + pid % 80000 / 10 * 10;
            return 0;
        }
    """
    ours = Path("/proc/self/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    before = running(ours)
    cuda_version(with_libcuda(tmp_path, compile_library(source)))
    wait_for(lambda: running(ours) <= before)


def running(command: list[str]) -> set[str]:
    """The processes of this command line, forks included."""
    return {name for name in filter(str.isdigit, os.listdir("/proc")) if command_of(name) == command}


def command_of(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return []


def test_what_a_library_prints_goes_nowhere(
    tmp_path: Path, compile_library: Compile, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its messages do not mix with ours, nor with a protocol on stdout."""
    source = """
        int puts(char *), fflush(void *);
        int cuDriverGetVersion(int *v) { puts("x"); fflush(0); *v = 12040; return 0; }
    """
    assert cuda_version(with_libcuda(tmp_path, compile_library(source))) == "12.4"
    assert capfd.readouterr() == ("", "")


def test_a_library_that_is_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    """Exchanged after the inventory was taken."""
    driver = build(str(tmp_path))
    inventory = take_inventory(driver.host())
    os.unlink(driver.path(driver.library("libcuda.so")))
    os.mkfifo(driver.path(driver.library("libcuda.so")))
    with pytest.raises(DriverFault, match="a FIFO"):
        cuda_version(inventory)


@pytest.mark.engine
def test_the_child_has_no_rights() -> None:
    """Another user, no groups, no capabilities, no way to get any."""
    need()
    status = ask(lambda: Path("/proc/self/status").read_text(), NOTHING, 5)
    facts = dict(line.split(":\t", 1) for line in status.split("\n") if ":\t" in line)
    assert facts["Uid"] == facts["Gid"] == "65534\t65534\t65534\t65534"
    assert facts["Groups"].strip() == ""
    assert {facts[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert facts["NoNewPrivs"] == "1"


def test_the_child_has_limits() -> None:
    """No core file, no file at all, and CPU time for some seconds."""
    limits = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU)
    assert ask(lambda: str([resource.getrlimit(each) for each in limits]), NOTHING, 5) == "[(0, 0), (0, 0), (10, 10)]"


@pytest.mark.engine
def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    """A hook that is killed leaves nobody behind (nvidia-container-cli's edge 41)."""
    need()
    source = "import time; from gpuhook.driver.child import *; ask(lambda: time.sleep(60), Confinement(), 60)"
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2]) as parent:
        wait_for(lambda: len(running(command)) == 2)
        parent.kill()
    wait_for(lambda: running(command) == set())


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(250):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to be within five seconds")


@pytest.mark.engine
def test_the_child_keeps_one_group_at_most() -> None:
    """The group of the driver's nodes, where they are kept to one."""
    need()
    assert ask(lambda: str(os.getgroups()), Confinement(group=44), 5) == "[44]"


def test_the_child_has_no_descriptors_of_ours() -> None:
    """Only the pipe, the file that it may keep, and /dev/null."""
    secret, kept = (os.open(path, os.O_RDONLY) for path in ("/etc/passwd", "/etc/hostname"))
    found = ask(lambda: " ".join(str(fd) for fd in range(256) if is_open(fd)), Confinement(file=kept), 5).split()
    os.close(secret)
    os.close(kept)
    assert str(secret) not in found
    assert str(kept) in found
    assert len(found) == 5


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_the_child_has_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours steers the driver's libraries."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    names = (b"CUDA_VISIBLE_DEVICES", b"PATH", b"HOME")
    assert getenv(names[0]) == b"7"
    assert ask(lambda: str([getenv(name) for name in names]), NOTHING, 5) == "[None, None, None]"


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (lambda: "x" * 300_000, "does not end"),
        (lambda: str(os.kill(os.getpid(), 9)), "crashed with SIGKILL"),  # type: ignore[func-returns-value]  # nor us
        (lambda: str(1 / 0), "it ended the process"),
        (lambda: str(os.stat("/nothing")), "No such file"),
    ],
)
def test_a_child_without_an_answer(question: Callable[[], str], says: str) -> None:
    """Whatever goes wrong in the child is a text here."""
    with pytest.raises(NoAnswer, match=says):
        ask(question, NOTHING, 5)


def test_a_child_under_an_ignored_sigchld() -> None:
    """A runtime may leave SIGCHLD ignored to us; the answer counts all the same."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert ask(lambda: "yes", NOTHING, 5) == "yes"
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.fixture(params=["debian", "driver-root"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> FakeDriver:
    need(root=False)
    return build(str(tmp_path), gpus=2, layout=request.param)


def test_nvml_tells_arch_and_brand(driver: FakeDriver) -> None:
    """For the GPUs that were asked for, by UUID; an unknown UUID is left out."""
    inventory = take_inventory(driver.host())
    assert arch_and_brand(inventory, [driver.gpus[1].uuid, "GPU-x"]) == {driver.gpus[1].uuid: ("7.5", "Tesla")}


def test_nothing_asked_nothing_started(driver: FakeDriver) -> None:
    """Without a GPU there is no question."""
    inventory = take_inventory(driver.host()).with_(libraries=())
    assert arch_and_brand(inventory, []) == {}
    assert with_uuids(inventory) is inventory


@pytest.mark.engine
def test_nvml_fills_in_uuids(tmp_path: Path) -> None:
    """What the kernel does not know yet, NVML does."""
    need()
    gpus = [{"pci": "0000:01:00.0", "state": "no-uuid"}, {"pci": "0000:02:00.0"}]
    driver = build(str(tmp_path), gpus=gpus)
    inventory = take_inventory(driver.host())
    assert [gpu.uuid for gpu in inventory.gpus] == ["", driver.gpus[1].uuid]
    assert [gpu.uuid for gpu in with_uuids(inventory).gpus] == [gpu.uuid for gpu in driver.gpus]


def test_a_lost_gpu_is_its_own_problem(tmp_path: Path) -> None:
    """NVML answers for the others; only who needs the lost one fails."""
    driver = build(str(tmp_path), gpus=[{"pci": "0000:01:00.0", "state": "lost"}, {"pci": "0000:02:00.0"}])
    inventory = take_inventory(driver.host())
    lost, good = (gpu.uuid for gpu in driver.gpus)
    assert arch_and_brand(inventory, [good]) == {good: ("7.5", "Tesla")}
    with pytest.raises(DriverFault, match=lost):
        arch_and_brand(inventory, [good, lost])


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        (Behaviour(status=18), "Driver/library version mismatch"),
        (Behaviour(status=9), "Driver Not Loaded"),
        (Behaviour(crashes=True), "crashed with SIGSEGV"),
        (Behaviour(delay_ms=5000), r"did not answer within 0\.5 seconds"),
    ],
)
def test_nvml_that_does_not_start(tmp_path: Path, behaviour: Behaviour, says: str) -> None:
    """Its own words, its signal, or the deadline."""
    driver = build(str(tmp_path), nvml=behaviour)
    inventory = take_inventory(driver.host())
    with pytest.raises(DriverFault, match=says):
        gpu_facts(inventory, inventory.gpus, seconds=0.5)


NVML = """
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int s) { return "No\\tsuch\\nthing"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *b, void **d) { *d = (void *)b; return b[9] == '3' ? 0 : 6; }
int nvmlDeviceGetUUID(void *d, char *to, unsigned n) { to[0] = 'u'; to[1] = 0; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { *a = 9; *b = 0; return 0; }
int nvmlDeviceGetBrand(void *d, unsigned *b) { *b = BRAND; return 0; }
"""


@pytest.mark.parametrize(
    ("brand", "name"), [("5", "GeForce"), ("16", "TitanRTX"), ("17", "Unknown"), ("-1", "Unknown")]
)
def test_a_gpu_is_looked_up_by_its_address(
    driver: FakeDriver, compile_library: Compile, brand: str, name: str
) -> None:
    """With a modern NVML only the GPUs in question are opened; an answer cannot break the form of ours."""
    inventory = take_inventory(driver.host())
    data = compile_library(NVML.replace("BRAND", brand))
    Path(driver.path(driver.library("libnvidia-ml.so"))).write_bytes(data)
    bad = inventory.gpus[0].with_(bus_id="00000000:99:00.0")
    assert gpu_facts(inventory, [inventory.gpus[0], bad]) == {
        "00000000:3b:00.0": GpuFacts(uuid="u", arch="9.0", brand=name),
        "00000000:99:00.0": GpuFacts(fault="NVML: No such thing (nvmlDeviceGetHandleByPciBusId_v2)"),
    }


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("nvmlInit_v2", "NVML has no function nvmlInit_v2"),
        ("nvmlDeviceGetHandleByPciBusId_v2", "NVML has no function nvmlDeviceGetCount_v2"),
        ("nvmlErrorString", "NVML: error 6"),
        ("nvmlDeviceGetBrand", "NVML: No such thing"),
    ],
)
def test_an_nvml_that_lacks_a_function(driver: FakeDriver, compile_library: Compile, lacks: str, says: str) -> None:
    """A missing function is an answer, not an accident."""
    inventory = take_inventory(driver.host())
    source = "\n".join(line for line in NVML.replace("BRAND", "1").split("\n") if lacks not in line)
    Path(driver.path(driver.library("libnvidia-ml.so"))).write_bytes(compile_library(source))
    bad = inventory.gpus[0].with_(bus_id="00000000:99:00.0")
    said = ""
    try:
        said = gpu_facts(inventory, [bad])[bad.bus_id].fault
    except DriverFault as fault:
        said = fault.text
    assert says in said


@pytest.mark.engine
def test_nvml_sees_the_driver_roots_devices(tmp_path: Path, compile_library: Compile) -> None:
    """It runs inside the driver root, as its `/dev` is the one that counts."""
    need()
    driver = build(str(tmp_path / "driver"), layout="driver-root")
    inventory = take_inventory(driver.host())
    (Path(driver.root) / "dev/mark").touch()
    source = NVML.replace(
        "int nvmlInit_v2(void) { return 0; }",
        'int access(char *, int); int nvmlInit_v2(void) { return access("/dev/mark", 0); }',
    )
    Path(driver.path(driver.library("libnvidia-ml.so"))).write_bytes(compile_library(source.replace("BRAND", "2")))
    assert gpu_facts(inventory, inventory.gpus)["00000000:3b:00.0"].brand == "Tesla"


@pytest.mark.engine
def test_in_a_user_namespace_it_works_as_well(tmp_path: Path) -> None:
    """Rootless: 65534 is not mapped, so our own identity without capabilities has to do."""
    need("unshare")
    driver = build(str(tmp_path))
    code = (
        "from gpuhook.driver.child import Confinement, ask; "
        "from gpuhook.driver.inventory import take_inventory; from gpuhook.driver.model import Host; "
        "from gpuhook.driver.query import cuda_version; "
        f"print(cuda_version(take_inventory(Host(driver_root={driver.root!r})))); "
        "print(ask(lambda: open('/proc/self/status').read().partition('CapEff:')[2].split()[0], Confinement(), 5))"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"12.4\n{'0' * 16}\n", "")


@pytest.mark.engine
def test_nvml_may_open_nodes_that_are_kept_to_a_group(tmp_path: Path, compile_library: Compile) -> None:
    """Where the administrator closed the nodes to all but a group, the child is in that group."""
    need()
    driver = build(str(tmp_path / "driver"), layout="driver-root")
    inventory = take_inventory(driver.host())
    os.chmod(driver.path("/dev/nvidiactl"), 0o660)
    os.chown(driver.path("/dev/nvidiactl"), 0, 44)
    init = 'int access(char *, int); int nvmlInit_v2(void) { return access("/dev/nvidiactl", 6); }'
    source = NVML.replace("int nvmlInit_v2(void) { return 0; }", init).replace("BRAND", "2")
    Path(driver.path(driver.library("libnvidia-ml.so"))).write_bytes(compile_library(source))
    assert gpu_facts(inventory, inventory.gpus)["00000000:3b:00.0"].brand == "Tesla"
