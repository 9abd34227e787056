"""The first driver branch that offers a CUDA version, on Linux x86-64: data for advice, never for decisions.

From NVIDIA's release notes of the CUDA toolkit, up to CUDA 13.0.
"""

from __future__ import annotations

FIRST_BRANCH = (
    ((9, 0), 384),
    ((9, 1), 390),
    ((9, 2), 396),
    ((10, 0), 410),
    ((10, 1), 418),
    ((10, 2), 440),
    ((11, 0), 450),
    ((11, 1), 455),
    ((11, 2), 460),
    ((11, 3), 465),
    ((11, 4), 470),
    ((11, 5), 495),
    ((11, 6), 510),
    ((11, 7), 515),
    ((11, 8), 520),
    ((12, 0), 525),
    ((12, 1), 530),
    ((12, 2), 535),
    ((12, 3), 545),
    ((12, 4), 550),
    ((12, 5), 555),
    ((12, 6), 560),
    ((12, 8), 570),
    ((12, 9), 575),
    ((13, 0), 580),
)

# Since CUDA 11 programs of a major version run on the first driver branch of that major version.
FIRST_COMPATIBLE_MAJOR = 11


def first_branch(cuda: tuple[int, int]) -> int:
    """The first driver branch that offers at least this CUDA version; 0 where it is newer than the table."""
    return next((branch for version, branch in FIRST_BRANCH if version >= cuda), 0)


def runs_on_minor(cuda: tuple[int, int], host: tuple[int, int]) -> bool:
    """Whether programs built for this CUDA version mostly run on a driver that offers an older one of its major."""
    return FIRST_COMPATIBLE_MAJOR <= cuda[0] == host[0]
