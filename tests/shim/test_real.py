"""gpuhook-runtime in front of real runtimes, as containerd and Podman drive them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from fixtures.driver.build import build
from tests.rig.container import Container
from tests.rig.needs import need, unified_host
from tests.rig.process import PATH, Result, run
from tests.rig.rootfs import make_rootfs
from tests.rig.spec import base_spec
from tests.runtime.node import COMMON, GPUS, PAIRS
from tests.shim.stand import Stand, hooks_of, spec_of, write_program

pytestmark = pytest.mark.runtime

SYSTEMD = (["mount", "-t", "tmpfs", "none", "/run"], ["mkdir", "-p", "/run/systemd/system"])
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


@pytest.fixture(scope="module")
def node() -> Iterator[Stand]:
    """A node with a fake driver and the shim, in a folder that mapped users can reach."""
    need("runc", "crun", "gcc")
    folder = tempfile.mkdtemp(prefix="gpuhook-shim-")
    os.chmod(folder, 0o755)
    yield Stand(Path(folder), root=build(f"{folder}/driver", gpus=GPUS).root)
    shutil.rmtree(folder)


def config_of(node: Stand, runtime: str) -> dict[str, str]:
    """The variables by which the shim uses this runtime and the embedded engine."""
    text = '[gpuhook]\nbackend = "embedded"'
    return {"NVIDIA_CTK_CONFIG_FILE_PATH": node.config(text, runtimes=[runtime])}


@pytest.mark.parametrize(("runtime", "cgroup"), PAIRS)
@pytest.mark.parametrize("setup", [(), SYSTEMD], ids=["hook alone", "nodes in the specification"])
def test_a_container_gets_its_gpu(node: Stand, runtime: str, cgroup: str, setup: Any) -> None:
    """`run` through the shim: the one GPU's node and rule, the driver's library, and no other GPU."""
    questions = ("devices", "rule:195:0", "rule:195:2", "rule:511:0", "dlopen:libcuda.so.1")
    container = Container(
        runtime=node.shim, cgroup=cgroup, kind="debian", args=("/bin/probe", *questions),
        env=("NVIDIA_VISIBLE_DEVICES=1",), runtime_env=config_of(node, runtime), setup=setup,
    )  # fmt: skip
    with container:
        result = container.run()
    assert (result.status, result.stderr) == (0, "")
    assert sorted(result.seen.devices) == sorted((*COMMON, "/dev/nvidia0"))
    assert "EPERM" not in result.seen.devices.values()
    assert result.seen.rules == {(195, 0): True, (195, 2): False, (511, 0): True}
    assert "libcuda.so.550" in result.seen.library("libcuda.so.1")["file"]


@pytest.mark.parametrize(("runtime", "cgroup"), PAIRS)
def test_a_container_without_request_runs_as_it_is(node: Stand, runtime: str, cgroup: str) -> None:
    """No node, no hook, and the same config.json."""
    container = Container(runtime=node.shim, cgroup=cgroup, runtime_env=config_of(node, runtime), args=("devices",))
    container.args = ("/bin/probe", "devices")
    with container:
        before = Path(container.bundle, "config.json").stat()
        result = container.run()
        after = Path(container.bundle, "config.json").stat()
    assert (result.status, result.stderr, result.seen.devices) == (0, "", {})
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@dataclass
class Driven:
    """A bundle and the calls that an engine makes for it, each in a process and a mount namespace of its own.

    before: a shell's commands that come first.
    """

    node: Stand
    bundle: Path
    env: dict[str, str]
    id: str
    before: str = ""

    def call(self, *words: str) -> Result:
        """One call, with the runtime's log as containerd names it."""
        options = ["--root", f"{self.bundle}/state", "--log", f"{self.bundle}/log.json", "--log-format", "json"]
        out = f"{self.bundle}/out"
        # An engine gives the container's output away, so nobody waits for the end of these streams.
        script = f'{self.before}exec "$@" </dev/null >"$0" 2>&1'
        words = ("unshare", "--mount", "sh", "-c", script, out, self.node.shim, *options, *words)
        result = run(words, env={"PATH": PATH, **self.env})
        return Result(result.status, Path(out).read_text(), "")

    def status(self) -> str:
        """The container's status, from `state`'s answer alone on its streams."""
        status: str = json.loads(self.call("state", self.id).stdout)["status"]
        return status

    def wait(self, status: str) -> None:
        """Wait until the container has this status."""
        give_up = monotonic() + 20
        while self.status() != status:
            assert monotonic() < give_up
            sleep(0.05)


