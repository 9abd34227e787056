"""What the embedded engine adds to a real container's start: `python bench/container.py [--runs N]`, as root.

`runc run` of /bin/true without a hook and with gpuhook as its prestart hook, pair by pair, since a machine's speed
drifts from minute to minute. The driver is the fake one of fixtures/driver; the images are a small glibc tree, and the
same with 2,500 shared libraries more. Each run gets a fresh overlay of its image, as an engine would give it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.driver.elf import shared_object
from tests.rig.container import Hook
from tests.rig.rootfs import TRIPLET, index, make_rootfs, put
from tests.runtime.node import Node, make_node

LIBRARIES = 2500
IMAGES = (("a minimal image", 0), (f"an image of {LIBRARIES:,} libraries", LIBRARIES))


def image(folder: Path, libraries: int) -> Path:
    """The root filesystem of an image with this many libraries more than the C library's."""
    rootfs = make_rootfs(str(folder), "debian")
    put(
        rootfs,
        {f"usr/lib/{TRIPLET}/libbench{n:04}.so.1": shared_object(f"libbench{n:04}.so.1") for n in range(libraries)},
    )
    index(rootfs)
    return Path(rootfs)


def seconds(node: Node, lower: Path, hooks: dict[str, object]) -> float:
    """How long `runc run` of a new container of this image takes."""
    with tempfile.TemporaryDirectory(dir=node.folder) as name:
        place = Path(name)
        for part in ("upper", "work", "merged"):
            (place / part).mkdir()
        bundle = node.bundle(str(place / "merged"), "NVIDIA_VISIBLE_DEVICES=all", hooks=hooks)
        layers = f"lowerdir={lower},upperdir={place}/upper,workdir={place}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, f"{place}/merged"], check=True)
        try:
            started = time.perf_counter()
            subprocess.run(["runc", "run", "--bundle", bundle, place.name], check=True)
            return time.perf_counter() - started
        finally:
            subprocess.run(["umount", f"{place}/merged"], check=True)


def compare(node: Node, lower: Path, runs: int) -> tuple[float, float, float]:
    """Medians in ms without and with the hook, and the median of the pairs' differences."""
    hook = Hook(node.launcher, ("--config", node.config(), "prestart"))
    pairs = []
    for number in range(runs + 2):
        pair = seconds(node, lower, {}), seconds(node, lower, {"prestart": [hook.entry()]})
        if number >= 2:  # the first ones warm the caches
            pairs.append(pair)
    without, with_it = zip(*pairs, strict=True)
    adds = statistics.median(one - other for other, one in pairs)
    return statistics.median(without) * 1000, statistics.median(with_it) * 1000, adds * 1000


def main() -> int:
    """Print a table of the images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="pairs for each image (default: 40)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="gpuhook-bench-") as name:
        node = make_node(name)
        print(f"{'image':<36}{'runc ms':>9}{'with ms':>9}{'adds ms':>9}   ({runs} pairs)")
        for number, (label, libraries) in enumerate(IMAGES):
            lower = image(Path(name) / f"image-{number}", libraries)
            print(f"{label:<36}{'{:>9.1f}{:>9.1f}{:>9.1f}'.format(*compare(node, lower, runs))}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
