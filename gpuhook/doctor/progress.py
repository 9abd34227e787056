"""What is being looked at, on a terminal, once it takes longer than a second."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

SLOW = 1.0  # seconds
OFTEN = 0.2


class Progress:
    """A line on stderr while a block runs. now: what is being looked at."""

    def __init__(self, *, shown: bool | None = None, slow: float = SLOW) -> None:
        self.now = ""
        self._slow = slow
        self._done = threading.Event()
        shown = sys.stderr.isatty() if shown is None else shown
        self._thread = threading.Thread(target=self._show, daemon=True) if shown else None

    def _show(self) -> None:
        if self._done.wait(self._slow):
            return
        while not self._done.wait(OFTEN):
            sys.stderr.write(f"\r\x1b[Kchecking {self.now} ...")
            sys.stderr.flush()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    def __enter__(self) -> Progress:  # noqa: PYI034  # Self is not in Python 3.10
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread:
            self._thread.join()
