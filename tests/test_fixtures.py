"""The fixtures and the rig hold what they promise: everything else in tests/ rests on them."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from typing import Any

import pytest

from fixtures.driver import native_build
from fixtures.driver.build import build
from fixtures.driver.elf import shared_object
from fixtures.driver.model import Behaviour, FakeDriver
from gpuhook.errors import GpuhookError
from gpuhook.oci.bundle import read_bundle
from gpuhook.oci.state import State
from gpuhook.request.build import build_request
from gpuhook.request.devices import choose_devices
from gpuhook.settings.values import Settings
from tests.rig.container import Container, Hook
from tests.rig.init import Init, run_hook
from tests.rig.needs import need
from tests.rig.process import run
from tests.rig.snapshot import mount_table, snapshot

BUNDLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "bundles")
NULL, GPU0 = (1, 3), (195, 0)
RUNTIMES = [("runc", "v1"), ("runc", "v2"), ("crun", "v1")]


def names() -> list[str]:
    return sorted(entry.name for entry in os.scandir(BUNDLES) if entry.is_dir())


def read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    need("gcc", root=False)
    return build(str(tmp_path_factory.mktemp("driver")), gpus=2, mig=True)


class TestDriver:
    @pytest.mark.engine
    @pytest.mark.parametrize("layout", ["debian", "rhel", "driver-root"])
    def test_everything_that_is_named_exists(self, tmp_path: Any, layout: str) -> None:
        """What the description of a driver lists is there, in every layout."""
        need("gcc")
        made = build(str(tmp_path), gpus=8, layout=layout, imex_channels=[0])
        listed = (*made.libraries, *made.libraries32, *made.decoys, *made.binaries, *made.firmware, *made.sockets)
        assert [name for name in (*listed, *made.nodes) if not os.path.lexists(made.path(name))] == []
        assert len(made.nodes) == 8 + 4 + 1

    @pytest.mark.engine
    def test_every_library_can_be_loaded(self, driver: FakeDriver) -> None:
        """The loader accepts every 64-bit library."""
        assert [ctypes.CDLL(driver.path(path))._name for path in driver.libraries]

    @pytest.mark.engine
    def test_the_cache_leads_to_the_libraries(self, driver: FakeDriver) -> None:
        """ldconfig, as the oracle, lists libcuda in both sizes."""
        listed = run(["/sbin/ldconfig", "-r", driver.root, "-p"]).stdout
        assert f"libcuda.so.1 (libc6,x86-64) => {driver.libdir}/libcuda.so.1" in listed
        assert f"libcuda.so.1 (libc6) => {driver.libdir32}/libcuda.so.1" in listed

    @pytest.mark.engine
    def test_libcuda_knows_its_version(self, driver: FakeDriver) -> None:
        """The stand-in answers cuDriverGetVersion."""
        version = ctypes.c_int()
        library = ctypes.CDLL(driver.path(driver.library("libcuda.so")))
        assert library.cuDriverGetVersion(ctypes.byref(version)) == 0
        assert version.value == 12040

    @pytest.mark.engine
    def test_nvml_knows_the_mig_devices(self, driver: FakeDriver) -> None:
        """The stand-in answers for MIG devices, which nothing else knows by UUID."""
        nvml = ctypes.CDLL(driver.path(driver.library("libnvidia-ml.so")))
        gpu, mig, text = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
        assert nvml.nvmlInit_v2() == 0
        assert nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(gpu)) == 0
        assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, ctypes.byref(mig)) == 0
        assert nvml.nvmlDeviceGetUUID(mig, text, len(text)) == 0
        assert text.value.decode() == driver.gpus[1].mig[0].uuid
        nvml.nvmlShutdown()

    @pytest.mark.engine
    def test_nvml_can_refuse(self, tmp_path: Any) -> None:
        """A driver whose library does not fit the module says so in NVML's own number."""
        made = build(str(tmp_path), nvml=Behaviour(status=18))
        assert ctypes.CDLL(made.path(made.library("libnvidia-ml.so"))).nvmlInit_v2() == 18

    @pytest.mark.engine
    def test_a_driver_without_a_cache(self, tmp_path: Any) -> None:
        """One layout has no loader cache but the links of one."""
        made = build(str(tmp_path), cache=False)
        assert made.ldcache is None
        assert not os.path.exists(made.path("/etc/ld.so.cache"))
        assert os.path.exists(made.path(f"{made.libdir}/libcuda.so.1"))

    def test_the_information_file_is_the_kernels(self, driver: FakeDriver) -> None:
        """Label, tab and spaces, value: as NVIDIA's kernel module writes it."""
        with open(f"{driver.proc}/driver/nvidia/gpus/0000:3b:00.0/information", encoding="ascii") as file:
            lines = file.read().splitlines()
        assert lines[0] == "Model: \t\t NVIDIA A100-SXM4-40GB"
        assert "GPU UUID: \t GPU-00000000-0000-0000-0000-0000000000a0" in lines
        assert lines[-1] == "GPU Excluded:\t No"

    @pytest.mark.parametrize(("bits", "machine"), [(64, 62), (32, 3)])
    def test_written_libraries_have_the_right_class(self, bits: int, machine: int) -> None:
        """Both sizes are written without a compiler."""
        image = shared_object("libx.so.1", bits=bits, machine="x86_64")
        assert (image[4], struct.unpack_from("<H", image, 18)[0]) == (bits // 32, machine)

    def test_compiled_files_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A second build runs no compiler."""
        need("gcc", root=False)
        first = native_build.tool("1.0")
        monkeypatch.setenv("PATH", "")
        assert native_build.tool("1.0") == first


EXPECTED = read_json(os.path.join(BUNDLES, "expected.json"))
KINDS = {
    "default": Settings(),
    "mounts": Settings(accept_volume_mounts=True),
    "strict": Settings(accept_volume_mounts=True, accept_envvar_when_unprivileged=False),
}


def asked_for(name: str, settings: Settings) -> dict[str, Any] | None:
    """What the bundle asks for under these settings, in the form of expected.json."""
    bundle = read_bundle(os.path.join(BUNDLES, name))
    try:
        choice, warnings = choose_devices(bundle, settings)
        if choice is None:
            return None
        state = State(pid=1234, bundle=bundle.path, id=name)
        request = build_request(state, bundle, settings, choice, warnings)
    except GpuhookError as error:
        return {"refused": error.reference}
    extras = {
        "imex": list(request.imex_channels),
        "mig_config": request.mig_config,
        "mig_monitor": request.mig_monitor,
    }
    return {
        "devices": list(request.devices.names),
        "capabilities": list(request.capabilities),
        "requirements": {item.source: item.expression.partition(" ")[0] for item in request.requirements},
        **{key: value for key, value in extras.items() if value},
    }


class TestBundles:
    def test_every_bundle_is_described(self) -> None:
        """There are at least fifteen, and expected.json knows them all."""
        assert len(names()) >= 15
        assert sorted(EXPECTED) == names()

    @pytest.mark.parametrize("name", names())
    def test_a_bundle_is_read(self, name: str) -> None:
        """Bundles of real runtimes are accepted, and who is privileged is known."""
        bundle = read_bundle(os.path.join(BUNDLES, name))
        assert bundle.privileged == EXPECTED[name]["privileged"]
        assert bundle.rootfs().startswith("/")
        assert bundle.ignored == ()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("name", names())
    def test_what_a_bundle_asks_for(self, name: str, kind: str) -> None:
        """The request of a real bundle is what its README says."""
        expected = EXPECTED[name]
        assert asked_for(name, KINDS[kind]) == expected.get(kind, expected["default"])

    @pytest.mark.parametrize("name", names())
    def test_no_trace_of_the_machine(self, name: str) -> None:
        """Names of the machine where it was recorded are gone."""
        with open(os.path.join(BUNDLES, name, "config.json"), encoding="utf-8") as file:
            text = file.read()
        assert [word for word in ("/tmp/", "localhost", "/mnt/", "HOSTNAME=vm") if word in text] == []


class TestContainer:
    @pytest.mark.runtime
    @pytest.mark.parametrize(("runtime", "cgroup"), RUNTIMES)
    @pytest.mark.parametrize("kind", ["busybox", "debian", "rhel"])
    def test_a_container_is_denied_gpus_by_itself(self, runtime: str, cgroup: str, kind: str) -> None:
        """Under every runtime the probe can tell what is denied from what is allowed."""
        args = ("/bin/probe", "rule:195:0", "rule:1:3")
        with Container(runtime=runtime, cgroup=cgroup, kind=kind, args=args) as container:
            result = container.run()
        assert (result.status, result.stderr) == (0, "")
        assert result.seen.rules == {GPU0: False, NULL: True}

    @pytest.mark.runtime
    @pytest.mark.parametrize(("runtime", "cgroup"), RUNTIMES)
    def test_nothing_is_left_behind(self, runtime: str, cgroup: str) -> None:
        """No mount, no cgroup, no folder stays of a container."""
        with Container(runtime=runtime, cgroup=cgroup) as container:
            assert not container.run().mounts_leaked
            folder, name = container.folder, container.id
        assert folder.encode() not in mount_table()
        assert [base for base, folders, _ in os.walk("/sys/fs/cgroup") if name in folders] == []
        assert not os.path.exists(folder)

    @pytest.mark.runtime
    @pytest.mark.parametrize(("runtime", "cgroup"), RUNTIMES)
    def test_a_hook_that_fails_stops_the_container(self, runtime: str, cgroup: str) -> None:
        """The entry point never runs."""
        hooks = {"prestart": [Hook("/bin/false")]}
        with Container(runtime=runtime, cgroup=cgroup, hooks=hooks) as container:
            result = container.run()
        assert result.status != 0
        assert result.seen.answers == ()

    @pytest.mark.runtime
    @pytest.mark.parametrize(("runtime", "cgroup"), RUNTIMES)
    @pytest.mark.parametrize("stage", ["prestart", "createRuntime"])
    def test_a_hook_gets_the_state(self, runtime: str, cgroup: str, stage: str) -> None:
        """The state on stdin names the bundle and a process."""
        with Container(runtime=runtime, cgroup=cgroup) as container:
            copy = f"{container.folder}/state.json"
            container.hooks = {stage: [Hook("/bin/dd", (f"of={copy}", "status=none"))]}
            container.write_spec()
            assert container.run().status == 0
            state = read_json(copy)
        assert state["bundle"] == container.bundle
        assert state["pid"] > 1

    @pytest.mark.runtime
    @pytest.mark.parametrize("cgroup", ["v1", "v2"])
    def test_a_user_namespace(self, cgroup: str) -> None:
        """Root inside is another user outside, and may not make nodes."""
        with Container(cgroup=cgroup, user_from=100000, args=("/bin/probe", "id", "rule:195:0")) as container:
            result = container.run()
        assert result.status == 0
        assert result.seen.of("id")[0]["uid"] == 0
        assert result.seen.of("rule")[0]["mknod"] == "EPERM"

    @pytest.mark.runtime
    def test_the_time_limit(self) -> None:
        """A container that hangs is killed and taken away."""
        with Container(args=("/bin/probe", "sleep:60")) as container:
            result = container.run(timeout=1)
        assert result.status == -9
        assert result.seconds < 20


class TestInit:
    @pytest.mark.engine
    @pytest.mark.parametrize("user_from", [0, 100000])
    def test_it_stands_before_pivot_root(self, user_from: int) -> None:
        """The process has its own mounts, and the host's tree is still there for it."""
        with Container(user_from=user_from) as container, Init(container.rootfs, user_from=user_from) as init:
            assert set(init.mount_points) == {"/", "/proc", "/dev"}
            assert os.path.exists(f"/proc/{init.pid}/root{container.bundle}/config.json")
            assert os.readlink(f"/proc/{init.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
            assert init.run("/bin/probe", "id").seen.of("id")[0]["uid"] == 0

    @pytest.mark.engine
    def test_its_cgroup_denies_gpus(self) -> None:
        """A rule that is written to the group is felt inside."""
        with Container() as container, Init(container.rootfs, group=True) as init:
            assert init.run("/bin/probe", "rule:195:0").seen.rules == {GPU0: False}
            with open(f"{init.group_path}/devices.allow", "w", encoding="ascii") as file:
                file.write("c 195:0 rw")
            assert init.run("/bin/probe", "rule:195:0").seen.rules == {GPU0: True}

    @pytest.mark.engine
    def test_a_hook_reads_its_state(self) -> None:
        """run_hook writes the state to stdin."""
        with Container() as container, Init(container.rootfs) as init:
            result = run_hook(["/bin/cat"], init.state(container.bundle, id="x", status=None))
            assert json.loads(result.stdout) == {
                "ociVersion": "1.0.2", "id": "x", "pid": init.pid, "bundle": container.bundle,
            }  # fmt: skip


class TestSnapshot:
    def test_it_sees_every_kind_of_change(self, tmp_path: Any) -> None:
        """Content, mode, links and new files are all differences; nothing is none."""
        for name in ("content", "mode", "linked", "same"):
            (tmp_path / name).write_text("a")
        before = snapshot(str(tmp_path))
        (tmp_path / "content").write_text("b")
        (tmp_path / "mode").chmod(0o600)
        os.link(tmp_path / "linked", tmp_path / "new")
        changed = [line.partition(":")[0] for line in before.differences(snapshot(str(tmp_path)))]
        assert changed == [f"{tmp_path}/{name}" for name in ("content", "linked", "mode", "new")]
        assert snapshot(str(tmp_path)).differences(snapshot(str(tmp_path))) == []
