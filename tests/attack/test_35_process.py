"""Processes and namespaces (threats.md 3.5, AC-58 to AC-66)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.attack import markers, oracle, reuse
from tests.attack.direct import Scene, shell
from tests.attack.rig import ALL, PROBE, Lab
from tests.rig.container import Hook
from tests.rig.init import DEVICES, Init
from tests.rig.needs import unified_host
from tests.rig.rootfs import make_rootfs, put

pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("attack")]

CONTAINER, CGROUP = "bad-container", "rootless-cgroup"
TUN = {(10, 200)}  # runc itself allows it to every container


def test_ac_58_pid_of_a_host_process(scene: Scene) -> None:
    """FAIL for a process in our own mount namespace, for ourselves, and for the host's first."""
    scene.write()
    with subprocess.Popen(["sleep", "60"]) as process:
        same_namespace = scene.lab.hook_of()  # the watcher's private namespace would be another one
        hook, report = same_namespace
        done = subprocess.run(
            [hook.path, *hook.args], input=scene.state(pid=process.pid), capture_output=True, check=False
        )
        process.kill()
    assert (done.returncode, json.loads(Path(report).read_text())["mounts"]) == (1, [])
    assert b"gpuhook: bad-container: " in done.stderr
    assert b"our own mount namespace" in done.stderr
    for pid in (1, os.getpid()):
        assert scene.start(pid=pid).slug == CONTAINER


@pytest.mark.parametrize("stage", ["createContainer", "prestart"])
def test_ac_59_pid_1_at_create_container(lab: Lab, stage: str) -> None:
    """FAIL: the stage is refused by its name, and by what the pid means to the procfs that is visible there."""

    def as_create_container(spec: dict[str, object]) -> None:
        hooks = spec.get("hooks")
        if isinstance(hooks, dict) and "prestart" in hooks:
            hooks["createContainer"] = hooks.pop("prestart")
            for entry in hooks["createContainer"]:
                entry["args"][-1] = stage

    before = Path("/proc/1/mountinfo").read_bytes()
    run = lab.start(edit=as_create_container)
    assert (run.started, run.slug) == (False, "usage" if stage == "createContainer" else CONTAINER)
    assert stage == "createContainer" or "other processes" in run.error
    assert Path("/proc/1/mountinfo").read_bytes() == before


def test_ac_60_pid_reuse(lab: Lab) -> None:
    """FAIL: the number has come back for another container's process, before the hook starts or while it works."""
    outcomes = reuse.outcomes(lab)
    assert set(outcomes) == {"stale state", "held container", "device rules"}
    assert all(f"gpuhook: {CONTAINER}: " in said for said in outcomes.values()), outcomes


def test_ac_61_pid_of_another_container(scene: Scene) -> None:
    """FAIL: the root filesystem that config.json names is not the one in that process's namespace."""
    scene.write()
    rootfs = make_rootfs(f"{scene.lab.folder}/other")
    with Init(rootfs) as other:
        mounts, files = other.mounts, oracle.record(rootfs)
        assert scene.start(pid=other.pid).slug == CONTAINER
        assert (other.mounts, oracle.record(rootfs)) == (mounts, files)


@contextmanager
def pivoted(rootfs: str) -> Iterator[int]:
    """A process whose root is this folder, the host's tree gone from its namespace; in its /proc lie markers."""
    script = (
        'mount --bind "$1" "$1"; cd "$1"; mkdir old; busybox pivot_root . old; exec /bin/busybox chroot . '
        '/bin/busybox sh -c "/bin/busybox umount -l /old; /bin/busybox echo ready; exec /bin/busybox sleep 60"'
    )
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", rootfs]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.kill()


