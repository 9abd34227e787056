"""Kubernetes distributions: the file that their containerd is made from, and no other."""

from __future__ import annotations

import re

import pytest

from gpuhook.install.tomledit import Toml, at, table_at
from tests.install.conftest import SHIM, Machine

K3S = "/var/lib/rancher/k3s/agent/etc/containerd"
MICROK8S = "/var/snap/microk8s/current/args/containerd-template.toml"
PLAIN = {"/etc/containerd/config.toml": "version = 2\n"}
BASE = '{{ template "base" . }}\n'
V2, V3 = ("plugins", "io.containerd.grpc.v1.cri"), ("plugins", "io.containerd.cri.v1.runtime")


def rendered(text: str) -> str:
    """A template as the distribution would fill it in, its base left out, if it has found no runtime by itself."""
    text = re.sub(
        r"\{\{ if not \(index \.ExtraRuntimes \"[\w-]+\"\)\.BinaryName \}\}\n(.*?)\{\{ end \}\}\n",
        r"\1",
        text,
        flags=re.DOTALL,
    )
    return text.replace(BASE, "").replace("{{ .SystemdCgroup }}", "true")


@pytest.mark.parametrize(("name", "restart"), [("k3s", "k3s"), ("rke2", "rke2-server")])
@pytest.mark.parametrize(
    ("generated", "template", "plugin"),
    [
        ("version = 2\n", "config.toml.tmpl", V2),
        ("version = 3\n", "config-v3.toml.tmpl", V3),
        (None, "config.toml.tmpl", V2),
    ],
)
def test_a_template_is_put_beside_the_generated_file(
    machine: Machine, name: str, restart: str, generated: str | None, template: str, plugin: tuple[str, ...]
) -> None:
    """It begins with the base; the generated file and containerd's own are left alone."""
    folder = K3S.replace("k3s", name)
    machine.put({**PLAIN, **({f"{folder}/config.toml": generated} if generated else {f"{folder}/other": ""})})
    before = machine.tree()
    assert machine("install", "containerd") == 0
    text = machine.text(f"{folder}/{template}")
    assert text.startswith(BASE)
    found = at(Toml(rendered(text)).table, (*plugin, "containerd", "runtimes", "nvidia"))
    assert found == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"BinaryName": SHIM, "SystemdCgroup": True},
    }
    assert f"systemctl restart {restart}" in machine.out
    assert "/etc/containerd/config.toml is left alone" in machine.out
    assert machine.text("/etc/containerd/config.toml") == "version = 2\n"
    assert machine("install", "containerd") == 0
    assert "nothing changed" in machine.out
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_a_template_that_exists_keeps_every_line(machine: Machine) -> None:
    """It is Go's template language: nothing of it is parsed, our part comes at its end."""
    theirs = '{{ if .X }}\n[x]\n{{ end }}\n{{ template "base" . }}\n[y]\nz = {{ .Z }}'
    machine.put({f"{K3S}/config.toml": "version = 2\n", f"{K3S}/config.toml.tmpl": theirs})
    assert machine("install", "containerd") == 0
    text = machine.text(f"{K3S}/config.toml.tmpl")
    assert text.startswith(theirs)
    machine.put({f"{K3S}/config.toml.tmpl": text.replace("[x]", "[w]")})
    assert machine("uninstall") == 0
    assert machine.text(f"{K3S}/config.toml.tmpl").rstrip() == theirs.replace("[x]", "[w]")


def test_a_template_with_the_runtime_is_left_to_its_author(machine: Machine) -> None:
    """A second table of one name would keep containerd from starting."""
    machine.put({f"{K3S}/config.toml.tmpl": "[plugins.x.containerd.runtimes.nvidia]\n"})
    before = machine.tree()
    assert machine("install", "containerd") == 1
    assert machine.err.startswith("gpuhook: k8s-distro-config:")
    assert before == machine.tree()


def test_nvidias_runtime_that_k3s_finds_by_itself_is_no_neighbour(machine: Machine) -> None:
    """k3s registers it as nvidia at every start; the hint names both ways out."""
    machine.put({f"{K3S}/config.toml": "version = 2\n", "/usr/bin/nvidia-container-runtime": "theirs"})
    machine.path("/usr/bin/nvidia-container-runtime").chmod(0o755)
    assert machine("install", "containerd") == 1
    assert "--replace-nvidia --force --bin /usr/bin" in machine.err
    assert machine("install", "containerd", "--runtime-name", "gpu") == 0
    assert "runtimes.gpu]" in machine.text(f"{K3S}/config.toml.tmpl")


def test_our_program_under_nvidias_name_needs_no_template(machine: Machine) -> None:
    """k3s finds and registers it."""
    machine.put({f"{K3S}/config.toml": "version = 2\n"})
    for _ in range(2):
        assert machine("install", "containerd", "--replace-nvidia", "--bin", "/usr/bin") == 0
        assert not machine.path(f"{K3S}/config.toml.tmpl").exists()
    assert "by itself" in machine.out


