"""Work in a forked child: its answer, its errors, and the limits on both."""

from __future__ import annotations

import os
import signal

import pytest

from gpuhook.errors import UnknownDevice
from gpuhook.kernel.child import run_in_child


def test_the_answer_comes_back() -> None:
    """Whatever bytes the work returns, those that mark an answer's end included."""
    assert run_in_child(lambda: b"a\x06b\x15", 5, "the work") == b"a\x06b\x15"


def test_an_error_of_ours_is_raised_again() -> None:
    """Of the same class, with all its parts."""

    def work() -> bytes:
        raise UnknownDevice("no \0 such", where="here", hint="look")

    with pytest.raises(UnknownDevice) as caught:
        run_in_child(work, 5, "the work")
    assert (caught.value.text, caught.value.where, caught.value.hint) == ("no \\0 such", "here", "look")


def test_a_child_that_is_killed_is_told() -> None:
    """It is never taken for an answer."""

    def work() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(Exception, match="the work ended without an answer"):
        run_in_child(work, 5, "the work")


def test_a_child_that_hangs_is_ended() -> None:
    """At its deadline, and it is reaped."""

    def work() -> bytes:
        signal.pause()
        return b""

    with pytest.raises(Exception, match=r"the work did not end within 0\.1 s"):
        run_in_child(work, 0.1, "the work")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False), (1 << 20, False)])
def test_an_answer_has_a_limit(size: int, fits: bool) -> None:
    """Of the caller's choice; an answer that is longer is none."""
    if fits:
        assert len(run_in_child(lambda: bytes(size), 5, "the work", limit=1000)) == size
        return
    with pytest.raises(Exception, match="without an answer"):
        run_in_child(lambda: bytes(size), 5, "the work", limit=1000)