def test_ac_62_already_pivoted_target(scene: Scene) -> None:
    """SAFE: the root is known by device and inode, and nothing of the image's Python is imported in there."""
    modules = {
        f"usr/lib/python3.{minor}/{name}.py": markers.module(scene.lab.marks, f"{name}-{minor}")
        for minor in range(9, 16)
        for name in markers.MODULES
    }
    rootfs = make_rootfs(f"{scene.lab.folder}/pivoted")
    put(rootfs, {**modules, "proc/self/mountinfo": "", "proc/self/fd/0": f"-> {scene.lab.canary}/file"})
    scene.write(lambda spec: spec["root"].update(path=rootfs))
    with pivoted(rootfs) as pid:
        assert scene.start(pid=pid).started
        assert "/usr/bin/nvidia-smi " in Path(f"/proc/{pid}/mountinfo").read_text()


def impostor(folder: str, canary: str) -> str:
    """A folder that looks like procfs, whose every descriptor leads to the canary."""
    descriptors = {f"{who}/fd/{n}": f"-> {canary}/file" for who in ("self", "1", "thread-self") for n in range(256)}
    tables = {f"self/{name}": "" for name in ("mountinfo", "status", "uid_map", "cgroup", "ns/mnt")}
    tables |= {f"driver/nvidia/{name}": "" for name in ("params", "version")}
    put(folder, {**descriptors, **tables, "filesystems": "nodev proc\n", "sys/kernel/x": ""})
    return folder


def test_ac_63_impostor_procfs_in_the_containers_tree(lab: Lab) -> None:
    """SAFE: what should be procfs is a volume; its driver's folder is not covered, nothing is opened through it."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    fake = impostor(f"{lab.folder}/fake", lab.canary)
    files = oracle.record(fake)
    with Init(rootfs, proc=False, binds=[(fake, "/proc")]) as init, lab.guard():
        run = lab.hook(init)
        assert not [point for point in init.mount_points if point.startswith("/proc/")]
    assert run.started
    assert "/proc/driver/nvidia is not on procfs" in run.said
    assert oracle.record(fake) == files


def test_ac_63_impostor_procfs_in_the_namespace(scene: Scene) -> None:
    """SAFE: in the container's namespace nothing is looked up through any procfs."""
    scene.write()
    fake = impostor(f"{scene.lab.folder}/fake", scene.lab.canary)
    files = oracle.record(fake)
    inside = ["nsenter", "--target", str(scene.init.pid), "--mount", "mount", "--bind", fake, "/proc"]
    subprocess.run(inside, check=True)
    assert scene.start().started
    assert oracle.record(fake) == files


@pytest.mark.parametrize("cgroup", ["v2"] if unified_host() else ["v1", "v2", "hybrid"])
@pytest.mark.parametrize("name", ["plain", "a b:c", "x:name=systemd:y", "a\\040b"])
def test_ac_64_device_rules(lab: Lab, cgroup: str, name: str) -> None:
    """SAFE in the exact group, whatever its name."""

    def edit(spec: dict[str, dict[str, str]]) -> None:
        spec["linux"]["cgroupsPath"] += f"/{name}"

    fields = {"cgroup": "v1", "private": False} if cgroup == "hybrid" else {"cgroup": cgroup}
    granted = ALL | TUN if cgroup == "v2" else ALL
    # The runtime leaves the folder above the container's group behind.
    with lab.container(edit=edit, **fields) as container:
        try:
            assert lab.run(container, granted=granted).started
        finally:
            for group in Path("/sys/fs/cgroup").glob(f"*/gpuhook-rig/{container.id}"):
                group.rmdir()