@pytest.fixture(params=["runc", "crun"])
def driven(request: pytest.FixtureRequest, node: Stand, tmp_path: Path) -> Iterator[Driven]:
    """A bundle of a container that asks for two GPUs and sleeps."""
    runtime: str = request.param
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    spec = base_spec()
    spec["process"]["args"] = ["sleep", "60"]
    spec["process"]["env"].append("NVIDIA_VISIBLE_DEVICES=0,2")
    spec["root"]["path"] = make_rootfs(str(tmp_path / "rootfs"), "debian")
    (bundle / "kept").mkdir(mode=0o700)
    driven = Driven(node, bundle, config_of(node, runtime), f"shim-{os.getpid()}-{runtime}")
    driven.before = f"mkdir -p -m 700 /run/gpuhook && mount --bind {bundle}/kept /run/gpuhook && "
    if runtime == "crun" and not unified_host():  # it refuses a hybrid of cgroup versions
        driven.before += "umount /sys/fs/cgroup/unified; "
    spec["linux"]["cgroupsPath"] = f"/gpuhook-rig/{driven.id}"
    (bundle / "config.json").write_text(json.dumps(spec))
    yield driven
    driven.call("delete", "--force", driven.id)
    for hierarchy in os.listdir("/sys/fs/cgroup"):
        place = Path("/sys/fs/cgroup", hierarchy, "gpuhook-rig")
        if place.is_dir() and not any(entry.is_dir() for entry in place.iterdir()):
            place.rmdir()


def test_a_container_is_driven_through_its_life(driven: Driven) -> None:
    """create, state, start, exec, kill, delete: each is the low-level runtime's own answer."""
    created = driven.call("create", "--bundle", str(driven.bundle), driven.id)
    assert (created.status, created.stdout) == (0, "")
    assert [entry["path"] for entry in hooks_of(driven.bundle)] == [f"{driven.node.folder}/gpuhook"]
    assert driven.status() == "created"
    assert driven.call("start", driven.id).status == 0
    assert driven.status() == "running"
    inside = driven.call("exec", driven.id, "/bin/probe", "devices", "rule:195:0", "rule:195:1", "rule:195:2")
    assert inside.seen.rules == {(195, 0): False, (195, 1): True, (195, 2): True}
    assert sorted(inside.seen.devices) == sorted((*COMMON, "/dev/nvidia1", "/dev/nvidia2"))
    assert driven.call("exec", driven.id, "sh", "-c", "exit 9").status == 9
    assert driven.call("kill", driven.id, "KILL").status == 0
    driven.wait("stopped")
    assert driven.call("delete", driven.id).status == 0
    assert driven.call("state", driven.id).status == 1


def test_a_broken_config_does_not_keep_a_container_alive(driven: Driven) -> None:
    """It is stopped and removed whatever has become of the file (case config-stray-text)."""
    assert driven.call("create", "--bundle", str(driven.bundle), driven.id).status == 0
    assert driven.call("start", driven.id).status == 0
    config = Path(driven.env["NVIDIA_CTK_CONFIG_FILE_PATH"])
    config.write_text("gpu works now, leave as it is\n")
    assert driven.status() == "running"
    assert driven.call("kill", driven.id, "KILL").status == 0
    driven.wait("stopped")
    assert driven.call("delete", driven.id).status == 0


def test_a_hook_that_fails_is_told_in_the_runtimes_log(driven: Driven) -> None:
    """The container does not start, and its user reads why; crun keeps the hook's words to itself."""
    spec = spec_of(driven.bundle)
    spec["process"]["env"].append("NVIDIA_VISIBLE_DEVICES=7")
    (driven.bundle / "config.json").write_text(json.dumps(spec))
    created = driven.call("create", "--bundle", str(driven.bundle), driven.id)
    assert created.status != 0
    errors = [json.loads(line) for line in (driven.bundle / "log.json").read_text().splitlines()]
    told = next(entry["msg"] for entry in errors if entry["level"] == "error")
    assert ("GPU 7 was requested, and this host has 3" in told) == driven.id.endswith("runc")


@pytest.fixture
def place() -> Iterator[str]:
    """A folder with a short name: Podman takes no other."""
    folder = tempfile.mkdtemp(prefix="shim-")
    yield folder
    run(["umount", "--lazy", f"{folder}/storage/overlay"])
    shutil.rmtree(folder)


def test_podman_runs_containers_through_it(node: Stand, tmp_path: Path, place: str) -> None:
    """`podman run --runtime gpuhook-runtime`, over runc, with the GPU's node and without the others'."""
    need("podman", "runc")
    # Podman hands no variable on.
    variables = " ".join(f"{name}={value}" for name, value in config_of(node, "runc").items())
    wrapper = write_program(tmp_path / "runtime", f'#!/bin/sh\n{variables} exec {node.shim} "$@"\n')
    env = {"PATH": PATH, "HOME": str(tmp_path)}
    rootfs = make_rootfs(str(tmp_path / "rootfs"), "debian")
    podman = [
        "podman", "--root", f"{place}/storage", "--runroot", f"{place}/run", "--tmpdir", f"{place}/tmp",
        "--cgroup-manager=cgroupfs", "--runtime", wrapper,
    ]  # fmt: skip
    asked = ["-e", "NVIDIA_VISIBLE_DEVICES=1", "--network", "none", "--cap-add", "MKNOD", *LIMITS]
    questions = ["/bin/probe", "devices", "rule:195:0", "rule:195:2"]
    try:
        result = run([*podman, "run", "--rm", *asked, "--rootfs", rootfs, *questions], env=env, timeout=120)
    finally:
        run([*podman, "rm", "--all", "--force", "--time", "0"], env=env)
    assert result.status == 0, result.stderr
    assert sorted(result.seen.devices) == sorted((*COMMON, "/dev/nvidia0"))
    assert result.seen.rules == {(195, 0): True, (195, 2): False}