@pytest.mark.parametrize("folder", ["/usr/local/bin", "/opt/x"])
def test_a_program_that_only_some_releases_find_does_not_replace_the_template(machine: Machine, folder: str) -> None:
    """Some look in PATH, some in /usr/bin: our part gives way where the base has the runtime."""
    machine.put({f"{K3S}/config.toml": "version = 2\n"})
    before = machine.tree()
    assert machine("install", "containerd") == 0
    assert machine("install", "containerd", "--replace-nvidia", "--bin", folder) == 0
    text = machine.text(f"{K3S}/config.toml.tmpl")
    part = text[text.index("# gpuhook begin") : text.index("# gpuhook end")].splitlines()
    assert part[1] == '{{ if not (index .ExtraRuntimes "nvidia").BinaryName }}'
    assert (part[-1], text.count("runtimes.nvidia]")) == ("{{ end }}", 1)
    assert f'BinaryName = "{folder}/gpuhook-runtime"' in text
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_the_default_is_an_option_of_the_service(machine: Machine) -> None:
    """The base template's table cannot be written a second time."""
    machine.put({f"{K3S}/config.toml": "version = 2\n"})
    assert machine("install", "containerd", "--set-as-default") == 0
    assert machine.text("/etc/rancher/k3s/config.yaml.d/99-gpuhook.yaml") == "default-runtime: nvidia\n"


def test_microk8s_has_a_toml_template(machine: Machine) -> None:
    """Its placeholders stand in texts, so it is changed in place."""
    text = (
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n  default_runtime_name = "${RUNTIME}"\n'
        '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n    runtime_type = "${RUNTIME_TYPE}"\n'
    )
    machine.put({**PLAIN, MICROK8S: text})
    before = machine.tree()
    assert machine("install", "containerd") == 0
    assert machine.text(MICROK8S).startswith(text)
    found = table_at(Toml(machine.text(MICROK8S)).table, (*V2, "containerd", "runtimes", "nvidia"))
    assert found == {"runtime_type": "${RUNTIME_TYPE}", "options": {"BinaryName": SHIM}}
    assert "microk8s start" in machine.out
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_microk8s_placeholders_outside_of_texts_are_refused(machine: Machine) -> None:
    """With their line; nothing is changed."""
    machine.put({MICROK8S: "version = 2\noom_score = ${SCORE}\n"})
    assert machine("install", "containerd") == 1
    assert f"{MICROK8S}:2" in machine.err


@pytest.mark.parametrize(
    ("own", "plugin", "version"),
    [
        (None, V2, False),
        ("# k0s_managed=true\nversion = 2\n", V2, False),
        ("# k0s_managed=true\nversion = 3\n", V3, True),
    ],
)
def test_k0s_reads_a_folder(machine: Machine, own: str | None, plugin: tuple[str, ...], version: bool) -> None:
    """Its own file is generated; older releases append ours to it, where a second version would be a mistake."""
    machine.put({"/etc/k0s/containerd.toml": own} if own else {"/etc/k0s/k0s.yaml": ""})
    before = machine.tree()
    assert machine("install", "containerd") == 0
    table = Toml(machine.text("/etc/k0s/containerd.d/99-gpuhook.toml")).table
    assert at(table, (*plugin, "containerd", "runtimes", "nvidia", "options", "BinaryName")) == SHIM
    assert ("version" in table) is version
    assert machine("uninstall") == 0
    assert before == machine.tree()


def test_k0s_with_a_file_of_the_administrator(machine: Machine) -> None:
    """Without the mark k0s leaves the file alone and reads no folder."""
    machine.put({"/etc/k0s/containerd.toml": "version = 2\n"})
    assert machine("install", "containerd") == 0
    assert SHIM in machine.text("/etc/k0s/containerd.toml")
    assert not machine.path("/etc/k0s/containerd.d").exists()


def test_kubeadm_is_plain_containerd(machine: Machine) -> None:
    """Its file is /etc/containerd/config.toml, its cgroup driver the kubelet's."""
    machine.put(
        {**PLAIN, "/etc/kubernetes/kubelet.conf": "", "/var/lib/kubelet/config.yaml": "cgroupDriver: systemd\n"}
    )
    assert machine("install", "containerd") == 0
    assert "SystemdCgroup = true" in machine.text("/etc/containerd/config.toml")
    assert "RuntimeClass" in machine.out


def test_several_distributions_are_all_served(machine: Machine) -> None:
    """Each gets its own file and is named in the overview and the status."""
    machine.put({f"{K3S}/config.toml": "version = 2\n", MICROK8S: "version = 2\n"})
    assert machine("install") == 0
    assert "k3s: " in machine.out
    assert "microk8s: " in machine.out
    assert machine("install", "containerd") == 0
    assert machine("status", "containerd") == 0
    assert machine.out.count("nvidia is /usr/local/bin/gpuhook-runtime, gpuhook's") == 2
