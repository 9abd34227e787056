import contextlib
import os
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import BadState
from gpuhook.oci.state import State, parse_state, read_state

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    with contextlib.suppress(OSError):  # some tests close it
        os.close(write)


def test_a_state_is_read_while_the_pipe_stays_open(pipe: Pipe) -> None:
    """Some runtimes keep the pipe open: the end of the value is enough."""
    os.write(pipe[1], b'{"ociVersion": "1.0.2", "id": "c1", "pid": 7, "bundle": "/b"} ')

    assert State(pid=7, bundle="/b", id="c1") == read_state(pipe[0])


def test_a_state_in_pieces_is_put_together(pipe: Pipe) -> None:
    """A pipe may deliver a state byte by byte, also in the middle of a character."""
    data = '{"id": "ü", "annotations": {"x": "}"}, "pid": 7, "bundle": "/b"}'.encode()

    def write() -> None:
        for number in range(len(data)):
            os.write(pipe[1], data[number : number + 1])
            time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    state = read_state(pipe[0])
    writer.join()

    assert State(pid=7, bundle="/b", id="ü") == state


def test_a_writer_who_stops_is_not_waited_for(pipe: Pipe) -> None:
    """An open pipe with half a state costs the deadline, not forever."""
    os.write(pipe[1], b'{"pid": 7')

    with pytest.raises(BadState, match=r"within 0\.1 s"):
        read_state(pipe[0], deadline=0.1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b'{"pid": 7, "bundle": ', "ends in the middle"),
        (b'{"pid": 7, "pid": 8, "bundle": "/b"}', "twice"),
        (b'{"id": "\xff", "pid": 7, "bundle": "/b"}', "UTF-8"),
        (b"junk", "no JSON value"),
    ],
)
def test_a_closed_pipe_without_a_state_is_refused(pipe: Pipe, data: bytes, reason: str) -> None:
    """What was written and is no state is said with its reason."""
    os.write(pipe[1], data)
    os.close(pipe[1])

    with pytest.raises(BadState, match=reason):
        read_state(pipe[0])


def test_a_state_of_more_than_a_mebibyte_is_refused(pipe: Pipe) -> None:
    """Only so much is read (AC-49)."""

    def write() -> None:
        data = b'{"x": "' + b"a" * (1 << 17)
        try:
            for _ in range(20):
                os.write(pipe[1], data)
        except OSError:
            return

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with pytest.raises(BadState, match="larger than 1 MiB"):
        read_state(pipe[0])
    os.read(pipe[0], 1 << 22)


def test_a_closed_stdin_is_explained() -> None:
    """A hook that is started by hand without stdin says what it waits for."""
    read, write = os.pipe()
    os.close(write)
    fd = os.open("/", os.O_RDONLY)
    try:
        with pytest.raises(BadState, match="cannot read it"):
            read_state(fd)
    finally:
        os.close(fd)
        os.close(read)


@pytest.mark.parametrize("pid", [True, "12", 12.0, 1e3, 4294967297, 2**31, -(2**40), None, [], 10**80])
def test_a_pid_is_a_whole_number_of_32_bits(pid: object) -> None:
    """Nothing is converted into a pid (AC-53)."""
    with pytest.raises(BadState, match="pid is"):
        parse_state({"pid": pid, "bundle": "/b"})


@pytest.mark.parametrize("pid", [0, -1, 1, 2**31 - 1])
def test_any_whole_number_is_read(pid: int) -> None:
    """Whether a pid is of use is decided for GPU containers only."""
    assert pid == parse_state({"pid": pid, "bundle": "/b"}).pid


def test_a_missing_pid_is_zero() -> None:
    """The hook of a container without a GPU needs no pid."""
    assert State(pid=0, bundle="/b") == parse_state({"bundle": "/b"})


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"bundle": ""},
        {"bundle": "b"},
        {"bundle": "/a/../b"},
        {"bundle": "/a\nb"},
        {"bundle": "/a\0"},
        {"bundle": 5},
        {"bundle": "/a", "bundlePath": "/b"},
        {"bundle": "/a", "id": "x\ny"},
        {"bundle": "/a", "id": ["x"]},
        [],
        None,
        "x",
    ],
)
def test_a_state_without_a_clear_bundle_is_refused(state: object) -> None:
    """There is no silent choice of a bundle (AC-55)."""
    with pytest.raises(BadState) as caught:
        parse_state(state)

    assert "\n  hint: " in caught.value.render()


@pytest.mark.parametrize("key", ["Pid", "PID", "Bundle", "bundlepath", "ID"])
def test_a_key_in_other_letters_is_refused(key: str) -> None:
    """A runtime in Go would take it for the real one (AC-52)."""
    with pytest.raises(BadState, match="in other letters"):
        parse_state({"pid": 7, "bundle": "/b", key: "/c"})


@pytest.mark.parametrize(
    "state", [{"bundlePath": "/b"}, {"bundle": "", "bundlePath": "/b"}, {"bundle": "/b", "bundlePath": "/b"}]
)
def test_the_old_name_of_the_bundle_is_read(state: dict[str, object]) -> None:
    """Very old runtimes write bundlePath."""
    assert "/b" == parse_state(state).bundle


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(st.sampled_from(["pid", "bundle", "bundlePath", "id"]), inner),
    )
)
def test_no_value_raises_anything_but_bad_state(value: object) -> None:
    """Whatever the value is, there is a state or a reason."""
    with contextlib.suppress(BadState):
        state = parse_state(value)

        assert state.bundle.startswith("/")
