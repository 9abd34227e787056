"""What a container sees that was started by a real runtime with our hook in its config.json."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.rig.container import Container
from tests.rig.process import Result
from tests.rig.rootfs import TRIPLET
from tests.runtime.node import COMMON, GPUS, PAIRS, Node

pytestmark = pytest.mark.runtime

LIBDIR = {"debian": f"/usr/lib/{TRIPLET}", "rhel": "/usr/lib64", "busybox": "/usr/lib64"}
NUMBERS = {"uvm": (511, 0), "uvm-tools": (511, 1), "ctl": (195, 255)}
LINKS = {"libcuda.so": "libcuda.so.1", "libcuda.so.1": "libcuda.so.{}", "libnvidia-ml.so.1": "libnvidia-ml.so.{}"}


@dataclass(frozen=True)
class Run:
    """A container that asked for GPU 1 (whose minor is 0), and what came of it."""

    node: Node
    kind: str
    result: Result
    changes: tuple[str, ...]

    @property
    def libdir(self) -> str:
        return LIBDIR[self.kind]

    def flags(self, path: str) -> set[str]:
        """The flags of the mount at this path that we decide about."""
        return set(self.result.seen.mount_points[path].split(",")) & {"ro", "rw", "nosuid", "nodev", "noexec"}


KINDS = ("debian", "rhel", "busybox")


@pytest.fixture(scope="module", params=[(pair, kind) for pair in PAIRS for kind in KINDS], ids=str)
def started(request: pytest.FixtureRequest, node: Node) -> Run:
    (runtime, cgroup), kind = request.param
    libdir = LIBDIR[kind]
    numbers = [(195, gpu["minor"]) for gpu in GPUS] + list(NUMBERS.values())
    questions = (
        "id", "env", "fds", "mounts", "devices", "dlopen:libcuda.so.1", "dlopen:libnvidia-ml.so.1",
        f"list:{libdir}", "list:/etc", "list:/usr/bin", "read:/etc/ld.so.cache",
        *(f"stat:{libdir}/{name}" for name in LINKS),
        *(f"rule:{major}:{minor}" for major, minor in numbers),
    )  # fmt: skip
    before = node.host()
    result = node.run(*questions, gpus="1", kind=kind, runtime=runtime, cgroup=cgroup, env=("MARK=a b=c",))
    return Run(node, kind, result, tuple(before.differences(node.host())))


def test_the_container_runs_to_its_end(started: Run) -> None:
    """The entry point's own status is the container's, and the hook says nothing to it."""
    assert (started.result.status, started.result.stderr) == (0, "")


def test_it_sees_exactly_the_requested_gpu(started: Run) -> None:
    """The device nodes are the common ones and the one GPU's, by minor and not by index; all can be opened."""
    devices = started.result.seen.devices
    assert sorted(devices) == sorted((*COMMON, "/dev/nvidia0"))
    assert "EPERM" not in devices.values()


def test_device_rules_allow_nothing_else(started: Run) -> None:
    """A node that the container makes itself of another GPU's number cannot be opened."""
    allowed = {number for number, is_allowed in started.result.seen.rules.items() if is_allowed}
    assert allowed == {(195, 0), *NUMBERS.values()}
    assert len(started.result.seen.rules) == len(GPUS) + len(NUMBERS)


def test_a_program_loads_the_driver_through_the_cache(started: Run) -> None:
    """Dlopen finds the host's libcuda by its SONAME and can call it; so for NVML."""
    if started.kind == "busybox":  # a static program loads nothing
        assert "file" not in started.result.seen.library("libcuda.so.1")
        return
    cuda = started.result.seen.library("libcuda.so.1")
    assert (cuda["file"], cuda["cuda"]) == (f"{started.libdir}/libcuda.so.550.54.14", 12040)
    assert started.result.seen.library("libnvidia-ml.so.1")["file"].startswith(f"{started.libdir}/libnvidia-ml.so.550")


def test_a_tree_without_a_cache_gets_one(started: Run) -> None:
    """The cache exists afterwards in every kind of tree, names the driver, and no temporary file is beside it."""
    content = started.result.seen.content("/etc/ld.so.cache")
    assert content is not None
    assert f"{started.libdir}/libcuda.so.550.54.14" in content
    assert [name for name in started.result.seen.names("/etc") or () if "gpuhook" in name] == []


@pytest.mark.parametrize("name", LINKS)
def test_soname_links_lead_to_the_mounted_file(started: Run, name: str) -> None:
    """Each name that programs ask for is a link that says what ldconfig would write, and it leads somewhere."""
    link = started.result.seen.stat(f"{started.libdir}/{name}")
    assert (link["kind"], link["target"], link["leads"]) == ("link", LINKS[name].format("550.54.14"), True)


