"""runc of an ordinary user, who is nobody in particular where its hooks run, with ids mapped by newuidmap."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.rootless.questions import LATE, LIB, QUESTIONS, has, lists_both, one_message
from tests.daemons.rootless.user import RUNTIME, SUBORDINATE, SUBORDINATES, UID, User, owners
from tests.rig.process import Result
from tests.rig.rootfs import put
from tests.rig.spec import base_spec

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

MAPPED = (
    {"containerID": 0, "hostID": UID, "size": 1},
    {"containerID": 1, "hostID": SUBORDINATE, "size": SUBORDINATES},
)
ALL = "NVIDIA_VISIBLE_DEVICES=all"
_numbers = count(1)


@dataclass
class Bundle:
    """A bundle of the user's; `log` is what the hook says."""

    user: User
    folder: str
    log: str

    @property
    def tree(self) -> str:
        """Its root filesystem."""
        return f"{self.folder}/rootfs"

    def run(
        self,
        *words: str,
        runtime: str = "runc",
        gpus: str = "all",
        stage: str = "prestart",
        config: str = "",
        quiet: bool = False,
        env: tuple[str, ...] = (),
        **changes: Any,
    ) -> Result:
        """A container's outcome. quiet: the hook's words go to runc; changes: of the specification's `linux`."""
        hook = self.user.hook(config, "" if quiet else self.log)
        self.write(*words, env=(f"NVIDIA_VISIBLE_DEVICES={gpus}", *env), hooks={stage: [hook]}, **changes)
        argv = (runtime, "--root", f"{RUNTIME}/{runtime}", "run", "--bundle", self.folder, f"test-{next(_numbers)}")
        return self.user.run(*argv)

    def write(self, *words: str, env: tuple[str, ...] = (ALL,), hooks: object = None, **changes: Any) -> None:
        """Its config.json."""
        spec = base_spec()
        spec["process"] |= {"args": list(words or ("/bin/probe", *QUESTIONS))}
        spec["process"]["env"] += env
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "cgroup"]  # they are not the user's
        mapped = [dict(each) for each in MAPPED]
        spec["linux"]["namespaces"].append({"type": "user"})
        spec["linux"] |= {"uidMappings": mapped, "gidMappings": mapped, "resources": None, **changes}
        spec |= {"hooks": hooks} if hooks else {}
        Path(f"{self.folder}/config.json").write_text(json.dumps(spec))

    @property
    def said(self) -> str:
        """All that the hook has said."""
        return Path(self.log).read_text()


@pytest.fixture
def bundle(user: User) -> Iterator[Bundle]:
    tree = user.tree()
    folder = os.path.dirname(tree)
    yield Bundle(user, folder, user.log())
    shutil.rmtree(folder)


@pytest.mark.parametrize("stage", ["prestart", "createRuntime"])
@pytest.mark.parametrize(("asked", "gpus"), [("1", (1,)), ("all", (0, 1, 2)), ("void", ())])
def test_the_users_own_runc(bundle: Bundle, stage: str, asked: str, gpus: tuple[int, ...]) -> None:
    """The container has what it asks for, though the hook was started without any right; `no-cgroups` is unset."""
    has(bundle.run(gpus=asked, stage=stage), *gpus)


def test_what_is_made_belongs_to_the_containers_root(bundle: Bundle) -> None:
    """On the host that is the user; nothing of the host's root, and no mount stays behind."""
    before, mounts = owners(bundle.tree), bundle.user.site.run("cat", "/proc/self/mountinfo").stdout
    done = bundle.run()
    has(done, 0, 1, 2)
    assert done.seen.stat("/etc/ld.so.cache")["uid"] == 0
    made = {path: owner for path, owner in owners(bundle.tree).items() if path not in before}
    assert {f"{LIB}/libcuda.so.1", "/usr/bin/nvidia-smi"} <= set(made)
    assert set(made.values()) == {(UID, UID)}
    assert bundle.user.site.run("cat", "/proc/self/mountinfo").stdout == mounts


def test_one_id_alone(bundle: Bundle) -> None:
    """As `runc spec --rootless` writes it: no subordinate ids, no newuidmap."""
    alone = [dict(MAPPED[0])]
    has(bundle.run(uidMappings=alone, gidMappings=alone), 0, 1, 2)


@pytest.mark.parametrize("damaged", [False, True])
def test_ldconfig_in_the_container_lists_the_driver(bundle: Bundle, damaged: bool) -> None:
    """Also where the image's cache had to be made anew by the confined ldconfig."""
    if damaged:
        put(bundle.tree, {"etc/ld.so.cache": b"rubbish"})
    lists_both(bundle.user, bundle.run("/sbin/ldconfig", "-p"))
    assert ("ldconfig made a new cache" in bundle.said) == damaged


