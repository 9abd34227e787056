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
_MOST_MIG = 64  # devices of a GPU that are asked for, whatever NVML says; there are at most 8
_NOT_SUPPORTED, _NOT_FOUND = 3, 6
_CAPABILITY_VERSION = 0x20080522


class Refused(Exception):
    """The library answered with an error; the text is its own. status: the code, 0 where there is none."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


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


def describe_mig(path: str, bus_ids: list[str]) -> Iterator[tuple[str, int, str, int, int]]:
    """(bus id, index, UUID, GPU instance, compute instance) of each MIG device of these GPUs, in NVML's order.

    A GPU whose MIG mode is off, or that has none, has no rows. Raises OSError, Refused where NVML or a GPU fails.
    """
    nvml = Nvml(path)
    handles = None if nvml.has("nvmlDeviceGetHandleByPciBusId_v2") else nvml.enumerate()
    for bus_id in bus_ids:
        gpu = nvml.at(bus_id) if handles is None else handles.get(bus_id)
        for index, device in nvml.mig_devices(gpu) if gpu else ():
            uuid, gpu_instance, compute_instance = nvml.mig_facts(device)
            yield bus_id, index, uuid, gpu_instance, compute_instance


def list_gpus(path: str) -> Iterator[tuple[str, str, str]]:
    """("", driver version, "") and then (bus id, UUID, model) of each GPU that answers, in NVML's order.

    For a machine whose kernel does not tell of its GPUs. Raises OSError, Refused where NVML does not start.
    """
    nvml = Nvml(path)
    yield "", nvml.driver_version(), ""
    for bus_id, handle in nvml.enumerate().items():
        yield bus_id, nvml.text("nvmlDeviceGetUUID", handle), nvml.text("nvmlDeviceGetName", handle)


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
        uuid = self.text("nvmlDeviceGetUUID", handle)
        major, minor, brand = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
        self._call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        self._call("nvmlDeviceGetBrand", handle, ctypes.byref(brand))
        name = _BRANDS[brand.value] if brand.value < len(_BRANDS) else _BRANDS[0]
        return uuid, f"{major.value}.{minor.value}", name

    def driver_version(self) -> str:
        """The driver's version as NVML has it, "550.54.14"."""
        version = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", version, ctypes.c_uint(len(version)))
        return version.value.decode("ascii", "replace")

    def text(self, function: str, handle: ctypes.c_void_p) -> str:
        """What a function says of a device in words."""
        answer = ctypes.create_string_buffer(128)
        self._call(function, handle, answer, ctypes.c_uint(len(answer)))
        return answer.value.decode("ascii", "replace")

    def mig_devices(self, gpu: ctypes.c_void_p) -> Iterator[tuple[int, ctypes.c_void_p]]:
        """The MIG devices of a GPU with their indices; a place may be empty."""
        current, pending, count = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        try:
            self._call("nvmlDeviceGetMigMode", gpu, ctypes.byref(current), ctypes.byref(pending))
            if not current.value:
                return
            self._call("nvmlDeviceGetMaxMigDeviceCount", gpu, ctypes.byref(count))
        except Refused as refused:
            if refused.status in (_NOT_SUPPORTED, 0):  # 0: this NVML does not know MIG
                return
            raise
        for index in range(min(count.value, _MOST_MIG)):
            device = ctypes.c_void_p()
            try:
                self._call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, ctypes.c_uint(index), ctypes.byref(device))
            except Refused as refused:
                if refused.status == _NOT_FOUND:
                    continue
                raise
            yield index, device

    def mig_facts(self, device: ctypes.c_void_p) -> tuple[str, int, int]:
        """UUID, GPU instance and compute instance of a MIG device."""
        gpu_instance, compute_instance = ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetGpuInstanceId", device, ctypes.byref(gpu_instance))
        self._call("nvmlDeviceGetComputeInstanceId", device, ctypes.byref(compute_instance))
        return self.text("nvmlDeviceGetUUID", device), gpu_instance.value, compute_instance.value

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
            raise Refused(f"NVML: {self._text(status)} ({function})", status)

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
