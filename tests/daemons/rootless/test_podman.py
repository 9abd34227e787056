"""Podman of an ordinary user with our hook in --hooks-dir, under runc and crun."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemons.rootless.questions import LATE, LIB, QUESTIONS, has, lists_both, one_message
from tests.daemons.rootless.user import RUNTIME, RUNTIMES, SUBORDINATE, UID, User, owners
from tests.rig.process import Result
from tests.rig.rootfs import put

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

STORAGE = ("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")  # else Podman raises them, if it may
IMAGE = "probe"
Podman = Callable[..., Result]


@pytest.fixture(scope="module")
def podman(user: User) -> Podman:
    """A function that runs a program, or the probe, in a container. tree: in place of the image."""
    for words in (("system", "migrate"), ("import", user.image, IMAGE)):
        done = user.run("podman", *STORAGE, *words)
        assert done.status == 0, done.stderr
    usual = user.hooks_dir()

    def start(
        *words: str,
        options: tuple[str, ...] = (),
        runtime: str = "runc",
        hooks: str = "",
        gpus: str = "all",
        tree: str = "",
    ) -> Result:
        return user.run(
            "podman", *STORAGE, "--hooks-dir", hooks or usual, "--runtime", runtime,
            "run", "--rm", "--network", "none", *LIMITS, "--log-driver", "none",
            "-e", f"NVIDIA_VISIBLE_DEVICES={gpus}", *options,
            *(("--rootfs", tree) if tree else (IMAGE,)), *(words or ("/bin/probe", *QUESTIONS)),
        )  # fmt: skip

    return start


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("asked", "gpus"), [("1", (1,)), ("all", (0, 1, 2)), ("void", ())])
def test_a_rootless_container_gets_what_it_asks_for(
    podman: Podman, runtime: str, asked: str, gpus: tuple[int, ...]
) -> None:
    """Nodes, libraries and programs; `no-cgroups` is not in the configuration."""
    done = podman(gpus=asked, runtime=runtime)
    has(done, *gpus)
    assert done.seen.of("id")[0]["uid"] == 0


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_ldconfig_in_the_container_lists_the_driver(user: User, podman: Podman, runtime: str) -> None:
    """The image's own libraries and the driver's, in one cache."""
    lists_both(user, podman("/sbin/ldconfig", "-p", runtime=runtime))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_made_belongs_to_the_containers_root(user: User, podman: Podman, runtime: str) -> None:
    """On the host that is the user; within, root. The driver's own files are nobody's there."""
    tree = user.tree()
    before = owners(tree)
    done = podman(tree=tree, runtime=runtime)
    has(done, 0, 1, 2)
    cache = done.seen.stat("/etc/ld.so.cache")
    assert (cache["uid"], cache["gid"]) == (0, 0)
    made = {path: owner for path, owner in owners(tree).items() if path not in before}
    assert {f"{LIB}/libcuda.so.1", "/usr/bin/nvidia-smi", "/run/nvidia-persistenced"} <= set(made)
    assert set(made.values()) == {(UID, UID)}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_user_namespace_within_the_users(user: User, podman: Podman, runtime: str) -> None:
    """--userns=keep-id: the container's root is a subordinate id, to whom everything new belongs."""
    tree = user.tree(owner=SUBORDINATE)
    before = owners(tree)
    done = podman(tree=tree, runtime=runtime, options=("--userns", "keep-id"))
    has(done, 0, 1, 2)
    assert done.seen.of("id")[0]["uid"] == UID
    assert done.seen.stat("/etc/ld.so.cache")["uid"] == 0
    made = {path: owner for path, owner in owners(tree).items() if path not in before}
    assert (SUBORDINATE, SUBORDINATE) == made[f"{LIB}/libcuda.so.1"] == made["/usr/bin/nvidia-smi"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_another_user_in_the_container(podman: Podman, runtime: str) -> None:
    """A process that is not the container's root finds and opens the same."""
    done = podman(options=("--user", "1000:1000"), runtime=runtime)
    has(done, 0, 1, 2)
    assert done.seen.of("id")[0]["uid"] == 1000


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_damaged_cache_is_made_anew(user: User, podman: Podman, runtime: str) -> None:
    """The host's ldconfig runs confined inside the user's namespace too."""
    tree, log = user.tree(), user.log()
    with open(f"{tree}/etc/ld.so.cache", "wb") as file:
        file.write(b"rubbish")
    lists_both(user, podman("/sbin/ldconfig", "-p", tree=tree, runtime=runtime, hooks=user.hooks_dir(log=log)))
    with open(log, encoding="utf-8") as file:
        assert "ldconfig made a new cache" in file.read()


@pytest.mark.parametrize(
    ("value", "warned"), [("", False), ("no-cgroups = true", False), ("no-cgroups = false", True)]
)
def test_device_rules_are_nobodys_business(user: User, podman: Podman, value: str, warned: bool) -> None:
    """Unset or true: nothing is said; false: that it cannot be. The container starts with its GPUs."""
    log = user.log()
    has(podman(gpus="2", hooks=user.hooks_dir(user.config(value), log)), 2)
    with open(log, encoding="utf-8") as file:
        text = file.read()
    assert ("device rules cannot be written in a user namespace" in text) == warned
    assert "no-cgroups-rootful" not in text


def test_outcomes_are_kept_in_the_users_runtime_folder(user: User, podman: Podman) -> None:
    """Private, the user's own, and used again: the second start writes nothing."""
    has(podman(), 0, 1, 2)
    kept = snapshots(user)
    assert "driver.json" in [name for _, _, name in kept]
    assert {rights for rights, _, _ in kept} == {f"{UID} 600"}
    has(podman(), 0, 1, 2)
    assert snapshots(user) == kept


def snapshots(user: User) -> list[tuple[str, str, str]]:
    """Owner and mode, inode, name of each."""
    found = user.run("find", f"{RUNTIME}/gpuhook", "-type", "f", "-printf", "%U %m\t%i\t%f\n").stdout
    return sorted(tuple(line.split("\t")) for line in found.splitlines())  # type: ignore[misc]


def test_a_requirement_is_held_against_the_driver(podman: Podman) -> None:
    """The question to libcuda works in the user's namespace; what the driver has not got is refused."""
    has(podman(options=("-e", "NVIDIA_REQUIRE_CUDA=cuda>=11.0")), 0, 1, 2)
    refused = podman(options=("-e", "NVIDIA_REQUIRE_CUDA=cuda>=99.0"))
    assert refused.status != 0
    assert "CUDA >= 99.0" in one_message(refused.stderr, "requirement-cuda")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_read_only_container(podman: Podman, runtime: str) -> None:
    """The runtime makes it read-only after the hook: all is there."""
    has(podman(options=("--read-only",), runtime=runtime), 0, 1, 2)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("slug", "says", "gpus", "inside"),
    [("unknown-device", "7", "7", {}), ("engine-failed", "/etc/ld.so.cache", "all", LATE)],
)
def test_what_cannot_be_is_one_message(
    user: User, podman: Podman, runtime: str, slug: str, says: str, gpus: str, inside: dict[str, str | None]
) -> None:
    """No container starts, nothing of ours is in the tree. runc passes the message on; crun does not, by itself."""
    tree, log = user.tree(), user.log()
    put(tree, inside)
    before = owners(tree)
    refused = podman(tree=tree, runtime=runtime, gpus=gpus, hooks=user.hooks_dir(log=log if runtime == "crun" else ""))
    assert (refused.status != 0, refused.stdout) == (True, "")
    with open(log, encoding="utf-8") as file:
        assert says in one_message(file.read() if runtime == "crun" else refused.stderr, slug)
    assert [path for path in owners(tree) if path not in before and "nvidia" in path] == []


def test_only_a_safe_configuration_is_obeyed(user: User, podman: Podman) -> None:
    """The user's own is; one that others can write is refused."""
    has(podman(hooks=user.hooks_dir(user.config(owner=UID))), 0, 1, 2)
    refused = podman(hooks=user.hooks_dir(user.config(owner=UID, mode=0o666)))
    assert refused.status != 0
    assert "config" in one_message(refused.stderr, "unsafe-config")
