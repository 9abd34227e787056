"""`make demo`: a container started by runc finds its GPUs because gpuhook, its prestart hook, put them there.

On a node with an NVIDIA driver it is that driver; elsewhere the fake one of fixtures/driver. Without root it shows
what would happen. Nothing is left behind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
DRIVER = Path("/proc/driver/nvidia/version")
CONTAINER = "gpuhook-demo"
GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
APPLETS = ("sh", "cat", "echo", "env", "grep", "ls", "sort")
SCRIPT = """
echo '--- device nodes'; ls -l /dev/ | grep nvidia
echo '--- what the loader finds: ldconfig -p'; ldconfig -p | grep -E 'libcuda|libnvidia-ml'
echo '--- mounts'; grep -E 'nvidia|cuda' /proc/self/mountinfo | while read a b c d point options rest; do
    echo "$point ($options)"; done
echo '--- environment'; env | grep -E 'NVIDIA|CUDA' | sort
"""
ASK_DRIVER = "echo '--- nvidia-smi -L'; nvidia-smi -L\n"  # only a real driver has an answer


def run(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its failure is ours."""
    return subprocess.run(command, check=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def make_rootfs(root: Path) -> None:
    """A small glibc system: busybox, the C library's files of this machine, and ldconfig to look with."""
    for name in ("bin", "dev", "etc", "lib64", "proc", "sbin", "sys", "tmp", "usr/bin", "usr/lib", "run"):
        (root / name).mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin/busybox")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    for name in ("/sbin/ldconfig.real", "/sbin/ldconfig"):
        if Path(name).exists():
            shutil.copy(name, root / "sbin/ldconfig")
            break
    known = run("ldconfig", "-p", capture_output=True, env={"PATH": "/sbin:/usr/sbin"}).stdout
    paths = [Path(line.split(" => ")[1]) for line in known.splitlines() if line.split(" ")[0].strip() in GLIBC]
    for path in paths:
        if "64" in str(path):
            target = root / str(path.resolve().parent).lstrip("/") / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for loader in Path("/lib64").glob("ld-linux*.so*"):
        shutil.copy(loader, root / "lib64" / loader.name)
    if Path("/etc/debian_version").exists():
        shutil.copy("/etc/debian_version", root / "etc/debian_version")
    run("ldconfig", "-r", str(root), env={"PATH": "/sbin:/usr/sbin"})


def make_bundle(bundle: Path, hook: list[str]) -> None:
    """A bundle as `runc spec` writes it, with the hook registered and GPU 0 asked for."""
    bundle.mkdir()
    run("runc", "spec", cwd=bundle)
    config = bundle / "config.json"
    spec = json.loads(config.read_text())
    spec["process"].update(terminal=False, args=["sh", "-c", SCRIPT + (ASK_DRIVER if DRIVER.exists() else "")])
    spec["process"]["env"] += ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=cuda>=11.0"]
    spec["root"]["readonly"] = False
    spec["hooks"] = {"prestart": [{"path": hook[0], "args": hook}]}
    spec["linux"]["cgroupsPath"] = f"/{CONTAINER}"
    config.write_text(json.dumps(spec, indent=1))


def node(folder: Path) -> tuple[str, str]:
    """The driver root, and what to say of it."""
    if DRIVER.exists():
        return "/", f"this node's driver: {DRIVER.read_text().splitlines()[0]}"
    from fixtures.driver.build import build

    return build(
        str(folder / "driver"), gpus=2
    ).root, "no NVIDIA driver here: the fake one of fixtures/driver (2 GPUs)"


def show(folder: Path, config: Path) -> int:
    """Without root: the request, and the plan that would be carried out."""
    from gpuhook.backend.engine import host_of
    from gpuhook.driver.inventory import take_inventory
    from gpuhook.driver.select import select
    from gpuhook.oci.bundle import Bundle
    from gpuhook.oci.state import State
    from gpuhook.plan.build import build_plan
    from gpuhook.plan.ops import Image
    from gpuhook.request.build import build_request
    from gpuhook.request.devices import choose_devices
    from gpuhook.settings.load import load_settings

    settings = load_settings(str(config), {})
    bundle = Bundle(path=str(folder), env={"NVIDIA_VISIBLE_DEVICES": "all"}, mounts=(), root_path="rootfs")
    choice, _ = choose_devices(bundle, settings)
    if choice is None:
        return 1
    request = build_request(State(pid=os.getpid(), bundle=str(folder)), bundle, settings, choice)
    inventory = take_inventory(host_of(settings))
    without_nodes = tuple(gpu.with_(fault="") for gpu in inventory.gpus)  # only root can make the fake ones
    chosen, _ = select(inventory.with_(gpus=without_nodes), choice)
    print("a real container needs root (and runc): sudo make demo. This is what would happen:")
    for op in build_plan(request, inventory, chosen, Image()).ops:
        print(f"  {op.describe()}".replace(str(folder), ""))
    return 0


def demonstrate(folder: Path, config: Path) -> int:
    """Start the container; its output is the demonstration."""
    gpuhook = str(Path(sys.executable).with_name("gpuhook"))
    (folder / "bin").mkdir()
    run(gpuhook, "launchers", str(folder / "bin"), stdout=subprocess.DEVNULL)
    bundle = folder / "bundle"
    make_bundle(bundle, [str(folder / "bin/gpuhook"), "--config", str(config), "prestart"])
    make_rootfs(bundle / "rootfs")
    print(f"$ runc run --bundle {CONTAINER} ...    (hooks.prestart = gpuhook, NVIDIA_VISIBLE_DEVICES=0)")
    sys.stdout.flush()
    return subprocess.run(
        ["runc", "--root", str(folder / "state"), "run", "--bundle", str(bundle), CONTAINER], check=False, text=True
    ).returncode


def main() -> int:
    """Do it in a folder that is removed at the end."""
    kept = Path("/run/gpuhook").exists()
    with tempfile.TemporaryDirectory(prefix="gpuhook-demo-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        root, words = node(folder)
        print(words)
        config = folder / "config.toml"
        config.write_text(f'[nvidia-container-cli]\nroot = "{root}"\n\n[gpuhook]\nbackend = "embedded"\n')
        status = demonstrate(folder, config) if os.geteuid() == 0 else show(folder, config)
    if not kept:
        shutil.rmtree("/run/gpuhook", ignore_errors=True)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
