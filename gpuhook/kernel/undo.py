"""How a change of device rules is taken back, should a later step of the container's start fail."""

from __future__ import annotations

import posix

from gpuhook.note import warn
from gpuhook.refusals import CgroupFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Undo:
    """The way back from a change of device rules: called, it takes the new ones away; `close` keeps them for good."""

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., object], tuple[int | str, ...]]] = []
        self._fds: list[int] = []

    def keep(self, fd: int) -> int:
        """Hold a descriptor open until the end."""
        self._fds.append(fd)
        return fd

    def add(self, step: Callable[..., object], *arguments: int | str) -> None:
        """One more thing was done; `step` with these arguments reverts it."""
        self._steps.append((step, arguments))

    def __call__(self) -> None:
        """Revert everything that was done, last step first; what cannot be reverted is said on stderr."""
        while self._steps:
            _revert(*self._steps.pop())
        self.close()

    def close(self) -> None:
        """Let go of everything that is held open; there is no way back then."""
        self._steps.clear()
        while self._fds:
            posix.close(self._fds.pop())


def _revert(step: Callable[..., object], arguments: tuple[int | str, ...]) -> None:
    try:
        step(*arguments)
    except (OSError, CgroupFailed) as error:
        warn(CgroupFailed.reference, f"a device rule could not be taken back: {error}")
