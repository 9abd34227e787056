"""What cannot be read is skipped, with the reason, and never ok; a fault of a check stops nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from gpuhook.doctor.command import examine
from gpuhook.doctor.model import Finding, Report
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.doctor.registry import Registered
from gpuhook.doctor.run import run_one

Host = Callable[[str], Node]
NOBODY = 65534


class Closed(Node):
    """A host one of whose paths cannot be read by us."""

    def __init__(self, root: str, closed: str) -> None:
        super().__init__(root)
        object.__setattr__(self, "closed", closed)

    def _refuse(self, path: str) -> None:
        closed: str = vars(self)["closed"]
        if path == closed or path.startswith(f"{closed}/"):
            raise Unreadable(f"cannot read {path}: Permission denied")

    def read(self, path: str, default: str | None = None) -> str:
        self._refuse(path)
        return super().read(path, default)

    def exists(self, path: str) -> bool:
        self._refuse(path)
        return super().exists(path)

    def listdir(self, path: str) -> list[str]:
        self._refuse(path)
        return super().listdir(path)


@pytest.mark.parametrize(
    ("name", "path", "slug"),
    [
        ("healthy-docker", "/etc/docker/daemon.json", "daemon-json-invalid"),
        ("healthy-docker", "/etc/docker", "runtime-not-registered"),
        ("healthy-docker", "/proc/800/limits", "nofile-huge"),
        ("healthy-docker", "/sys/bus/pci/devices", "no-gpu-present"),
        ("healthy-docker", "/proc/driver/nvidia/gpus", "gpu-lost"),
        ("healthy-nvidia-stack", "/etc/nvidia-container-runtime/config.toml", "config-toml-broken"),
        ("healthy-nvidia-stack", "/etc/cdi", "cdi-stale"),
        ("healthy-podman", "/etc/containers/oci/hooks.d", "podman-hooks-dir"),
        ("healthy-containerd-k8s", "/etc/containerd", "containerd-config"),
        ("healthy-containerd-k8s", "/var/lib/kubelet/config.yaml", "containerd-systemdcgroup"),
        ("healthy-crio", "/etc/crio/crio.conf.d", "crio-hooks-dir"),
    ],
)
def test_what_cannot_be_read_is_skipped(name: str, path: str, slug: str, host: Host) -> None:
    """The report says which check and why, the check is not ok, and the whole is not ok."""
    report = examine(Closed(host(name).root, path))
    mine = [finding for finding in report.findings if finding.slug == slug]
    assert "skipped" in [finding.level for finding in mine]
    assert "ok" not in [finding.level for finding in mine]
    assert any(path in finding.text for finding in mine)
    assert report.verdict == "skipped"


def test_without_rights_the_daemon_is_not_called_fine(host: Host, tmp_path: Path) -> None:
    """A daemon's environment that is not ours to see (processes of others)."""
    node = host("healthy-docker")
    file = Path(node.root).parent / "processes.json"
    file.write_text(file.read_text().replace('"environ": {"PATH"', '"environ": null, "x": {"PATH"'))
    levels = {finding.slug: finding.level for finding in examine(Node(node.root)).findings}
    assert levels["engine-no-gpu-driver"] == "skipped"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody else")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork with threads: the child only reads and leaves
def test_a_user_without_rights_gets_a_report_of_this_tree(host: Host, tmp_path: Path) -> None:
    """Mode 000, for real: as nobody."""
    node, out = host("healthy-nvidia-stack"), tmp_path / "out"
    examine(node)  # what has to be imported is
    closed = Path(node.root, "etc/nvidia-container-runtime")
    closed.chmod(0)
    out.touch()
    with out.open("w") as file:
        pid = os.fork()
        if pid == 0:
            _as_nobody(node.root, file)
    assert os.waitpid(pid, 0)[1] == 0
    closed.chmod(0o755)
    report = Report.model_validate_json(out.read_text())
    assert {finding.slug: finding.level for finding in report.findings}["config-toml-broken"] == "skipped"
    assert report.verdict == "skipped"


def _as_nobody(root: str, out: TextIO) -> None:
    """In the child: the report on the tree as another user, who may only look at what all may see."""
    try:
        os.chroot(os.path.dirname(root))  # the folders above are root's alone
        os.chdir("/")
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        out.write(examine(Node("/tree")).model_dump_json())
        out.flush()
        os._exit(0)
    finally:
        os._exit(1)


def test_a_check_that_raises_is_a_finding_about_the_check() -> None:
    """And what it found before stays."""

    def broken(node: Node) -> Iterator[Finding]:
        yield Finding(slug="gpu-lost", level="note", text="before")
        raise ZeroDivisionError("no")

    found = list(run_one(Registered(("gpu-lost",), "gpu", broken), Node()))
    assert [(one.level, one.slug) for one in found] == [("note", "gpu-lost"), ("skipped", "gpu-lost")]
    assert "ZeroDivisionError: no" in found[1].text


def test_a_pipe_in_place_of_a_file_does_not_stop_us(host: Host) -> None:
    """Nobody writes into it; reading it would wait for ever."""
    node = host("healthy-docker")
    path = Path(node.root, "etc/nvidia-container-runtime/config.toml")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    levels = {finding.slug: finding.level for finding in examine(node).findings}
    assert levels["config-toml-broken"] == "skipped"


def test_links_of_a_tree_do_not_lead_out_of_it(host: Host, tmp_path: Path) -> None:
    """An absolute link means a path of the tree."""
    (tmp_path / "secret").write_text("x")
    node = host("healthy-docker")
    Path(node.root, "etc/link").symlink_to(tmp_path / "secret")
    assert not node.exists("/etc/link")
    Path(node.root, "etc/loop").symlink_to("loop")
    with pytest.raises(Unreadable):
        node.read("/etc/loop")
