"""From names to GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.driver.model import Gpu, Host, Inventory, Node
from gpuhook.driver.select import asks_unknown_uuid, select
from gpuhook.errors import GpuhookError, UnknownDevice
from gpuhook.refusals import DriverFault, NodeMissing
from gpuhook.request.model import DeviceChoice

A, B, C = (
    f"GPU-{digit * 8}-0000-0000-0000-000000000{end}" for digit, end in (("a", "001"), ("a", "002"), ("c", "003"))
)
SOURCE = "NVIDIA_VISIBLE_DEVICES"


def gpu(index: int, uuid: str, **changes: object) -> Gpu:
    """A GPU whose minor is not its index."""
    minor = 9 - index
    plain = Gpu(
        index=index,
        minor=minor,
        uuid=uuid,
        bus_id=f"00000000:{index + 1:02x}:00.0",
        model="Tesla T4",
        proc_folder=f"0000:{index + 1:02x}:00.0",
        node=Node(path=f"/dev/nvidia{minor}", major=195, minor=minor),
    )
    return plain.with_(**changes)


GPUS = (gpu(0, A), gpu(1, B), gpu(2, C))


def inventory(*gpus: Gpu) -> Inventory:
    return Inventory(host=Host(), driver_version="550.54.14", gpus=gpus, libraries=())


def choose(*names: str, gpus: tuple[Gpu, ...] = GPUS) -> list[int]:
    return [gpu.index for gpu in select(inventory(*gpus), DeviceChoice(names=names, sources=(SOURCE,)))[0].gpus]


def refusal(*names: str, gpus: tuple[Gpu, ...] = GPUS) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        choose(*names, gpus=gpus)
    return caught.value


@pytest.mark.parametrize(
    ("names", "indices"),
    [
        ((), []),
        (("all",), [0, 1, 2]),
        (("ALL",), [0, 1, 2]),
        (("2", "all"), [0, 1, 2]),
        (("0",), [0]),
        (("2", "0"), [2, 0]),
        (("0", "0"), [0]),
        (("0", A, "0000:01:00.0"), [0]),
        ((" 0 ",), [0]),
        (("+1",), [1]),
        (("01",), [1]),
        (("0000000000000000000000000000",), [0]),
        ((A,), [0]),
        ((B.upper().replace("GPU", "gpu"),), [1]),
        ((f" {C}\t",), [2]),
        (("GPU-c",), None),
        (("GPU-cccc",), [2]),
        (("gpu-CCCC",), [2]),
        ((C[:-1],), [2]),
        (("0000:02:00.0",), [1]),
        (("00000000:02:00.0",), [1]),
        (("0000:02:00",), [1]),
        (("0:2:0",), [1]),
        (("0:2:0.0",), [1]),
    ],
)
def test_the_documented_forms(names: tuple[str, ...], indices: list[int] | None) -> None:
    """Indices, UUIDs whole or begun, addresses, `all`: in the order of the request, each GPU once."""
    if indices is None:
        assert isinstance(refusal(*names), UnknownDevice)
    else:
        assert choose(*names) == indices


@pytest.mark.parametrize(
    "name",
    [
        "3", "-1", "1.0", "1x", "0x1", "1 2", "", "+", "++1", "\u0661", "99999999999999999999999",
        "GPU-", "GPU-aaaa", "GPU", f"{A}0", f"{A}x", f"x{A}", A[4:], "GPU-dddddddd",
        "0000:99:00.0", "0:2:0.7", "0:2:0.7xyz", "0:2:0:0", "02:00.0", "000000000:02:00.0", "0000:002:00.0", "g:2:0",
        "0::0", "none", "void", "nvidia.com/gpu=0", "../../dev/sda", "0\n", "0,1", "\0", "no-gpu-has-100MiB-to-run",
        "'0'", '"0"',
    ],
)  # fmt: skip
def test_what_means_nothing_here(name: str) -> None:
    """No sloppy numbers, no trailing text, no unknown ids; the message names variable, element and what there is."""
    if name == "0\n":  # blanks around an element do not count, as a line's end does not
        assert choose(name) == [0]
        return
    error = refusal(name)
    assert isinstance(error, UnknownDevice)
    assert error.where == SOURCE
    assert name.strip() in error.text
    assert "\n" not in error.render().split("\n")[0]


def test_the_message_lists_what_there_is() -> None:
    """A valid name can be picked from the line alone."""
    error = refusal("5")
    assert error.render() == (
        f"gpuhook: unknown-device: GPU 5 was requested, and this host has 3: 0 = {A} (Tesla T4), 1 = {B} (Tesla T4), "
        f"2 = {C} (Tesla T4)\n  in {SOURCE}\n"
        "  hint: indices go from 0 to 2; with Docker, `--gpus N` is a number of GPUs"
    )


def test_a_long_list_is_cut() -> None:
    """Sixteen GPUs and a count."""
    error = refusal("x", gpus=tuple(gpu(n, "") for n in range(40)))
    assert ", and 24 more" in error.text


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ('"0"', "quotes", "without quotes"),
        ("'all'", "quotes", "without quotes"),
        ("0 1", "GPU 0 1 was requested", "commas"),
        ("no-gpu-has-9MiB-to-run", "GPU-sharing scheduler", "the driver is fine"),
        ("02:00.0", "GPU 02:00.0", "with its domain"),
        ("foo", "GPU foo", "by index"),
        ("GPU-aaaa", "the beginning of 2 GPUs' UUIDs", "whole UUID"),
    ],
)
def test_what_to_do(name: str, text: str, hint: str) -> None:
    """Each known mistake has its own advice."""
    error = refusal(name)
    assert text in error.text
    assert hint in error.hint


@pytest.mark.parametrize("names", [("bogus", "all"), ("all", "bogus"), ("0", "bogus")])
def test_every_element_is_checked(names: tuple[str, ...]) -> None:
    """A bad element is reported wherever it stands, beside `all` as well."""
    assert "bogus" in refusal(*names).text


@pytest.mark.parametrize("names", [("all",), ("0",), ("bogus",), (A,)])
def test_no_gpus_at_all(names: tuple[str, ...]) -> None:
    """A request on a host without GPUs is refused, and what is there is said: none."""
    error = refusal(*names, gpus=())
    assert isinstance(error, UnknownDevice)
    assert "none" in error.text


def test_nothing_is_chosen_on_a_host_without_gpus() -> None:
    """`none` needs no GPU."""
    assert choose(gpus=()) == []


BROKEN = (gpu(0, A), gpu(1, B, fault="it is broken"), gpu(2, C, node=None, fault="/dev/nvidia7 does not exist"))


def test_all_leaves_broken_gpus_out_with_a_warning() -> None:
    """A broken GPU stops only those who ask for it."""
    chosen, warnings = select(inventory(*BROKEN), DeviceChoice(names=("all",), sources=(SOURCE,)))
    assert chosen.gpus == (BROKEN[0],)
    assert warnings == (
        ("gpu-lost", f"GPU 1 ({B}) cannot be used: it is broken; it is left out of `all`"),
        ("device-node-perms", f"GPU 2 ({C}) cannot be used: /dev/nvidia7 does not exist; it is left out of `all`"),
    )


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("1",), DriverFault),
        ((B,), DriverFault),
        (("2",), NodeMissing),
        (("0", "1"), DriverFault),
        (("all", "1"), DriverFault),
    ],
)
def test_a_broken_gpu_by_name_fails(names: tuple[str, ...], kind: type[GpuhookError]) -> None:
    """Who asks for it is told why, and which others work."""
    error = refusal(*names, gpus=BROKEN)
    assert type(error) is kind
    assert "cannot be used" in error.text
    assert A in error.hint


def test_working_gpus_beside_a_broken_one() -> None:
    """The others are given as if nothing were."""
    assert choose("0", gpus=BROKEN) == [0]


def test_all_of_broken_gpus_fails() -> None:
    """`all` is not nothing."""
    error = refusal("all", gpus=BROKEN[1:])
    assert isinstance(error, DriverFault)
    assert "it is broken" in error.text


UNKNOWN = (gpu(0, A), gpu(1, ""))


@pytest.mark.parametrize(
    ("names", "gpus", "asks"),
    [
        ((B,), UNKNOWN, True),
        ((A, B), UNKNOWN, True),
        ((A,), UNKNOWN, False),
        (("1", "all"), UNKNOWN, False),
        ((B,), (GPUS[0], GPUS[2]), False),
        ((), UNKNOWN, False),
    ],
)
def test_when_nvml_has_to_be_asked(names: tuple[str, ...], gpus: tuple[Gpu, ...], asks: bool) -> None:
    """Only for a UUID that no known GPU has, while some GPU's is not known."""
    assert asks_unknown_uuid(inventory(*gpus), DeviceChoice(names=names, sources=())) is asks


def test_an_unknown_uuid_is_explained() -> None:
    """Where the kernel does not know a UUID yet, that may be why."""
    assert "before its first use" in refusal(B, gpus=UNKNOWN).hint


@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["all", "0", "2", A, "0:1:0", "MIG-x"])), max_size=5))
def test_any_names_give_gpus_or_one_of_our_errors(names: list[str]) -> None:
    """Whatever an image asks for, the answer is a list of this host's GPUs or a refusal of one printable line each."""
    said = ""
    found: list[int] = []
    try:
        found = choose(*names)
    except UnknownDevice as error:
        said = error.render()
    assert all(line.isprintable() for line in said.split("\n"))
    assert len(found) == len(set(found)) <= 3
