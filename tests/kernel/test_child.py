"""Work in a forked child: its answer, its errors, and the limits on both."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from gpuhook.errors import UnknownDevice
from gpuhook.kernel.child import give_up_after, run_in_child, take_the_time
from gpuhook.refusals import TimedOut


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


def test_a_child_that_closes_its_messages_and_hangs_is_ended() -> None:
    """Its answer is waited for no longer than others' are."""

    def work() -> bytes:
        messages = os.readlink("/proc/self/fd/2")
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == messages:
                    os.close(int(name))
        signal.pause()
        return b""

    with pytest.raises(TimedOut, match=r"the work did not end within 0\.3 s"):
        run_in_child(work, 0.3, "the work")


def test_a_child_that_hangs_gives_up_by_itself() -> None:
    """Before its deadline, and with the time to clean up; even where the runtime has blocked the alarm."""

    def work() -> bytes:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        give_up_after(0.1, "the work")
        try:
            signal.pause()
        except TimedOut as error:
            take_the_time()
            error.text += ", and has cleaned up"
            raise
        return b""

    with pytest.raises(TimedOut, match=r"the work did not end within 0\.1 s, and has cleaned up"):
        run_in_child(work, 20, "the work")


def test_an_alarm_is_called_off() -> None:
    """Cleaning up is not interrupted."""

    def work() -> bytes:
        give_up_after(0.1, "the work")
        take_the_time()
        time.sleep(0.3)
        return b"done"

    assert run_in_child(work, 20, "the work") == b"done"


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False), (1 << 20, False)])
def test_an_answer_has_a_limit(size: int, fits: bool) -> None:
    """Of the caller's choice; an answer that is longer is none."""
    if fits:
        assert len(run_in_child(lambda: bytes(size), 5, "the work", limit=1000)) == size
        return
    with pytest.raises(Exception, match="without an answer"):
        run_in_child(lambda: bytes(size), 5, "the work", limit=1000)
