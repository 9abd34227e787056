"""Questions that only the driver's own libraries can answer; they are loaded in a confined child, never here.

A library may hang, crash or answer nonsense (a lost GPU, a half-done update): then the question is refused with
DriverFault. NVML is asked lazily: a container start needs it only for requirements on `arch` and `brand`, for a UUID
that the kernel does not know yet, for MIG devices by UUID or index, and on WSL2 (decisions.md 20).
"""

from __future__ import annotations

import posix

from gpuhook.driver.child import Confinement, NoAnswer, ask
from gpuhook.driver.gpus import is_uuid
from gpuhook.driver.mignames import needs_nvml
from gpuhook.driver.model import Gpu, Inventory, Library, MigDevice
from gpuhook.driver.nvml import cuda_driver_version, describe_gpus, describe_mig, list_gpus
from gpuhook.driver.select import asks_unknown_uuid
from gpuhook.driver.version import is_version, open_root
from gpuhook.refusals import DriverFault, DriverLibsMissing
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.kernel.beneath import Root
    from gpuhook.request.model import DeviceChoice

DEADLINE = 10.0  # seconds, as nvidia-container-cli has it
_OLDEST_CUDA, _NEWEST_CUDA = 5000, 99_999
_CONTROL = "/dev/nvidiactl"


class GpuFacts(Value):
    """What only NVML knows of a GPU: UUID, compute capability ("9.0"), brand ("Tesla"); fault: why it does not say."""

    uuid: str = ""
    arch: str = ""
    brand: str = ""
    fault: str = ""


def cuda_version(inventory: Inventory, seconds: float = DEADLINE) -> str:
    """The CUDA version that the driver supports, such as "12.4", as its own libcuda says without opening a device.

    Raises DriverLibsMissing where there is no 64-bit libcuda; DriverFault where it fails, crashes, does not answer
    within `seconds`, or answers with what is no version.
    """
    library = _library(inventory, "libcuda.so")
    answer = _ask(inventory, library, lambda path: str(cuda_driver_version(path)), seconds)
    if not answer.isascii() or not answer.isdecimal() or not _OLDEST_CUDA <= int(answer[:9]) <= _NEWEST_CUDA:
        raise _fault(library, f"it says that its CUDA version is {answer}")
    number = int(answer)
    return f"{number // 1000}.{number % 100 // 10}"  # as nvidia-container-cli computes it (engine.md 2.2)


def gpu_facts(inventory: Inventory, gpus: Iterable[Gpu], seconds: float = DEADLINE) -> dict[str, GpuFacts]:
    """What NVML says of these GPUs, by bus id; a GPU that does not answer has a `fault`. It may wake and open them.

    Raises DriverLibsMissing, and DriverFault where NVML itself does not start, crashes or does not answer in time.
    """
    bus_ids = [gpu.bus_id for gpu in gpus]
    library = _library(inventory, "libnvidia-ml.so")

    def question(path: str) -> str:
        return "\n".join("\t".join(map(_plain, row)) for row in describe_gpus(path, bus_ids))

    answer = _ask(inventory, library, question, seconds, devices=True)
    rows = [line.split("\t") for line in answer.split("\n") if line]
    facts = {row[0]: GpuFacts(uuid=row[1], arch=row[2], brand=row[3], fault=row[4]) for row in rows if len(row) == 5}
    if sorted(facts) != sorted(set(bus_ids)):
        raise _fault(library, "it does not speak of the GPUs that it was asked about")
    return facts


def arch_and_brand(
    inventory: Inventory, uuids: Iterable[str], seconds: float = DEADLINE
) -> dict[str, tuple[str, str]]:
    """Compute capability and brand of the GPUs with these UUIDs, by UUID: {"GPU-…": ("9.0", "Tesla")}.

    A UUID that the inventory does not have is left out. Raises as `gpu_facts` does, and DriverFault for a GPU that
    does not answer.
    """
    wanted = set(uuids)
    asked = {gpu.bus_id: gpu for gpu in inventory.gpus if gpu.uuid in wanted}
    answers = gpu_facts(inventory, asked.values(), seconds) if asked else {}
    for bus_id, facts in answers.items():
        if facts.fault:
            raise DriverFault(
                f"GPU {asked[bus_id].uuid} does not say its architecture: {facts.fault}",
                where=f"NVML {inventory.driver_version}",
                hint="ask for other GPUs by UUID, or leave out the requirement on arch or brand",
            )
    return {asked[bus_id].uuid: (facts.arch, facts.brand) for bus_id, facts in answers.items()}


def with_uuids(inventory: Inventory, seconds: float = DEADLINE) -> Inventory:
    """The inventory with the UUIDs that the kernel does not know yet, as far as NVML knows them. Raises as above."""
    unknown = [gpu for gpu in inventory.gpus if not gpu.uuid and not gpu.fault]
    if not unknown:
        return inventory
    facts = gpu_facts(inventory, unknown, seconds)
    known = {bus_id: fact.uuid for bus_id, fact in facts.items() if is_uuid(fact.uuid)}
    gpus = tuple(gpu.with_(uuid=gpu.uuid or known.get(gpu.bus_id, "")) for gpu in inventory.gpus)
    return inventory.with_(gpus=gpus)


