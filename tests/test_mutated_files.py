"""Every parser of foreign bytes is fed real files that were hurt: a value or a reason comes out, soon, in little room.

The files are this machine's own, and those that programs of others have written (fixtures/bundles, fixtures/vectors).
"""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuhook.driver.model import Gpu, Host, Inventory, MigDevice
from gpuhook.driver.select import select
from gpuhook.errors import BadBundle, BadState, ConfigBroken, GpuhookError
from gpuhook.jsontext import NotJson, document
from gpuhook.kernel.cgroup import group_paths
from gpuhook.kernel.mounts import parse_mountinfo
from gpuhook.loader.cache import BadCache, folders, lookup, parse
from gpuhook.loader.elf import BadElf, read_elf
from gpuhook.loader.merge import merge
from gpuhook.oci.bundle import parse_bundle
from gpuhook.oci.state import read_state
from gpuhook.refusals import BadRequirement
from gpuhook.request.conditions import Facts, evaluate
from gpuhook.request.devices import VARIABLE, choose_devices
from gpuhook.request.model import Requirement
from gpuhook.settings.decide import decide
from gpuhook.settings.values import Settings
from tests.request.make import bundle
from tests.settings.test_reader import PACKAGED

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
MOST = 1 << 18  # bytes of a hurt file
SECONDS, ROOM = (
    2.0,
    64 << 20,
)  # of processor time, which a busy machine does not lengthen, and bytes of Python's memory

# --- real files ---


@cache
def bundles() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(FIXTURES.glob("bundles/*/config.json")))


@cache
def environment(*names: str) -> tuple[bytes, ...]:
    """The values that these variables have in the bundles; a name may be a beginning."""
    entries = [entry for data in bundles() for entry in json.loads(data)["process"].get("env", [])]
    pairs = [entry.partition("=") for entry in entries]
    return tuple(sorted({value.encode() for name, _, value in pairs if value and name.startswith(names)}))


@cache
def vectors(key: str) -> tuple[bytes, ...]:
    """What stands under a key of the recorded calls of NVIDIA's hook."""
    with (FIXTURES / "vectors/hook.jsonl").open(encoding="utf-8") as lines:
        values = [json.loads(line).get(key) for line in lines]
    texts = {value if isinstance(value, str) else json.dumps(value) for value in values if value}
    return tuple(sorted(text.encode("utf-8", "surrogatepass") for text in texts))


@cache
def states() -> tuple[bytes, ...]:
    return tuple(data.replace(b"{bundle}", b"/b") for data in vectors("state"))


@cache
def files(*paths: str) -> tuple[bytes, ...]:
    """Files of this machine, as far as they are there."""
    return tuple(Path(path).read_bytes() for path in paths if os.path.exists(path))


@cache
def elves() -> tuple[bytes, ...]:
    """The C library, the loader, the interpreter and the shell of this machine; what is read of them is in front."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        mapped = {line.split()[-1] for line in lines if ".so" in line and "/lib" in line}
    return tuple(data[: MOST // 2] for data in files("/proc/self/exe", "/bin/sh", *sorted(mapped)[:20]))


# --- how they are hurt ---

Edit = tuple[str, int, int, bytes]
PIECES = st.binary(max_size=12) | st.sampled_from(
    [
        *(b"\0", b"\xff\xff\xff\xff", b"\xff" * 8, b"\0" * 8, b"\x80", b"\x7f\xff\xff\xff", b"/../", b"\n", b" "),
        *(
            b'"',
            b"'",
            b"{",
            b"[",
            b"]",
            b"}",
            b",",
            b":",
            b"=",
            b"\\",
            b"\\u0000",
            b"\xed\xa0\x80",
            b"#",
            b'"""',
            b"[[",
        ),
        *(b"9" * 40, b"-1", b"1e999", b"NaN", b"all", b"GPU-", b"MIG-", b">="),
    ]
)
EDITS: st.SearchStrategy[list[Edit]] = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "set", "insert", "cut", "end", "repeat", "flood"]),
        st.integers(0, MOST), st.integers(1, 4096), PIECES,
    ),
    min_size=1, max_size=8,
)  # fmt: skip


