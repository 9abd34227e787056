"""When the hook runs, what it does then, and what becomes of a container whose hook fails."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rig.container import Container, Hook
from tests.rig.process import Result
from tests.runtime.node import COMMON, PAIRS, Node, state_of

pytestmark = pytest.mark.runtime

EACH_RUNTIME = pytest.mark.parametrize(("runtime", "cgroup"), PAIRS)
RUN_THEN_ASK = """\
{runtime} "$@"; status=$?
[ "$3" != run ] || {{ {runtime} "$1" "$2" state "$6"; echo "status $?"; }} > {answer} 2>&1
exit $status
"""


def asking(node: Node, runtime: str, answer: str) -> str:
    """A runtime that, after a run, leaves its answer to the question for the container's state in a file."""
    return node.script(RUN_THEN_ASK.format(runtime=runtime, answer=answer))


@EACH_RUNTIME
def test_a_failed_hook_leaves_no_container(node: Node, runtime: str, cgroup: str) -> None:
    """The run fails, the entry point never ran, the runtime knows no such container, the tree is as it was."""
    hooks = {"prestart": [node.hook()]}
    answer = f"{node.folder}/state-{runtime}-{cgroup}"
    with Container(
        kind="debian", runtime=asking(node, runtime, answer), cgroup=cgroup, args=("/bin/probe", "id"),
        env=("NVIDIA_VISIBLE_DEVICES=7",), hooks=hooks,
    ) as container:  # fmt: skip
        before, host = state_of(container.rootfs), node.host()
        result = container.run()
        assert before.differences(state_of(container.rootfs)) == []
    assert (result.status != 0, result.stdout) == (True, "")
    assert Path(answer).read_text().splitlines()[-1] == "status 1"
    assert host.differences(node.host()) == []
    assert not result.mounts_leaked
    assert node.processes() == []


@EACH_RUNTIME
def test_the_message_of_a_failed_hook_reaches_the_user(node: Node, runtime: str, cgroup: str) -> None:
    """The runtime's own output holds the slug, what was asked for and what there is."""
    result = node.run("id", gpus="7", runtime=runtime, cgroup=cgroup)
    assert result.status != 0
    if runtime == "runc":  # crun lets the hook's stderr through as it is, or not at all
        assert "gpuhook: unknown-device: GPU 7 was requested, and this host has 3" in result.stderr


@EACH_RUNTIME
@pytest.mark.parametrize("stages", [("createRuntime",), ("prestart", "createRuntime")], ids=str)
def test_create_runtime_does_the_same(node: Node, runtime: str, cgroup: str, stages: tuple[str, ...]) -> None:
    """Registered at createRuntime, or at both: one GPU, one mount a target, the same rules."""
    hooks = {stage: [node.hook(stage)] for stage in stages}
    result = node.run(
        "devices", "mounts", "dlopen:libcuda.so.1", "rule:195:0", "rule:195:1",
        gpus="1", hooks=hooks, runtime=runtime, cgroup=cgroup,
    )  # fmt: skip
    assert result.status == 0, result.stderr
    assert sorted(result.seen.devices) == sorted((*COMMON, "/dev/nvidia0"))
    assert result.seen.library("libcuda.so.1")["cuda"] == 12040
    assert result.seen.rules == {(195, 0): True, (195, 1): False}
    points = [line.split(" ")[4] for line in result.seen.mounts]
    assert [point for point in points if "nvidia" in point and points.count(point) > 1] == []


def test_a_second_run_says_that_all_is_in_place(node: Node) -> None:
    """Twice at one stage: the second finds each mount there, and changes nothing."""
    log = f"{node.folder}/second.log"
    result = node.run("devices", gpus="1", hooks={"prestart": [node.hook(), node.hook(log=log)]})
    assert result.status == 0, result.stderr
    said = Path(log).read_text()
    assert "already in place: /dev/nvidia0" in said
    assert "already in place: /usr/bin/nvidia-smi" in said
    assert "the loader's cache is right already" in said