@pytest.mark.skipif(unified_host(), reason="needs the devices hierarchy of cgroup v1")
@pytest.mark.parametrize("nested", [False, True])
def test_ac_64_group_outside_of_our_namespace(lab: Lab, nested: bool) -> None:
    """FAIL where the container's group has `/..` in its path, seen from a nested cgroup namespace; no rule changes."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    bundle = lab.bundle(rootfs)
    group = f"{DEVICES}/gpuhook-attack-{os.getpid()}"
    os.mkdir(group)
    script = 'echo $$ > "$word1/tasks"; exec unshare --cgroup "$@"' if nested else 'echo $$ > "$word1/tasks"'
    try:
        with Init(rootfs, group=True) as init, lab.guard():
            rules = init.rules
            run = Scene(lab, init, bundle).start(config=lab.config(), before=shell(script, group))
            if nested:
                assert (run.slug, init.rules) == (CGROUP, rules)
            else:
                assert run.started
                assert set(rules) < set(init.rules)
    finally:
        sleep(0.1)
        os.rmdir(group)


TOGETHER = 50


def test_ac_65_fifty_hooks_at_once(lab: Lab) -> None:
    """SAFE: one image folder, one log, one container id; no temporary name is left, no line of the log is lost."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    put(rootfs, {"etc/debian_version": "12.5\n"})
    bundle = lab.bundle(rootfs)
    config = lab.config(**{"no-cgroups": True})
    begun = os.path.getsize(lab.log) if os.path.exists(lab.log) else 0
    with lab.guard(), ExitStack() as stack:
        inits = [stack.enter_context(Init(rootfs)) for _ in range(TOGETHER)]

        def start(init: Init) -> tuple[int, bytes]:
            argv = [lab.node.launcher, "--config", config, "prestart"]
            state = init.state(bundle, id="the-same")
            done = subprocess.run(argv, input=state, capture_output=True, check=False, timeout=60)
            return done.returncode, done.stderr

        with ThreadPoolExecutor(TOGETHER) as pool:
            results = set(pool.map(start, inits))
        expected = sorted(f"setting pid to {init.pid}" for init in inits)
        points = [set(init.mount_points) for init in inits]
    assert {status for status, _ in results} == {0}, results
    said = {line for _, stderr in results for line in stderr.decode().splitlines()}
    assert not [line for line in said if not line.startswith("gpuhook: warning: no-cgroups-rootful")]
    lines = Path(lab.log).read_bytes()[begun:].decode().splitlines()
    assert sorted(line.partition("] ")[2] for line in lines if "] setting pid to " in line) == expected
    assert all(found == points[0] for found in points)
    assert [name for name in os.listdir(f"{rootfs}/etc") if "gpuhook" in name or name.startswith(".")] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGPIPE])
def test_ac_66_killed_in_the_middle(lab: Lab, number: signal.Signals) -> None:
    """SAFE at the next start: at twenty points of the run a signal ends it; no process and no host mount stays."""
    rootfs = make_rootfs(f"{lab.folder}/rootfs")
    bundle = lab.bundle(rootfs)
    argv = [lab.node.launcher, "--config", lab.config(**{"no-cgroups": True}), "prestart"]
    mounts = Path("/proc/self/mountinfo").read_text().count("nvidia")
    with Init(rootfs) as init, lab.guard():
        for step in range(20):
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as hook:
                assert hook.stdin
                hook.stdin.write(init.state(bundle))
                hook.stdin.close()
                sleep(0.01 + 0.006 * step)
                hook.send_signal(number)
        give_up = monotonic() + 5
        while lab.node.processes() and monotonic() < give_up:
            sleep(0.02)
        assert lab.node.processes() == []
        assert Path("/proc/self/mountinfo").read_text().count("nvidia") == mounts
        assert lab.hook(init, light=True).report.status == 0


def test_ac_66_the_runtimes_own_time_limit(lab: Lab) -> None:
    """FAIL when the hook stands still until the runtime kills it; SAFE at the next start of the same tree."""
    script = lab.node.script(f'(sleep 0.1; kill -STOP $$) >/dev/null 2>&1 &\nexec {lab.node.launcher} "$@"\n')
    args = ("--config", lab.config(), "prestart")
    with lab.guard(), lab.container() as container:
        container.hooks = {"prestart": [Hook(script, args, timeout=1)]}
        container.write_spec()
        result = container.run()
        assert (result.status != 0, result.stdout, result.mounts_leaked) == (True, "", False)
        assert lab.run(container).started
    assert PROBE not in "".join(lab.node.processes())