def hurt(data: bytes, edits: Iterable[Edit]) -> bytes:
    """The file after these edits, cut to MOST bytes."""
    out = bytearray(data)
    for kind, place, length, piece in edits:
        at = place % (len(out) + 1)
        if kind == "set":
            out[at : at + len(piece)] = piece
        elif kind == "insert":
            out[at:at] = piece
        elif kind == "cut":
            del out[at : at + length]
        elif kind == "end":
            del out[at:]
        elif kind == "repeat":
            out[at:at] = bytes(out[at : at + length]) * (length % 64)
        else:
            out[at:at] = piece * (MOST // (len(piece) + 1))
        del out[MOST:]
    return bytes(out)


# --- parsers ---


def open_file(data: bytes) -> int:
    """A file of these bytes without a name."""
    fd = os.memfd_create("hurt")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def on_file(work: Callable[[int], object]) -> Callable[[bytes], object]:
    """Work on an open file, as work on its bytes."""

    def done(data: bytes) -> object:
        fd = open_file(data)
        try:
            return work(fd)
        finally:
            os.close(fd)

    return done


def cache_file(data: bytes) -> None:
    """A cache that is read is also merged and asked."""
    found = parse(data)
    assert all(path.startswith("/") and "/../" not in path for _, path, *_ in found.entries)
    folders(found, 64)
    if not found.odd:
        merged = parse(merge(found, [("libcuda.so.1", "/usr/lib/libcuda.so.1.1", 64)]))
        assert lookup(merged, "libcuda.so.1", 64) == "/usr/lib/libcuda.so.1.1"


def requirement(data: bytes) -> None:
    facts = Facts(cuda="12.2", driver="535.261.03", gpus=("GPU-0",), ask=lambda _: ("9.0", "Tesla"))
    verdict = evaluate(Requirement(source="X", expression=data.decode("utf-8", "replace")), facts)
    assert verdict.holds is not bool(verdict.failures)


def device_list(data: bytes) -> None:
    """What a variable asks for is looked up among the GPUs of a host."""
    choice, _ = choose_devices(bundle(**{VARIABLE: data.decode("utf-8", "replace")}), Settings())
    if choice is not None:
        chosen, _ = select(HOST, choice)
        assert len(chosen.gpus) <= len(HOST.gpus)


def gpu(index: int) -> Gpu:
    mig = (MigDevice(index=0, uuid=f"MIG-0000000{index}", gpu_instance=1, compute_instance=0),)
    return Gpu(
        index=index, minor=index, uuid=f"GPU-0000000{index}-1111-2222-3333-444444444444", mig=mig if index else (),
        bus_id=f"00000000:0{index}:00.0", model="Tesla T4", proc_folder=f"0000:0{index}:00.0", node=None,
    )  # fmt: skip


HOST = Inventory(host=Host(), driver_version="535.261.03", gpus=(gpu(0), gpu(1)), libraries=())


@dataclass(frozen=True)
class Parser:
    """real: files as they are found; read: what we make of one; refusals: what may be raised."""

    real: Callable[[], tuple[bytes, ...]]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = ()


PARSERS = {
    "the loader's cache": Parser(lambda: files("/etc/ld.so.cache"), cache_file, (BadCache,)),
    "ELF files": Parser(elves, on_file(read_elf), (BadElf,)),
    "JSON": Parser(lambda: (*bundles(), *vectors("config_json")), document, (NotJson,)),
    "config.json": Parser(bundles, lambda data: parse_bundle("/b", document(data)), (NotJson, BadBundle)),
    "the state": Parser(states, on_file(lambda fd: read_state(fd, 1)), (BadState,)),
    "config.toml": Parser(
        lambda: (PACKAGED.encode(), *vectors("config_toml")), lambda data: decide(data, "/c.toml"), (ConfigBroken,)
    ),
    "requirements": Parser(lambda: environment("NVIDIA_REQUIRE_"), requirement, (BadRequirement,)),
    "device lists": Parser(lambda: environment(VARIABLE), device_list, (GpuhookError,)),
    "mount tables": Parser(lambda: files("/proc/self/mountinfo"), parse_mountinfo),
    "cgroup paths": Parser(lambda: files("/proc/self/cgroup"), group_paths),
}


@cache
def good_files(name: str) -> int:
    """How many of the real files are read. What a parser needs for its first time is in place afterwards."""
    parser, good = PARSERS[name], 0
    for data in parser.real():
        with suppress(*parser.refusals):
            parser.read(data)
            good += 1
    return good


@pytest.mark.parametrize("name", PARSERS)
def test_real_files_are_read(name: str) -> None:
    """There are some, and one at least is in order: what is hurt below is not rubbish from the start."""
    assert good_files(name) > 0


def peak_of(parser: Parser, data: bytes) -> int:
    """The most memory at a time that reading takes; looking at it makes it several times slower."""
    tracemalloc.start()
    try:
        with suppress(*parser.refusals):
            parser.read(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", PARSERS)
@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(which=st.integers(0, 1 << 16), edits=EDITS)
def test_hurt_files_are_read_or_refused(name: str, which: int, edits: list[Edit]) -> None:
    """Nothing but the parser's own refusal is raised, within two seconds and 64 MiB."""
    parser, real = PARSERS[name], PARSERS[name].real()
    good_files(name)
    data = hurt(real[which % len(real)], edits)
    begun = time.process_time()
    with suppress(*parser.refusals):
        parser.read(data)
    seconds = time.process_time() - begun
    assert seconds < SECONDS
    assert peak_of(parser, data) < ROOM
