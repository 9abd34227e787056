"""Writes docs/pictures/: what the commands print, as pictures: `python -m tools.pictures`.

The commands run on a terminal of 80 columns, on fixtures: a fake driver, a host of fixtures/hosts, a made-up /proc.
Where a fixture lies is replaced by the place that it stands for, of the same length, and a time by another one;
everything else is what was printed.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fixtures.driver.build import build
from fixtures.driver.model import default_gpu
from tests.doctor import hosts
from tests.ps.tree import DEV, Tree, bind
from tools.terminal_svg import COLUMNS, picture

PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / "docs" / "pictures"
BUNDLES = PROJECT / "fixtures" / "bundles"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": "/"}
SECONDS = re.compile(r", in [0-9.]+ s")
A100 = "NVIDIA A100-SXM4-80GB"
# Of the same length as what stands for them in a scratch folder such as /tmp/gp-abcdefgh.
DRIVER_ROOT, CONFIG = "/run/nvidia/driver", "/etc/nvidia-container-runtime/config.toml"
# explain looks at the machine that it runs on; here that is one of which nothing can be told.
ON_HOST = """
import sys
from functools import partial
from gpuhook.cli import main
from gpuhook.doctor.node import Node
from gpuhook.explain import decide
decide.Node = partial(Node, sys.argv.pop(1))
sys.exit(main())
"""


@dataclass(frozen=True)
class Shot:
    """title: the command as a user types it; run: makes its fixture in a folder and returns the output."""

    title: str
    run: Callable[[Path], str]


def on_terminal(*words: str, cwd: Path = PROJECT, host: str = "") -> str:
    """What `gpuhook` prints on a terminal. host: the root of the machine that explain sees."""
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    program = [sys.executable, "-c", ON_HOST, host] if host else [str(Path(sys.executable).with_name("gpuhook"))]
    argv = [*program, *words]
    with subprocess.Popen(argv, stdout=writing, stderr=subprocess.PIPE, cwd=cwd, env=ENVIRONMENT) as running:
        os.close(writing)
        said = _all(reading)
        assert running.stderr is not None
        complaint = running.stderr.read().decode()
    if complaint or running.returncode not in (0, 1, 2):
        raise RuntimeError(f"{' '.join(argv)} ended with {running.returncode}: {complaint}")
    return said.replace("\r\n", "\n")


def _all(terminal: int) -> str:
    """Everything until the other side is closed, which Linux tells as EIO."""
    data = b""
    try:
        while part := os.read(terminal, 1 << 16):
            data += part
    except OSError:
        pass
    finally:
        os.close(terminal)
    return data.decode()


def explained(bundle: str, count: int) -> Callable[[Path], str]:
    """`gpuhook explain` of a sample bundle, on a node with so many GPUs."""

    def run(scratch: Path) -> str:
        root = scratch / "d"
        gpus = [replace(default_gpu(n), model=A100, brand="Nvidia", arch="8.0") for n in range(count)]
        build(str(root), gpus=gpus)
        config = scratch / ("c" * (len(CONFIG) - len(f"{scratch}/") - len("/config.toml"))) / "config.toml"
        config.parent.mkdir()
        config.write_text(f'[gpuhook]\nbackend = "embedded"\n\n[nvidia-container-cli]\nroot = "{root}"\n')
        said = on_terminal("explain", "--config", str(config), bundle, cwd=BUNDLES, host=str(config.parent))
        return _instead(_instead(said, str(config), CONFIG), str(root), DRIVER_ROOT)

    return run


def uuid(number: int) -> str:
    """The UUID of a GPU."""
    return f"GPU-8f6d51c2-2f4a-3b6e-9d0c-5a7e1b3c4d{number:02x}"


def _instead(said: str, path: str, shown: str) -> str:
    if len(path) != len(shown):
        raise RuntimeError(f"{path} has another length than {shown}: the lines would be broken elsewhere")
    return said.replace(path, shown)


def examined(host: str) -> Callable[[Path], str]:
    """`gpuhook doctor` on a host of the fixtures."""

    def run(scratch: Path) -> str:
        hosts.made(host, scratch / "host")
        return SECONDS.sub(", in 0.2 s", on_terminal("doctor", "--root", str(scratch / "host" / "tree")))

    return run


def listed(scratch: Path) -> str:
    """`gpuhook ps` on a node with two GPUs: Docker's container has lost one, a pod's uses the other."""
    tree, ids = Tree(scratch), ("3f1c" * 16, "b07a" * 16)
    docker, pod = f"/docker/{ids[0]}", f"/kubepods/burstable/pod12345678-1234-1234-1234-123456789abc/{ids[1]}"
    for number, bus in enumerate(("0000:3b:00.0", "0000:86:00.0")):
        tree.gpu(number, bus)
        place = tree.root / f"proc/driver/nvidia/gpus/{bus}/information"
        text = place.read_text().replace("NVIDIA A100", A100).replace(f"GPU-{number:08}", uuid(number))
        place.write_text(text)
    asks = "NVIDIA_VISIBLE_DEVICES={}\0"
    tree.process(4711, docker, env=asks.format("all"), mounts=DEV + bind("nvidia0") + bind("nvidia1"),
                 fds=("/dev/nvidia0",), command="python\0train.py\0")  # fmt: skip
    tree.process(5208, pod, env=asks.format(uuid(1)), mounts=DEV + bind("nvidia1"),
                 fds=("/dev/nvidia1",), command="vllm\0serve\0/models/llama\0")  # fmt: skip
    tree.process(912, fds=("/dev/nvidiactl",), command="nvidia-persistenced\0")
    tree.rules(docker, "c 195:0 rw\n")
    tree.rules(pod, "c 195:1 rw\n")
    notes = {
        "io.kubernetes.cri.container-name": "server",
        "io.kubernetes.cri.image-name": "vllm/vllm-openai:v0.5.4",
        "io.kubernetes.cri.sandbox-name": "llm-0",
        "io.kubernetes.cri.sandbox-namespace": "ml",
    }
    task = f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ids[1]}/config.json"
    tree.write(task, json.dumps({"annotations": notes}))
    tree.says(f"docker inspect --type container {ids[0]}",
              [{"Id": ids[0], "Name": "/train", "Config": {"Image": "pytorch/pytorch:2.3.1"}}])  # fmt: skip
    tree.node()
    return on_terminal("ps", "--root", str(tree.root))


SHOTS = {
    "explain": Shot("gpuhook explain docker-gpus-device-caps", explained("docker-gpus-device-caps", 2)),
    "explain-refused": Shot("gpuhook explain docker-gpus-device-caps", explained("docker-gpus-device-caps", 1)),
    "doctor": Shot("gpuhook doctor", examined("driver-mismatch")),
    "ps": Shot("gpuhook ps", listed),
    "why": Shot("gpuhook why systemd-reload-loses-gpu", lambda _: on_terminal("why", "systemd-reload-loses-gpu")),
}


def drawn(name: str) -> str:
    """The picture of this name, made anew."""
    shot = SHOTS[name]
    with tempfile.TemporaryDirectory(prefix="gp-", dir="/tmp") as scratch:
        said = shot.run(Path(scratch))
        if scratch in said:
            raise RuntimeError(f"{name}: {scratch} is still in it:\n{said}")
        return picture(shot.title, said)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in SHOTS:
        (FOLDER / f"{each}.svg").write_text(drawn(each), encoding="utf-8")