@EACH_RUNTIME
def test_later_stages_do_nothing(node: Node, runtime: str, cgroup: str) -> None:
    """Poststart and poststop succeed in silence, and bring nothing."""
    log = f"{node.folder}/later-{runtime}-{cgroup}.log"
    hooks = {stage: [node.hook(stage, log=log)] for stage in ("poststart", "poststop")}
    result = node.run("sleep:1", "devices", gpus="all", hooks=hooks, runtime=runtime, cgroup=cgroup)
    assert (result.status, result.stderr, result.seen.devices) == (0, "", {})
    assert Path(log).read_text() == ""


def test_create_container_is_refused(node: Node) -> None:
    """At a stage that runs inside the container's tree the hook refuses to work."""
    log = f"{node.folder}/inside.log"
    answers = {}
    for stage in ("createContainer", "startContainer"):
        result = node.run("id", gpus="all", hooks={"prestart": [node.hook(stage, log=log)]})
        answers[stage] = (result.status != 0, result.stdout)
    assert answers == dict.fromkeys(answers, (True, ""))
    assert "createContainer is not a stage of this hook" in Path(log).read_text()


def test_containers_that_start_together_do_not_mix(node: Node) -> None:
    """Six at once, each with a GPU of its own choice, get that one."""
    wanted = {"0": 2, "1": 0, "2": 1}
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda name: node.run("devices", gpus=name), [*wanted, *wanted]))
    got = [sorted(set(result.seen.devices) - set(COMMON)) for result in results]
    assert got == [[f"/dev/nvidia{minor}"] for minor in wanted.values()] * 2


# --- what config.json and config.toml change ---


def test_in_a_user_namespace_all_belongs_to_its_root(node: Node) -> None:
    """With ids mapped from 100000 on, what the hook makes belongs to the container's root, on the host to 100000."""
    paths = (
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/run/nvidia-persistenced",
        "/etc/ld.so.cache",
        "/tmp/nvidia-mps",
    )
    with Container(
        kind="debian", user_from=100000, env=("NVIDIA_VISIBLE_DEVICES=1",), hooks={"prestart": [node.hook()]},
        args=("/bin/probe", "devices", "dlopen:libcuda.so.1", *(f"stat:{path}" for path in paths)),
    ) as container:  # fmt: skip
        before = state_of(container.rootfs)
        result = container.run()
        after = state_of(container.rootfs)
    assert result.status == 0, result.stderr
    assert sorted(result.seen.devices) == sorted((*COMMON, "/dev/nvidia0"))
    assert result.seen.library("libcuda.so.1")["cuda"] == 12040
    for path in paths[:3]:
        answer = result.seen.stat(path)
        assert (answer["uid"], answer["gid"]) == (0, 0), path
    new = {path: entry for path, entry in after.entries.items() if before.entries.get(path) != entry}
    assert {(entry.uid, entry.gid) for path, entry in new.items() if "/dev" not in path} == {(100000, 100000)}


@EACH_RUNTIME
def test_a_read_only_container_gets_its_gpus(node: Node, runtime: str, cgroup: str) -> None:
    """root.readonly takes effect after the hook: all is there, and the root is read-only at last."""
    result = node.run(
        "devices", "dlopen:libcuda.so.1", "mounts", gpus="1", readonly=True, runtime=runtime, cgroup=cgroup
    )
    assert result.status == 0, result.stderr
    assert "/dev/nvidia0" in result.seen.devices
    assert result.seen.library("libcuda.so.1")["cuda"] == 12040
    assert "ro" in result.seen.mount_points["/"].split(",")


def with_rules(spec: dict[str, object]) -> None:
    """Lets config.json itself allow the devices of GPU 1."""
    linux = spec["linux"]
    assert isinstance(linux, dict)
    allowed = [(195, 0), (195, 255), (511, 0), (511, 1)]
    linux["resources"]["devices"] += [
        {"allow": True, "type": "c", "major": major, "minor": minor, "access": "rw"} for major, minor in allowed
    ]


