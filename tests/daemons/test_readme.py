"""The README's install section, typed word for word on a fresh machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.inside import nodes
from tests.daemons.site import PROJECT, Site, image_tar, make_site
from tests.rig.needs import need
from tests.rig.process import Result
from tests.rig.snapshot import Snapshot, snapshot
from tests.runtime.node import GPUS

pytestmark = [pytest.mark.runtime, pytest.mark.xdist_group("daemons")]

README = (Path(PROJECT) / "README.md").read_text(encoding="utf-8")
CLONED = ("gpuhook", "README.md", "LICENSE", "pyproject.toml", "setup.cfg")
# A machine may forbid what they would do otherwise; a fresh one has no daemon.json to say it in.
DOCKERD = ("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs")
# /opt is written to, and nobody but this machine may see it. The real one stays readable below.
OVERLAY = """\
mkdir -p /run/opt/upper /run/opt/work
mount -t overlay overlay /opt -o lowerdir=/opt,upperdir=/run/opt/upper,workdir=/run/opt/work
"""


def commands(heading: str, number: int) -> list[str]:
    """The command lines of a heading's console block, by its number there."""
    part = README.split(f"\n### {heading}\n", 1)[1]
    part = re.split(r"^##", part, maxsplit=1, flags=re.MULTILINE)[0]
    block = re.findall(r"```console\n(.*?)```", part, re.DOTALL)[number]
    return re.findall(r"^# (.*(?:<<END\n(?:.*\n)*?END)?)$", block, re.MULTILINE)


class Fresh:
    """A machine with Docker running and an image, and a clone in which somebody types as root."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clone = f"{site.folder}/clone"
        self.home = f"{site.folder}/home"
        os.mkdir(self.home)
        for name in CLONED:
            source = f"{PROJECT}/{name}"
            if os.path.isdir(source):
                shutil.copytree(source, f"{self.clone}/{name}", ignore=shutil.ignore_patterns("__pycache__"))
            else:
                os.makedirs(self.clone, exist_ok=True)
                shutil.copy(source, self.clone)
        site.write(
            "/etc/nvidia-container-runtime/config.toml", f'[nvidia-container-cli]\nroot = "{site.driver.root}"\n'
        )
        shutil.rmtree(f"{site.folder}/etc/docker")
        assert site.run("sh", "-ec", OVERLAY).status == 0
        site.start("containerd", ready=lambda: site.run("ctr", "version").status == 0, log="containerd.log")
        self._start()
        assert site.run("docker", "import", image_tar(site.folder), "debian").status == 0

    def _start(self) -> None:
        ready = lambda: self.site.run("docker", "version").status == 0  # noqa: E731
        self._dockerd = self.site.start(*DOCKERD, ready=ready, log="dockerd.log")

    def type(self, line: str) -> Result:
        """What comes of a line.

        There is no systemd here, and the packages are those of the real machine; every other line runs as it is.
        """
        words = shlex.split(line)
        if words[0] == "apt-get":
            return self.site.run("sh", "-c", "command -v dockerd && python3 -c 'import ensurepip, venv'")
        if line == "systemctl restart docker":
            self.site.stop(self._dockerd)
            self._start()
            return Result(0, "", "")
        typed = f"cd {shlex.quote(self.clone)}\n{line}"
        return self.site.run("sh", "-ec", typed, env={"HOME": self.home, **pip_settings()}, timeout=300)

    def state(self) -> Snapshot:
        """Everything but what Docker and containerd keep for themselves."""
        folder = self.site.folder
        whole = snapshot(f"{folder}/etc", f"{folder}/usr", f"{folder}/var", mounts=False)
        own = tuple(f"{folder}/var/lib/{name}" for name in ("docker", "containerd"))
        return Snapshot({path: entry for path, entry in whole.entries.items() if not path.startswith(own)}, b"")

    def opt(self) -> str:
        """What is in /opt, and the copies that the overlay has of it."""
        return self.site.run("sh", "-c", "ls -A /opt; find /run/opt/upper ! -type c").stdout


def pip_settings() -> dict[str, str]:
    """Where this machine gets its packages, if it says so by variables."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT_"))}


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need("dockerd", "docker", "containerd", "ctr", "podman")
    made = make_site(str(tmp_path_factory.mktemp("readme")))
    try:
        yield made
    finally:
        made.close()


def test_docker_from_nothing_and_back(site: Site) -> None:
    """Up to `docker run --gpus all`, which shows the GPUs; the second block leaves every byte as it was."""
    machine = Fresh(site)
    before, opt = machine.state(), machine.opt()
    said = {}
    for line in commands("Docker", 0):
        said[line] = done = machine.type(line)
        assert done.status == 0, f"{line}\n{done.stdout}{done.stderr}"
    shown = next(done.stdout for line, done in said.items() if line.startswith("docker run --rm --gpus all"))
    assert [*nodes(*range(len(GPUS))), f"nvidia-smi version {site.driver.version}"] == shown.splitlines()
    for line in commands("Docker", 1):
        done = machine.type(line)
        assert done.status == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert before.differences(machine.state()) == []
    assert opt == machine.opt()


def test_what_the_install_prints_is_what_the_readme_shows(site: Site) -> None:
    """The lines below the commands that install and uninstall."""
    for words in (("install", "docker", "--replace-nvidia"), ("status", "docker"), ("uninstall", "docker")):
        done = site.gpuhook(*words)
        assert done.status == 0, done.stderr
        after = README.split(f"gpuhook {' '.join(words)}\n", 1)[1]
        shown = re.split(r"^(?:# |```)", after, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
        lines = done.stdout.splitlines()
        assert [line for line in shown if line not in (*lines, "...")] == []
        assert shown[0] == lines[0]


def test_the_other_engines(site: Site) -> None:
    """Every line of that block works, and uninstall takes all of them back."""
    site.write("/etc/crio/crio.conf", "")
    before = Snapshot(snapshot(f"{site.folder}/etc", f"{site.folder}/usr", mounts=False).entries, b"")
    lines = commands("containerd, Podman, CRI-O", 0)
    installs = [line for line in lines if "gpuhook install" in line]
    assert {line.rsplit(" ", 1)[1] for line in installs} == {"containerd", "crio", "podman"}
    for line in installs:
        done = site.gpuhook(*line.split(" ")[1:])
        assert done.status == 0, done.stderr
        restart = re.findall(r"^to make it count: (.*)$", done.stdout, re.MULTILINE)
        assert set(restart) <= set(lines)
    assert site.gpuhook("uninstall").status == 0
    after = snapshot(f"{site.folder}/etc", f"{site.folder}/usr", mounts=False)
    assert before.differences(after) == []


def test_the_picture_is_there() -> None:
    """The README shows a file of the repository."""
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert os.path.exists(f"{PROJECT}/{path}"), path
