"""What single checks say beyond that they fire: advice that fits, formats of files and logs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.doctor.checks.cdi import majors
from gpuhook.doctor.checks.packages import recent_changes
from gpuhook.doctor.command import examine
from gpuhook.doctor.contained import examine as look
from gpuhook.doctor.contained.case import Tree
from gpuhook.doctor.container import of_container
from gpuhook.doctor.engines import version_of, yaml_value
from gpuhook.doctor.masks import masked
from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node
from gpuhook.explain.subject import from_variables
from gpuhook.settings.values import Settings
from tests.doctor import hosts

Host = Callable[[str], Node]
Found = Callable[[str], tuple[Finding, ...]]


@pytest.mark.parametrize(
    ("name", "slug", "words"),
    [
        ("nouveau", "driver-not-loaded", "keep nouveau from loading"),
        ("module-not-built", "driver-not-loaded", "no nvidia module is built for kernel 6.8.0-45-generic"),
        ("secure-boot", "driver-not-loaded", "mokutil --import"),
        ("wsl1", "wsl-no-adapter", "wsl --set-version <distro> 2"),
        ("docker-not-restarted", "runtime-not-registered", "systemctl restart docker"),
        ("other-daemon-answers", "runtime-not-registered", "another daemon answers"),
        ("k3s-without-runtime", "k8s-distro-config", "systemctl restart k3s"),
        ("containerd-wrong-section", "containerd-config", "io.containerd.grpc.v1.cri"),
        ("containerd-v1-file", "containerd-config", "containerd config migrate"),
        ("ldconfig-absent", "ldconfig-path", 'ldconfig = "@/sbin/ldconfig"'),
        ("ldconfig-script", "ldconfig-path", 'ldconfig = "@/sbin/ldconfig.real"'),
        ("config-unknown-key", "config-toml-broken", "write swarm-resource"),
        ("config-stray-text", "config-toml-broken", "correct line"),
        ("swarm", "swarm-resource", 'swarm-resource = "DOCKER_RESOURCE_NVIDIA-GPU"'),
        ("gpu-lost", "gpu-lost", "ask for them by UUID: GPU-"),
        ("selinux", "selinux", "setsebool -P container_use_xserver_devices 1"),
        ("gvisor", "gvisor-driver", "550.54.15, 550.90.07"),
        ("driver-root-wrong", "driver-root-wrong", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.14"),
        ("container-utility-only", "caps-compute", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        ("container-no-drm", "dri-missing", "--device /dev/dri/renderD128"),
    ],
)
def test_the_advice_fits_the_node(name: str, slug: str, words: str, found: Found) -> None:
    """With names and values of this node filled in."""
    advice = " ".join(text for finding in found(name) if finding.slug == slug for text in finding.advice)
    assert words in advice


@pytest.mark.parametrize(
    ("name", "slug", "where"),
    [
        ("driver-root-wrong", "driver-root-wrong", "/etc/nvidia-container-runtime/config.toml:6"),
        ("gpu-operator-without-driver", "driver-root-wrong", "/.config/nvidia-container-runtime/config.toml:6"),
        ("device-group", "device-node-perms", "/etc/modprobe.d/nvidia.conf:1"),
        ("daemon-json-and-flags", "daemon-json-invalid", "/etc/systemd/system/docker.service.d/override.conf:3"),
        ("containerd-wrong-section", "containerd-config", "/etc/containerd/config.toml:"),
        ("no-cgroups", "no-cgroups-rootful", "/etc/nvidia-container-runtime/config.toml:9"),
        ("container-imex", "imex", "/dev/nvidia-caps-imex-channels/channel7"),
    ],
)
def test_the_evidence_names_file_and_line(name: str, slug: str, where: str, found: Found) -> None:
    """Of what was found."""
    assert any(where in one.where for finding in found(name) if finding.slug == slug for one in finding.evidence)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("dpkg.log", "2025-11-20 06:12:01 upgrade libnvidia-compute-550:amd64 1 2"),
        ("dnf.rpm.log", "2025-11-20T06:12:01+0000 SUBDEBUG Upgraded: nvidia-driver-3:550.54.14-1.fc40.x86_64"),
        ("pacman.log", "[2025-11-20T06:12:01+0000] [ALPM] upgraded nvidia (550-1 -> 555-1)"),
        ("zypp/history", "2025-11-20 06:12:01|install|nvidia-compute-G06|550.54.14|x86_64|"),
    ],
)
def test_the_log_of_each_package_manager_is_read(path: str, line: str, host: Host) -> None:
    """Only what changed, only what takes part, only of late."""
    node = host("healthy-docker")
    file = Path(node.root, "var/log", path)
    file.parent.mkdir(parents=True)
    others = (
        "2025-11-20 06:12:02 status installed libnvidia-compute-550:amd64 2",
        "2025-11-20 06:12:02 upgrade vim:amd64 1 2",
        line.replace("2025-11-20", "2025-10-20"),
    )
    file.write_text("\n".join((*others, line)) + "\n")
    [finding] = recent_changes(node)
    assert [(one.where, one.found) for one in finding.evidence] == [(f"/var/log/{path}:4", line)]


@pytest.mark.parametrize(
    "text",
    [
        "devices:\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia-uvm\n      major: 508\n",
        "deviceNodes:\n  - major: 508\n    minor: 0\n    path: /dev/nvidia-uvm\n  - path: /dev/nvidia0\n",
        json.dumps({"devices": [{"containerEdits": {"deviceNodes": [{"path": "/dev/nvidia-uvm", "major": 508}]}}]}),
    ],
)
def test_device_numbers_are_read_from_every_form_of_cdi(text: str) -> None:
    """YAML in either order, JSON on one line."""
    assert majors(text) == {"/dev/nvidia-uvm": 508}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Docker version 27.3.1, build ce12230", (27, 3, 1)),
        ("cli-version: 1.18.0", (1, 18, 0)),
        ("1.25", (1, 25)),
        ("none", ()),
    ],
)
def test_versions_are_found_in_what_programs_say(text: str, version: tuple[int, ...]) -> None:
    """The first number with a point."""
    assert version_of(text) == version


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cgroupDriver: systemd\n", "systemd"),
        ('a: b\ncgroupDriver: "systemd" # why\n', "systemd"),
        ("x:\n  cgroupDriver: systemd\n", ""),
        ("", ""),
    ],
)
def test_plain_values_of_the_kubelet_are_read(text: str, value: str) -> None:
    """At the top level only."""
    assert yaml_value(text, "cgroupDriver") == value


def test_a_container_that_nobody_knows_is_skipped() -> None:
    """Whether or not an engine is installed here."""
    [finding] = of_container(Node(), "gpuhook-no-such-container")
    assert finding.level == "skipped"
    assert "gpuhook-no-such-container" in finding.text


def test_an_image_cannot_lead_out_of_itself(tmp_path: Path) -> None:
    """Its links mean paths of its own, and the files beside it are not a fixture's."""
    root = tmp_path / "rootfs"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "nodes.json").write_text('{"/etc/ld.so.conf": {}}')
    (root / "etc/link").symlink_to("../../secret")
    tree = Tree(str(root))
    assert not tree.exists("/etc/link")
    assert not tree.exists("/etc/ld.so.conf")