@pytest.mark.parametrize(
    ("value", "warned"), [("", False), ("no-cgroups = true", False), ("no-cgroups = false", True)]
)
def test_device_rules_are_nobodys_business(bundle: Bundle, value: str, warned: bool) -> None:
    """As in Podman: only a `false` is worth a word."""
    has(bundle.run(gpus="2", config=bundle.user.config(value)), 2)
    assert ("device rules cannot be written in a user namespace" in bundle.said) == warned
    assert "no-cgroups-rootful" not in bundle.said


@pytest.mark.parametrize(
    ("slug", "says", "gpus", "inside"),
    [("unknown-device", "7", "7", {}), ("engine-failed", "/etc/ld.so.cache", "all", LATE)],
)
def test_what_cannot_be_is_one_message(
    bundle: Bundle, slug: str, says: str, gpus: str, inside: dict[str, str | None]
) -> None:
    """The runtime passes it on; no container starts, and what was made is taken back."""
    put(bundle.tree, inside)
    before = owners(bundle.tree)
    refused = bundle.run(gpus=gpus, quiet=True)
    assert (refused.status != 0, refused.stdout) == (True, "")
    assert says in one_message(refused.stderr, slug)
    assert [path for path in owners(bundle.tree) if path not in before and "nvidia" in path] == []


@pytest.mark.parametrize(("owner", "mode"), [(UID + 1, 0o644), (UID, 0o666)])
def test_only_a_safe_configuration_is_obeyed(bundle: Bundle, owner: int, mode: int) -> None:
    """Another user's, or one that others can write, is refused; the user's own is not."""
    has(bundle.run(config=bundle.user.config(owner=UID)), 0, 1, 2)
    refused = bundle.run(config=bundle.user.config(owner=owner, mode=mode), quiet=True)
    assert refused.status != 0
    assert "config" in one_message(refused.stderr, "unsafe-config")


def test_the_users_own_crun_is_refused(bundle: Bundle) -> None:
    """An ordinary user's hook of crun's sees nothing of the container; the message says what works instead."""
    before = owners(bundle.tree)
    refused = bundle.run(runtime="crun")
    assert (refused.status != 0, refused.stdout) == (True, "")
    assert "Permission denied" in one_message(bundle.said, "bad-container")
    assert "start it with runc, or with Podman" in bundle.said
    assert {path for path in owners(bundle.tree) if path not in before} <= {"/dev/pts", "/dev/shm"}


def test_nvidias_program_is_started_in_the_namespace_too(bundle: Bundle) -> None:
    """With the rights it needs, and told as in rootless Podman that device rules are nobody's there."""
    log = bundle.user.log()
    program = bundle.user.script(f'echo "$@" > {log}; cat /proc/self/uid_map >> {log}\n')
    done = bundle.run("/bin/true", config=bundle.user.config(f'path = "{program}"', backend="nvidia-container-cli"))
    assert done.status == 0, done.stderr
    words, *mapped = Path(log).read_text().splitlines()
    assert "--no-cgroups" in words.split()
    assert mapped[0].split() == ["0", f"{UID}", "1"]


def test_a_requirement_is_held_against_the_driver(bundle: Bundle) -> None:
    """The question to libcuda works from there too."""
    has(bundle.run(env=("NVIDIA_REQUIRE_CUDA=cuda>=11.0",)), 0, 1, 2)
    refused = bundle.run(env=("NVIDIA_REQUIRE_CUDA=cuda>=99.0",), quiet=True)
    assert refused.status != 0
    assert "CUDA >= 99.0" in one_message(refused.stderr, "requirement-cuda")


@pytest.mark.parametrize(("uid", "enters"), [(UID, True), (UID + 1, False)])
def test_another_users_container_is_not_entered(bundle: Bundle, uid: int, enters: bool) -> None:
    """Whoever names a process: the kernel decides whose it is. The user's own is entered, and is not the bundle's."""
    bundle.write()
    with bundle.user.sleeper() as pid:
        state = {"ociVersion": "1.0.2", "id": "x", "status": "creating", "pid": pid, "bundle": bundle.folder}
        hook = (bundle.user.launcher, "--config", f"{bundle.user.site.folder}/config.toml", "--debug", "prestart")
        refused = bundle.user.run(*hook, stdin=json.dumps(state).encode(), uid=uid)
    assert refused.status == 1
    message = one_message(refused.stderr, "bad-container")
    assert ("does not have the bundle's root filesystem" in message) == enters
    assert ("cannot read about process" in message) == (not enters)
    assert ("is closed to us" in refused.stderr) == (not enters)
