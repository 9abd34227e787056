"""The few calls into the driver's own libraries, for the child of driver/query.py only: they may hang or crash.

Functions, structures and codes are those of NVIDIA's public headers nvml.h and cuda.h.
"""

from __future__ import annotations

import ctypes
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_BRANDS = (
    "Unknown", "Quadro", "Tesla", "NVS", "GRID", "GeForce", "TITAN", "VApps", "VPC", "VCS", "VWS", "CloudGaming",
    "QuadroRTX", "NvidiaRTX", "Nvidia", "GeForceRTX", "TitanRTX",
)  # fmt: skip
_NO_GPUS, _NO_ATTACH = 1, 2  # nvmlInitWithFlags: zero GPUs are no error; do not touch GPUs before they are asked for
_MOST_GPUS = 64
_CAPABILITY_VERSION = 0x20080522


class Refused(Exception):
    """The library answered with an error; the text is its own."""


def cuda_driver_version(path: str) -> int:
    """The number that cuDriverGetVersion gives (12040 for 12.4); it opens no device. Raises OSError, Refused."""
    answer = ctypes.c_int(-1)
    status = ctypes.CDLL(path).cuDriverGetVersion(ctypes.byref(answer))
    if status:
        raise Refused(f"cuDriverGetVersion returned {status}")
    return answer.value


def describe_gpus(path: str, bus_ids: list[str]) -> Iterator[tuple[str, str, str, str, str]]:
    """(bus id, UUID, compute capability, brand, "") of each GPU asked for; (bus id, "", "", "", why) where it fails.

    bus_ids: with eight digits of domain, lower case. Raises OSError, Refused where NVML does not start at all.
    """
    nvml = Nvml(path)
    handles = None if nvml.has("nvmlDeviceGetHandleByPciBusId_v2") else nvml.enumerate()
    for bus_id in bus_ids:
        try:
            if handles is not None and bus_id not in handles:
                raise Refused("NVML does not list it")
            yield bus_id, *nvml.facts(nvml.at(bus_id) if handles is None else handles[bus_id]), ""
        except Refused as refused:  # noqa: PERF203  # one broken GPU is not another one's problem
            yield bus_id, "", "", "", str(refused)


class Nvml:
    """NVML of one library file, started; it is never shut down, since the child ends."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        if self.has("nvmlInitWithFlags"):
            self._call("nvmlInitWithFlags", ctypes.c_uint(_NO_GPUS | _NO_ATTACH))
        else:
            self._call("nvmlInit_v2")

    def has(self, function: str) -> bool:
        """Whether this library has a function."""
        return hasattr(self._library, function)

    def at(self, bus_id: str) -> ctypes.c_void_p:
        """The handle of the GPU at this PCI address; only this GPU is initialised."""
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.encode(), ctypes.byref(handle))
        return handle

    def enumerate(self) -> dict[str, ctypes.c_void_p]:
        """The handle of each GPU that answers, by bus id; for libraries that cannot look one up."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        handles: dict[str, ctypes.c_void_p] = {}
        for index in range(min(count.value, _MOST_GPUS)):
            handle = ctypes.c_void_p()
            try:
                self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
                handles[self._bus_id(handle)] = handle
            except Refused:  # a lost GPU: whoever asked for it is told
                continue
        return handles

    def facts(self, handle: ctypes.c_void_p) -> tuple[str, str, str]:
        """UUID, compute capability ("9.0") and brand of a GPU."""
        uuid = ctypes.create_string_buffer(96)
        major, minor, brand = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
        self._call("nvmlDeviceGetUUID", handle, uuid, ctypes.c_uint(len(uuid)))
        self._call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        self._call("nvmlDeviceGetBrand", handle, ctypes.byref(brand))
        name = _BRANDS[brand.value] if brand.value < len(_BRANDS) else _BRANDS[0]
        return uuid.value.decode("ascii", "replace"), f"{major.value}.{minor.value}", name

    def _bus_id(self, handle: ctypes.c_void_p) -> str:
        """The PCI address, from struct nvmlPciInfo_v2: 16 bytes of text, then domain, bus and device as uint32."""
        info = (ctypes.c_uint32 * 32)()
        self._call("nvmlDeviceGetPciInfo_v2", handle, info)
        return f"{info[4]:08x}:{info[5]:02x}:{info[6]:02x}.0"

    def _call(self, function: str, *arguments: object) -> None:
        try:
            status = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise Refused(f"NVML has no function {function}") from None
        if status:
            raise Refused(f"NVML: {self._text(status)} ({function})")

    def _text(self, status: int) -> str:
        try:
            describe = self._library.nvmlErrorString
        except AttributeError:
            return f"error {status}"
        describe.restype = ctypes.c_char_p
        text = describe(ctypes.c_int(status))
        return text.decode("ascii", "replace") if text else f"error {status}"


def load_host_runtime() -> None:
    """Load what NVML is linked with from our own C library, before a driver root takes its place.

    A driver container's C library may be older than ours, and halves of two do not fit together.
    """
    for name in ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"):
        try:
            ctypes.CDLL(name)
        except OSError:  # noqa: PERF203  # another C library, or not needed on this machine
            continue


def drop_capabilities() -> None:
    """Give up every capability of this process, for good (capset(2)). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) < 0:
        raise OSError(ctypes.get_errno(), f"capset: {posix.strerror(ctypes.get_errno())}")
