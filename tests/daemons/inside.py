"""What a container has to have, asked from inside of it."""

from __future__ import annotations

from tests.rig.process import Result

QUESTIONS = (
    "devices",
    "dlopen:libcuda.so.1",
    "dlopen:libnvidia-ml.so.1",
    "rule:195:0",
    "rule:195:1",
    "rule:195:2",
    "list:/usr/bin",
)
MINORS = {0: 2, 1: 0, 2: 1}  # of the fake driver's GPUs by index (tests/runtime/node.py)
UVM = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def nodes(*gpus: int, cuda: bool = True) -> list[str]:
    """The device nodes of these GPUs, by index; cuda: with those that only CUDA needs."""
    own = [f"/dev/nvidia{MINORS[gpu]}" for gpu in gpus]
    return sorted([*own, *(UVM if cuda else ()), "/dev/nvidiactl"]) if gpus else []


def allowed(*gpus: int) -> dict[tuple[int, int], bool]:
    """Which of the GPUs' nodes the container may open."""
    return {(195, minor): gpu in gpus for gpu, minor in MINORS.items()}


def has(result: Result, *gpus: int, cuda: bool = True, ml: bool = True) -> None:
    """The container has these GPUs and no other, with these libraries and no other."""
    assert result.status == 0, result.stderr
    seen = result.seen
    assert nodes(*gpus, cuda=cuda) == sorted(seen.devices)
    assert allowed(*gpus) == seen.rules
    assert cuda == ("cuda" in seen.library("libcuda.so.1"))
    assert ml == ("error" not in seen.library("libnvidia-ml.so.1"))
    assert ml == ("nvidia-smi" in (seen.names("/usr/bin") or []))