def test_only_default_capabilities_came(started: Run) -> None:
    """Compute and utility bring their files; graphics, video and the driver's other programs stay outside."""
    libraries = "\n".join(started.result.seen.names(started.libdir) or ())
    programs = started.result.seen.names("/usr/bin") or ()
    assert "libnvidia-ptxjitcompiler.so" in libraries
    assert not any(stem in libraries for stem in ("libGLX_nvidia", "libnvidia-encode", "libnvoptix", "gtk3"))
    assert {"nvidia-smi", "nvidia-cuda-mps-server"} <= set(programs)
    assert not {"nvidia-settings", "nvidia-modprobe"} & set(programs)


@pytest.mark.parametrize(
    ("path", "flags"),
    [
        ("/usr/bin/nvidia-smi", {"ro", "nosuid", "nodev"}),
        ("LIBDIR/libcuda.so.550.54.14", {"ro", "nosuid", "nodev"}),
        ("/dev/nvidia0", {"ro", "nosuid", "noexec"}),
        ("/dev/nvidiactl", {"ro", "nosuid", "noexec"}),
        ("/run/nvidia-persistenced/socket", {"rw", "nosuid", "nodev", "noexec"}),
        ("/tmp/nvidia-mps", {"rw", "nosuid", "nodev", "noexec"}),
    ],
)
def test_mounts_have_their_flags(started: Run, path: str, flags: set[str]) -> None:
    """The flags of each kind of mount are nvidia-container-cli's."""
    assert started.flags(path.replace("LIBDIR", started.libdir)) == flags


def test_nothing_is_mounted_twice(started: Run) -> None:
    """One mount a target."""
    points = [line.split(" ")[4] for line in started.result.seen.mounts]
    assert [point for point in points if "nvidia" in point and points.count(point) > 1] == []


def test_the_environment_is_the_specifications(started: Run) -> None:
    """The hook adds no variable and changes none."""
    env = [entry for entry in started.result.seen.env if not entry.startswith(("PATH=", "HOME=", "container="))]
    assert env == ["NVIDIA_VISIBLE_DEVICES=1", "MARK=a b=c"]


def test_no_descriptor_reaches_the_container(started: Run) -> None:
    """The entry point has 0, 1 and 2, and nothing of the hook's."""
    assert sorted(started.result.seen.fds) == [0, 1, 2]


def test_the_host_is_as_it_was(started: Run) -> None:
    """No mount, no process, no change in the driver's files (O-MNT, O-FS)."""
    assert started.changes == ()
    assert not started.result.mounts_leaked
    assert started.node.processes() == []


@pytest.mark.parametrize(
    ("asked", "minors"),
    [
        ("0", [2]),
        (GPUS[1]["uuid"], [0]),
        ("GPU-2c00", [1]),
        ("gpu-1B000000-1111", [0]),
        ("0000:5e:00.0", [1]),
        ("00000000:3b:00.0", [2]),
        ("2,0,2", [1, 2]),
        ("all", [0, 1, 2]),
        ("none", []),
    ],
)
def test_a_gpu_is_found_by_every_name(node: Node, asked: str, minors: list[int]) -> None:
    """Index, UUID, its beginning, PCI address, a list, all and none give exactly these GPUs and rules."""
    rules = tuple(f"rule:195:{gpu['minor']}" for gpu in GPUS)
    result = node.run("devices", *rules, gpus=asked)
    assert result.status == 0, result.stderr
    assert sorted(set(result.seen.devices) - set(COMMON)) == [f"/dev/nvidia{minor}" for minor in minors]
    assert sorted(minor for (_, minor), allowed in result.seen.rules.items() if allowed) == minors


@pytest.mark.parametrize("asked", [None, "void", ""])
def test_a_container_without_request_is_left_alone(node: Node, asked: str | None) -> None:
    """No node, no file, no rule, no cache: as if there were no hook."""
    result = node.run("devices", "rule:195:255", "list:/etc", "list:/usr/bin", gpus=asked, kind="busybox")
    assert (result.status, result.stderr, result.seen.devices) == (0, "", {})
    assert result.seen.rules == {(195, 255): False}
    assert "ld.so.cache" not in (result.seen.names("/etc") or ())
    assert "nvidia-smi" not in (result.seen.names("/usr/bin") or ())


def test_programs_of_the_driver_run_inside(node: Node) -> None:
    """A program of the driver in the container is the host's, and starts there."""
    hooks = {"prestart": [node.hook()]}
    env = ["NVIDIA_VISIBLE_DEVICES=0"]
    with Container(kind="debian", args=["/usr/bin/nvidia-debugdump"], env=env, hooks=hooks) as container:
        result = container.run()
    assert (result.status, "550.54.14" in result.stdout) == (0, True), result.stderr


def test_the_runtimes_umask_does_not_matter(node: Node) -> None:
    """With umask 0777 in the runtime, folders and files that the hook makes are still readable."""
    result = node.run(f"stat:{LIBDIR['debian']}/libcuda.so", "stat:/run/nvidia-persistenced", "devices", umask=0o777)
    assert result.status == 0, result.stderr
    folder = result.seen.stat("/run/nvidia-persistenced")
    assert (folder["kind"], folder["mode"]) == ("folder", 0o755)
