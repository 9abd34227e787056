"""What all tests rely on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Programs that tests start can be interrupted: in the background a shell starts us with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
