"""A machine of its own within this one: private /etc, /var/lib, /run and /usr/local, in a mount namespace.

On it `gpuhook install` and the daemons run with their usual paths and change nothing of the real machine. Everything
ends with `close`: the processes by their ids, the mounts with the namespace.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fixtures.driver.build import build
from fixtures.driver.model import FakeDriver
from tests.rig.needs import need
from tests.rig.process import PATH, Result, run
from tests.rig.rootfs import make_rootfs
from tests.runtime.node import GPUS

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Copied, then bound over the real ones; /run and /var/lib are empty at first.
COPIED = ("/etc", "/usr/local/bin", "/usr/local/sbin", "/usr/share/containers")
HOLDER = """
import os, sys
from tests.rig import kernel
kernel.die_with_parent()
kernel.private_mounts()
kernel.show_cgroups("v1")
for source, target in (pair.split("=") for pair in sys.argv[1:]):
    kernel.mount(source, target, flags=kernel.MS_BIND)
kernel.mount("tmpfs", "/run", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
os.write(1, b"ready")
kernel.wait_for_ever()
"""
GPUHOOK = "import sys; from gpuhook.hook import main; sys.exit(main(sys.argv[1:]))"
DAEMON_JSON = '{\n  "iptables": false,\n  "ip6tables": false,\n  "bridge": "none",\n  "storage-driver": "vfs"\n}\n'


@dataclass
class Site:
    """The machine. folder: of everything; driver: the fake one, to which its config.toml leads."""

    folder: str
    driver: FakeDriver
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def open(self) -> None:
        """Make the namespace."""
        for path in COPIED:
            if os.path.isdir(path):
                shutil.copytree(path, f"{self.folder}{path}", symlinks=True, ignore_dangling_symlinks=True)
        for path in ("/var/lib", "/etc/docker", "/etc/nvidia-container-runtime"):
            os.makedirs(f"{self.folder}{path}", exist_ok=True)
        self.write("/etc/docker/daemon.json", DAEMON_JSON)
        self.write("/etc/nvidia-container-runtime/config.toml", self.config())
        pairs = [
            f"{self.folder}{path}={path}" for path in (*COPIED, "/var/lib") if os.path.isdir(f"{self.folder}{path}")
        ]
        holder = self._keep([sys.executable, "-c", HOLDER, *pairs], stdout=subprocess.PIPE, cwd=PROJECT)
        assert holder.stdout
        assert holder.stdout.read(5) == b"ready"

    def config(self) -> str:
        """The config.toml that leads to the fake driver."""
        return f'[nvidia-container-cli]\nroot = "{self.driver.root}"\n[gpuhook]\nbackend = "embedded"\n'

    def write(self, path: str, text: str) -> None:
        """A file of the machine, seen from outside of it."""
        os.makedirs(os.path.dirname(f"{self.folder}{path}"), exist_ok=True)
        with open(f"{self.folder}{path}", "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path: str) -> str:
        """The content of a file of the machine below a copied folder or /var/lib."""
        with open(f"{self.folder}{path}", encoding="utf-8") as file:
            return file.read()

    def enter(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs this one on the machine."""
        return ["nsenter", f"--mount=/proc/{self._processes[0].pid}/ns/mnt", "--", *argv]

    def run(self, *argv: str, env: Mapping[str, str] | None = None, timeout: float = 120, cwd: str = "/") -> Result:
        """A program's outcome on the machine. env: added to PATH and HOME."""
        whole = {"PATH": PATH, "HOME": "/root", **(env or {})}
        return run(self.enter(argv), env=whole, timeout=timeout, cwd=cwd)

    def gpuhook(self, *words: str) -> Result:
        """Our own command there, from this source."""
        return self.run(sys.executable, "-c", GPUHOOK, *words, cwd=PROJECT)

    def start(self, *argv: str, ready: Callable[[], bool], log: str) -> subprocess.Popen[bytes]:
        """A daemon on the machine, once it answers. log: its output, by name. Raises RuntimeError."""
        with open(f"{self.folder}/{log}", "ab") as file:
            env = {"PATH": PATH, "HOME": "/root"}
            process = self._keep(self.enter(argv), stdout=file, stderr=file, env=env, cwd="/")
        deadline = time.monotonic() + 60
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{argv[0]} does not answer:\n{self.read(f'/{log}')[-4000:]}")
            time.sleep(0.1)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End a daemon and wait for it."""
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._processes.remove(process)

    def _keep(self, argv: list[str], **options: object) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = subprocess.Popen(argv, **options)  # type: ignore[call-overload]
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End everything, the last first; the namespace with its mounts goes last."""
        for process in reversed(self._processes[1:]):
            self.stop(process)
        for process in self._processes:
            process.kill()
            process.communicate()


def make_site(folder: str) -> Site:
    """A machine in this folder, with a driver of three GPUs."""
    need("gcc", "nsenter", "busybox")
    site = Site(folder, build(f"{folder}/driver", gpus=GPUS))
    site.open()
    return site


def image_tar(folder: str) -> str:
    """A Debian-like image with the probe, as a tar file of its root filesystem."""
    rootfs = make_rootfs(f"{folder}/rootfs", "debian")
    done = run(["tar", "-C", rootfs, "-cf", f"{folder}/image.tar", "."])
    assert done.status == 0, done.stderr
    return f"{folder}/image.tar"
