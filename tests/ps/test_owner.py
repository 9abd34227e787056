"""Whose container a cgroup is."""

from __future__ import annotations

import pytest

from gpuhook.ps.owner import Owner, last_name, owner_of

ID = "0123456789abcdef" * 4
OTHER = "f" * 64
UID = "12345678-1234-1234-1234-123456789abc"
FLAT = UID.replace("-", "_")
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice"


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"/docker/{ID}", Owner("docker", ID)),
        (f"/system.slice/docker-{ID}.scope", Owner("docker", ID)),
        (f"/system.slice/docker-{ID}.scope/init.scope", Owner("docker", ID)),
        (f"/libpod_parent/libpod-{ID}", Owner("podman", ID)),
        (f"/machine.slice/libpod-{ID}.scope/container", Owner("podman", ID)),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", Owner("podman", ID)),
        (f"/kubepods/burstable/pod{UID}/{ID}", Owner("containerd", ID, UID)),
        (f"/kubepods/pod{UID}/{ID}", Owner("containerd", ID, UID)),
        (f"/kubepods/pod{UID.replace('-', '')}/{ID}", Owner("containerd", ID, UID.replace("-", ""))),
        (f"{SLICE}/cri-containerd-{ID}.scope", Owner("containerd", ID, UID)),
        (f"/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope", Owner("containerd", ID, UID)),
        (f"{SLICE}/crio-{ID}.scope/container", Owner("cri-o", ID, UID)),
        (f"/kubepods/besteffort/pod{UID}/crio-{ID}", Owner("cri-o", ID, UID)),
        (f"{SLICE}/docker-{ID}.scope", Owner("docker", ID, UID)),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{FLAT}.slice:cri-containerd:{ID}",
            Owner("containerd", ID, UID),
        ),
        (f"/system.slice:docker:{ID}", Owner("docker", ID)),
        (f"/system.slice/nerdctl-{ID}.scope", Owner("containerd", ID)),
        (f"/default/{ID}", Owner("unknown", ID)),
        (f"/docker/{OTHER}/kubepods/pod{UID}/{ID}", Owner("containerd", ID, UID)),
        (f"/docker/{OTHER}/system.slice/docker-{ID}.scope", Owner("docker", ID)),
    ],
)
def test_each_engine_is_known_by_its_names(path: str, owner: Owner) -> None:
    """With cgroupfs and with systemd, nested: the innermost container."""
    assert owner_of(f"0::{path}\n") == owner


@pytest.mark.parametrize(
    "path",
    [
        "/", "/init.scope", "/system.slice/docker.service", f"/machine.slice/libpod-conmon-{ID}.scope",
        f"/x/crio-conmon-{ID}.scope", f"/x/docker-{ID[:12]}.scope", f"/x/docker-{ID}.scope.d", f"/x/{ID}0",
        f"/kubepods/pod{UID}", "",
    ],
)  # fmt: skip
def test_what_is_no_container(path: str) -> None:
    """Daemons, monitors, pods themselves, ids that are cut."""
    assert owner_of(f"0::{path}\n") is None


def test_any_hierarchy_may_tell() -> None:
    """Under cgroup v1 some hierarchies leave everything in the root; a path may hold colons."""
    assert owner_of(f"9:name=systemd:/\n5:devices:/docker/{ID}\n0::/\n") == Owner("docker", ID)


@pytest.mark.parametrize("text", ["", "nonsense", "1:2", ":::", "0::"])
def test_nonsense(text: str) -> None:
    """A line that is none is passed over."""
    assert owner_of(text) is None


def test_a_name_for_strangers() -> None:
    """The last component of the longest path."""
    assert last_name("5:devices:/rig/c1\n0::/\n") == "c1"