def with_mig_uuids(inventory: Inventory, seconds: float = DEADLINE) -> Inventory:
    """The inventory with the UUIDs of MIG devices, and with NVML's indices. Raises as `gpu_facts`, and DriverFault.

    A device that NVML does not list keeps its place after the others, without a UUID; one that the kernel does not
    show cannot be given and is left out.
    """
    cut = [gpu.bus_id for gpu in inventory.gpus if gpu.mig and not gpu.fault]
    if not cut:
        return inventory
    library = _library(inventory, "libnvidia-ml.so")

    def question(path: str) -> str:
        return "\n".join("\t".join(_plain(str(field)) for field in row) for row in describe_mig(path, cut))

    rows = [line.split("\t") for line in _ask(inventory, library, question, seconds, devices=True).split("\n") if line]
    if not all(len(row) == 5 and all(map(_is_number, (row[1], *row[3:]))) for row in rows):
        raise _fault(library, "it does not speak of MIG devices as it should")
    known = {(row[0], int(row[3]), int(row[4])): (int(row[1]), row[2]) for row in rows}
    gpus = (gpu.with_(mig=_named(gpu, known)) if gpu.bus_id in cut else gpu for gpu in inventory.gpus)
    return inventory.with_(gpus=tuple(gpus))


def _named(gpu: Gpu, known: dict[tuple[str, int, int], tuple[int, str]]) -> tuple[MigDevice, ...]:
    """The MIG devices of a GPU with what NVML knows of them, in NVML's order."""
    last = max((index for (bus_id, _, _), (index, _) in known.items() if bus_id == gpu.bus_id), default=-1)
    named = []
    for device in gpu.mig:
        index, uuid = known.get((gpu.bus_id, device.gpu_instance, device.compute_instance), (-1, ""))
        if index < 0:
            last += 1
            index = last
        named.append(device.with_(index=index, uuid=uuid))
    return tuple(sorted(named, key=lambda device: device.index))


def with_gpus(inventory: Inventory, seconds: float = DEADLINE) -> Inventory:
    """The inventory of WSL2 with the driver's version and the GPUs, which only NVML knows there.

    Raises as `gpu_facts`, and DriverFault where it lists none.
    """
    library = _library(inventory, "libnvidia-ml.so")

    def question(path: str) -> str:
        return "\n".join("\t".join(map(_plain, row)) for row in list_gpus(path))

    rows = [line.split("\t") for line in _ask(inventory, library, question, seconds, devices=True).split("\n") if line]
    if not rows or not all(len(row) == 3 for row in rows) or not is_version(rows[0][1]):
        raise _fault(library, "it does not speak of GPUs as it should")
    gpus = [
        Gpu(index=index, minor=0, uuid=uuid, bus_id=bus_id, model=model[:128], proc_folder="", node=None)
        for index, (bus_id, uuid, model) in enumerate(rows[1:])
    ]
    known = tuple(gpu if is_uuid(gpu.uuid) else gpu.with_(uuid="") for gpu in gpus)
    return inventory.with_(driver_version=rows[0][1], gpus=known)


def complete(inventory: Inventory, choice: DeviceChoice, seconds: float = DEADLINE) -> Inventory:
    """The inventory with what only NVML knows, as far as this choice needs it (select.asks_nvml). Raises as above."""
    if inventory.wsl and not inventory.gpus:
        inventory = with_gpus(inventory, seconds)
    if asks_unknown_uuid(inventory, choice):
        inventory = with_uuids(inventory, seconds)
    if any(needs_nvml(inventory, name.strip()) for name in choice.names):
        inventory = with_mig_uuids(inventory, seconds)
    return inventory


def _library(inventory: Inventory, stem: str) -> Library:
    for library in inventory.libraries:
        if library.stem == stem and library.bits == 64:
            return library
    raise DriverLibsMissing(
        f"the driver has no 64-bit {stem}.{inventory.driver_version}",
        where=f"the driver root {inventory.host.driver_root}",
        hint="install the driver's compute libraries, or leave out requirements on cuda, arch and brand",
    )


def _ask(
    inventory: Inventory, library: Library, question: Callable[[str], str], seconds: float, *, devices: bool = False
) -> str:
    """What a library answers. devices: it opens device nodes, so it has to live in the driver root."""
    host = inventory.host
    with open_root(host) as root:
        file = _open(root, library)
        try:
            chroot = devices and host.driver_root != "/" and posix.geteuid() == 0
            confinement = Confinement(
                file=-1 if chroot else file,
                root=root.fd if chroot else -1,
                group=_device_group(root) if devices else -1,
                user=host.user,
            )
            # By descriptor it is exactly the file that was looked at; in the driver root, links cannot lead out of it.
            path = library.path if chroot else f"/proc/self/fd/{file}"
            return ask(lambda: question(path), confinement, seconds)
        except (NoAnswer, OSError) as error:
            raise _fault(library, str(error)) from None
        finally:
            posix.close(file)


def _open(root: Root, library: Library) -> int:
    try:
        return root.open_regular(library.path)
    except OSError as error:
        raise _fault(library, f"it cannot be opened: {error.strerror}") from error


def _device_group(root: Root) -> int:
    """The group that the driver's nodes are kept to (NVreg_DeviceFileMode=0660), or -1."""
    try:
        status = root.stat(_CONTROL)
    except OSError:
        return -1
    return status.st_gid if status.st_mode & 0o066 == 0o060 else -1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def _plain(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")


def _fault(library: Library, what: str) -> DriverFault:
    return DriverFault(
        f"the driver's {library.soname} cannot be asked: {what}",
        where=library.path,
        hint="see `dmesg` for NVRM lines; a driver that was just updated needs a reboot; details: gpuhook doctor",
    )
