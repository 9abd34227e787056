"""What a container's start costs, against the bare interpreter: `python bench/start.py [--runs N]`.

Each case is run in turn with the bare interpreter (`python -I -S -c pass`), pair by pair, since a machine's speed
drifts from minute to minute; printed are medians and the median of the pairs' ratios. The hook is started through its
launcher, as an engine would, with a state on stdin. For the exec path nvidia-container-cli is a program that does
nothing: its own start is measured alone and taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUNDLES = Path(__file__).resolve().parents[1] / "fixtures" / "bundles"
INTERPRETER = os.path.realpath(sys.executable)


def seconds(argv: list[str], stdin: bytes) -> float:
    """How long a program runs, from before its start to after its end."""
    started = time.perf_counter()
    subprocess.run(
        argv, input=stdin, check=True, stdout=subprocess.DEVNULL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    )
    return time.perf_counter() - started


def compare(argv: list[str], stdin: bytes, runs: int, less: str = "") -> tuple[float, float, float]:
    """Medians in ms of the bare interpreter and of argv, and the median ratio of the pairs.

    less: a program that argv becomes in the end; its own time, measured beside each pair, is taken off.
    """
    bare = [INTERPRETER, "-I", "-S", "-c", "pass"]
    pairs = []
    for number in range(runs + 3):
        one = seconds(bare, b"")
        other = seconds(argv, stdin) - (seconds([less], b"") if less else 0.0)
        if number >= 3:  # the first ones warm the caches
            pairs.append((one, other))
    middle = statistics.median
    ratio = middle(other / one for one, other in pairs)
    return middle(a for a, _ in pairs) * 1000, middle(b for _, b in pairs) * 1000, ratio


def prepare(folder: Path) -> tuple[Path, Path]:
    """A launcher and a nvidia-container-cli that does nothing."""
    subprocess.run(
        [str(Path(sys.executable).parent / "gpuhook"), "launchers", str(folder)], check=True, stdout=subprocess.DEVNULL
    )
    source = folder / "nothing.c"
    source.write_text('int main(void) { return 0; } char options[] = "cuda-compat-mode";\n')
    program = folder / "nvidia-container-cli"
    subprocess.run(["gcc", "-static", "-O1", "-o", str(program), str(source)], check=True)
    return folder / "gpuhook", program


def bundle(folder: Path, name: str, sample: str) -> bytes:
    """A copy of a sample bundle with a root filesystem; returns the state for it."""
    place = folder / name
    (place / "rootfs").mkdir(parents=True)
    spec = json.loads((BUNDLES / sample / "config.json").read_text())
    spec["root"]["path"] = "rootfs"
    (place / "config.json").write_text(json.dumps(spec))
    return json.dumps({"ociVersion": "1.0.2", "id": name, "pid": os.getpid(), "bundle": str(place)}).encode()


def main() -> int:
    """Print a table of the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60, help="pairs of each case (default: 60)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="gpuhook-bench-") as name:
        folder = Path(name)
        launcher, program = prepare(folder)
        config = folder / "config.toml"
        config.write_text(f'[nvidia-container-cli]\npath = "{program}"\n')
        hook = [str(launcher), "--config", str(config), "prestart"]
        rows = [
            ("no GPU asked for", *compare(hook, bundle(folder, "plain", "docker-no-gpu"), runs)),
            (
                "GPU, exec of nvidia-container-cli",
                *compare(hook, bundle(folder, "gpu", "docker-cuda-12.4-base"), runs, str(program)),
            ),
        ]
    print(f"{'case':<36}{'bare ms':>9}{'hook ms':>9}{'ratio':>8}   ({runs} pairs, Python {sys.version.split()[0]})")
    for label, bare, ours, ratio in rows:
        print(f"{label:<36}{bare:>9.2f}{ours:>9.2f}{ratio:>8.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