def test_a_pipe_in_an_image_does_not_stop_us(host: Host, tmp_path: Path) -> None:
    """It is told to be no regular file."""
    subject = hosts.subject_of("container-broken-ld-so-conf", tmp_path)
    assert subject is not None
    path = Path(subject.traits.rootfs, "etc/ld.so.conf")
    path.unlink()
    os.mkfifo(path)
    found = {finding.slug: finding for finding in look(subject, Settings(), host("healthy-docker"))}
    assert "no regular file" in found["ldconfig-failed"].text


def test_a_check_of_a_container_that_raises_is_told(host: Host) -> None:
    """As a finding; the others go on."""

    class Broken(Node):
        def glob(self, folder: str, pattern: str) -> list[str]:
            raise ZeroDivisionError("no")

    node = host("healthy-docker")
    subject = from_variables(["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_GDRCOPY=enabled"])
    found = list(look(subject, Settings(), Broken(node.root)))
    assert [(one.slug, one.level) for one in found if "itself failed" in one.text][:1] == [("gds-mofed", "skipped")]


@pytest.mark.parametrize(
    ("text", "is_now"),
    [
        ("on rosebud in /home/kane/x", "on <host> in /home/<user>/x"),
        ("rosebuds", "rosebuds"),
        ("PASSWORD=abc token: def", "PASSWORD=<secret> token: <secret>"),
        ("container web: it", "container <name>: it"),
        ("GPU-00000000-0000-4000-8000-0000000000a0", "GPU-<uuid>"),
        ("tcp://10.0.0.7:2376 127.0.0.1 550.54.14", "tcp://<address>:2376 127.0.0.1 550.54.14"),
        ("fe80::1 and 2001:db8:0:0:1:2:3:4", "<address> and <address>"),
        ("02:42:ac:11:00:02", "<address>"),
        ("0000:01:00.0 at 06:12:01, 195:255", "0000:01:00.0 at 06:12:01, 195:255"),
        ('"registry-token": "a b", "auth": "eA=="', '"registry-token": <secret>, "auth": <secret>'),
        ("--api-token hunter2 --label x", "--api-token <secret> --label x"),
        ("HTTPS_PROXY=https://joe:p@ss@proxy.example.com:3128", "HTTPS_PROXY=https://<secret>@<host>:3128"),
        ("http://%2Fvar%2Frun%2Fdocker.sock/v1.50 unix:///x", "http://%2Fvar%2Frun%2Fdocker.sock/v1.50 unix:///x"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: <secret> <secret>"),
        ("nvapi-abcdefgh1 hf_abcdefghij ghp_0123456789ab", "<secret> <secret> <secret>"),
        ("joe@example.com", "<user>@<host>"),
        ("/run/user/1000/docker.sock", "/run/user/<user>/docker.sock"),
        ("driver 550.54.14, libnvidia-ml.so.550.90.07", "driver 550.54.14, libnvidia-ml.so.550.90.07"),
    ],
)
def test_names_are_masked(text: str, is_now: str) -> None:
    """And nothing else."""
    assert masked(text, {"rosebud": "<host>"}) == is_now


def test_the_containerd_that_runs_is_asked(host: Host) -> None:
    """And not the first one in PATH, nor the one that dockerd keeps for itself."""
    node = host("containerd-sections-replaced")
    file = Path(node.root).parent / "commands.json"
    said = json.loads(file.read_text())
    said["/opt/containerd/bin/containerd config dump"] = {"stdout": "[plugins.x.containerd.runtimes.nvidia]\n"}
    said["/opt/containerd/bin/containerd --version"] = {"stdout": "containerd containerd.io v2.0.1 x\n"}
    file.write_text(json.dumps(said))
    assert "containerd-config" in hosts.levels(examine(Node(node.root)).findings)
    own = ["/usr/bin/containerd", "--config", "/var/run/docker/containerd/containerd.toml"]
    running = [
        {"pid": 4, "argv": own, "exe": "/usr/bin/containerd"},
        {"pid": 5, "argv": ["containerd"], "exe": "/opt/containerd/bin/containerd"},
    ]
    file = Path(node.root).parent / "processes.json"
    kept = [one for one in json.loads(file.read_text()) if not one.get("exe", "").endswith("/containerd")]
    file.write_text(json.dumps([*kept, *running]))
    assert "containerd-config" not in hosts.levels(examine(Node(node.root)).findings)


def test_a_section_is_told_as_it_is_written(found: Found) -> None:
    """To be copied: parts with points in quotes."""
    [one] = [each for each in found("containerd-wrong-section") if each.slug == "containerd-config"]
    assert 'move it to plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia' in one.advice[0]