@pytest.mark.parametrize(
    ("cli", "allowed", "warned"),
    [({}, True, False), ({"no-cgroups": False}, True, False), ({"no-cgroups": True}, False, True)],
    ids=str,
)
def test_no_cgroups_has_three_states(node: Node, cli: Mapping[str, object], allowed: bool, warned: bool) -> None:
    """Unset and false write rules; true leaves them alone and says what that means."""
    log = f"{node.folder}/cgroups-{cli}.log".replace(" ", "").replace("'", "")
    hook = node.hook(config=node.config(cli=cli), log=log)
    result = node.run("devices", "rule:195:0", gpus="1", hooks={"prestart": [hook]})
    assert result.status == 0, result.stderr
    assert result.seen.rules == {(195, 0): allowed}
    assert (result.seen.devices["/dev/nvidia0"] != "EPERM") == allowed
    assert ("warning: no-cgroups-rootful" in Path(log).read_text()) == warned


def test_no_cgroups_is_fine_where_the_engine_allows_the_devices(node: Node) -> None:
    """Rules in config.json itself: the nodes open, and there is nothing to warn of."""
    log = f"{node.folder}/own-rules.log"
    hook = node.hook(config=node.config(cli={"no-cgroups": True}), log=log)
    result = node.run("rule:195:0", "rule:195:1", gpus="1", hooks={"prestart": [hook]}, edit=with_rules)
    assert result.seen.rules == {(195, 0): True, (195, 1): False}
    assert "warning" not in Path(log).read_text()


# --- the other backend ---


def recorder(node: Node, status: int = 0) -> tuple[str, str]:
    """A stand-in for nvidia-container-cli that records its arguments and environment: path, and path of the record."""
    record = f"{node.folder}/cli-{status}"
    text = f"printf '%s\\n' \"$@\" > {record}.argv\nenv -0 > {record}.env\nls /proc/self/fd > {record}.fds\n"
    return node.script(f"{text}echo cannot do it >&2\nexit {status}\n"), record


def run_with_cli(node: Node, path: str) -> Result:
    config = node.config(backend="nvidia-container-cli", cli={"path": path})
    hook = Hook(node.launcher, ("-config", config, "prestart"), ("PATH=/usr/sbin:/usr/bin", "LD_PRELOAD=", "MARK=1"))
    return node.run(
        "id", "devices", gpus="0,GPU-1b", env=("NVIDIA_REQUIRE_CUDA=cuda>=12",), hooks={"prestart": [hook]}
    )


def test_nvidia_container_cli_gets_the_request(node: Node) -> None:
    """Under a real runtime the program is executed with the reference's arguments and a clean environment."""
    path, record = recorder(node)
    result = run_with_cli(node, path)
    assert (result.status, result.seen.devices) == (0, {})
    argv = Path(f"{record}.argv").read_text().splitlines()
    pid, rootfs = argv[-2].removeprefix("--pid="), argv[-1]
    assert [word for word in argv[:-2] if not word.startswith("--ldconfig=@/")] == [
        f"--root={node.driver.root}", "--load-kmods", "configure", "--device=0,GPU-1b", "--compute", "--utility",
        "--require=cuda>=12",
    ] or "--cuda-compat-mode=ldconfig" in argv  # fmt: skip
    assert pid.isdigit()
    assert rootfs.endswith("/bundle/rootfs")
    env = Path(f"{record}.env").read_text().split("\0")
    assert "MARK=1" in env
    assert not any(entry.startswith("LD_") for entry in env)
    assert set(Path(f"{record}.fds").read_text().split()) <= {"0", "1", "2", "3"}  # ls itself holds 3


def test_its_failure_is_the_containers(node: Node) -> None:
    """A status other than 0 stops the start, and what the program said is shown."""
    path, _ = recorder(node, 3)
    result = run_with_cli(node, path)
    assert (result.status != 0, result.stdout) == (True, "")
    assert "cannot do it" in result.stderr
