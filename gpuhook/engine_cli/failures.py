"""Our errors in nvidia-container-cli's words: the first line is what people and programs look for (engine.md 1.8, 9).

The lines below it are ours: what it means here, where, and what to do.
"""

from __future__ import annotations

from gpuhook import errors, refusals
from gpuhook.engine_cli.given import Given, Refusal
from gpuhook.errors import GpuhookError, printable

NO_NVML = "load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory"
UPDATE = ", please update your driver to a newer version, or use an earlier cuda container"
PREFIXES: dict[type[GpuhookError], str] = {
    errors.UnknownDevice: "device error",
    refusals.BadRequirement: "requirement error",
    refusals.Unsatisfied: "requirement error",
    refusals.BadImex: "mount error",
    refusals.LdconfigMissing: "ldcache error",
    refusals.DriverNotLoaded: "initialization error",
    refusals.DriverLibsMissing: "detection error",
    refusals.DriverMismatch: "initialization error",
    refusals.DriverRootWrong: "initialization error",
    refusals.DriverFault: "detection error",
    refusals.NodeMissing: "mount error",
    refusals.KernelTooOld: "initialization error",
    refusals.NotCovered: "initialization error",
    refusals.BadContainer: "container error",
    refusals.TargetRefused: "mount error",
    refusals.VolumeInTheWay: "mount error",
    refusals.RootfsReadOnly: "mount error",
    refusals.CgroupFailed: "mount error",
    refusals.ApplyFailed: "mount error",
    refusals.TimedOut: "mount error",
}
PLACES = {"stdin: pid": "--pid", "config.toml: nvidia-container-cli.root": "--root"}
CONTAINER_HINT = "--pid names the container's first process, ROOTFS its root filesystem as the host sees it"


def explain(error: GpuhookError, top: Given, given: Given) -> list[str]:
    """The lines of the message, without the program's name."""
    prefix, detail = _reference_words(error, top, given)
    lines = [printable(f"{prefix}: {detail}")]
    if detail != error.text:
        lines.append(f"  {printable(error.text)}")
    if error.where:
        lines.append(f"  in {printable(PLACES.get(error.where, error.where).replace('(root.path)', '').strip())}")
    hint = CONTAINER_HINT if isinstance(error, refusals.BadContainer) else error.hint
    return [*lines, f"  hint: {printable(hint)}"] if hint else lines


def _reference_words(error: GpuhookError, top: Given, given: Given) -> tuple[str, str]:
    """Prefix and detail as nvidia-container-cli has them for this cause; our own text where it has none."""
    prefix = error.prefix if isinstance(error, Refusal) else PREFIXES.get(type(error), "initialization error")
    if isinstance(error, errors.UnknownDevice):
        return prefix, f"{_unknown_element(top, given)}: unknown device"
    if isinstance(error, (refusals.BadRequirement, refusals.Unsatisfied)):
        return prefix, _requirement(error)
    if isinstance(error, refusals.DriverFault):
        return _driver_fault(error)
    if isinstance(error, refusals.NodeMissing):
        return prefix, _node(error)
    if isinstance(error, refusals.BadContainer):
        return prefix, _container(error, given)
    if isinstance(error, refusals.CgroupFailed):
        return _cgroup(error)
    if isinstance(error, (refusals.RootfsReadOnly, refusals.TargetRefused)):
        return prefix, _target(error, given)
    return _driver(error, prefix, top)


def _unknown_element(top: Given, given: Given) -> str:
    """The first element of --device that means nothing here."""
    from gpuhook.driver.inventory import take_inventory
    from gpuhook.driver.select import select
    from gpuhook.engine_cli.begin import host_of
    from gpuhook.request.model import DeviceChoice

    names = given.elements("device")
    try:
        inventory = take_inventory(host_of(top))
    except GpuhookError:  # it has changed meanwhile
        return ",".join(names)

    def is_unknown(name: str) -> bool:
        try:
            select(inventory, DeviceChoice(names=(name,), sources=()))
        except errors.UnknownDevice:
            return True
        except GpuhookError:
            return False
        return False

    return next(filter(is_unknown, names), ",".join(names))


def _requirement(error: GpuhookError) -> str:
    if isinstance(error, refusals.BadRequirement):
        return "invalid expression"
    first = error.where.removeprefix("--require=").split(" ")[0]
    return f"unsatisfied condition: {first}{UPDATE if first.startswith('cuda>=') else ''}"


def _driver_fault(error: GpuhookError) -> tuple[str, str]:
    """A fault of NVML or of a GPU; NVML's own words where it answered (engine.md 2.1)."""
    if "it did not answer within" in error.text:
        return "initialization error", "driver rpc error: timed out"
    if any(words in error.text for words in ("it crashed with", "it ended the process", "its answer does not end")):
        return "initialization error", "driver rpc error: failed to process request"
    _, found, words = error.text.partition(": NVML: ")
    if found:
        return "initialization error", f"nvml error: {words.partition(' (')[0].lower()}"
    return "detection error", error.text


def _node(error: GpuhookError) -> str:
    path = next((word.rstrip(":;,") for word in error.text.split() if "/dev/" in word), "")
    if not path:
        return error.text
    if "does not exist" in error.text or "No such file" in error.text:
        return f"stat failed: {path}: no such file or directory"
    return f"invalid device node: {path}"


def _container(error: GpuhookError, given: Given) -> str:
    pid, rootfs = given.last("pid"), "".join(given.words)
    if "does not exist" in error.text or "has ended" in error.text:
        return f"open failed: /proc/{pid}/root/: no such file or directory"
    if error.text.startswith("the root filesystem cannot be opened: "):
        return f"open failed: /proc/{pid}/root{rootfs}: {error.text.rpartition(': ')[2].lower()}"
    return error.text


def _cgroup(error: GpuhookError) -> tuple[str, str]:
    if error.text.startswith("no cgroup that decides"):
        return "container error", "cgroup subsystem devices not found"
    return "mount error", f"failed to add device rules: {error.text}"


def _target(error: GpuhookError, given: Given) -> str:
    path = f"{''.join(given.words)}{error.where}"
    if isinstance(error, refusals.RootfsReadOnly):
        return f"file creation failed: {path}: read-only file system"
    return f"file creation failed: {path}: is a directory" if "is a folder" in error.text else error.text


def _driver(error: GpuhookError, prefix: str, top: Given) -> tuple[str, str]:
    """A driver that is absent, half there or not of one version."""
    if isinstance(error, refusals.DriverMismatch):
        return prefix, "nvml error: driver/library version mismatch"
    if isinstance(error, refusals.DriverNotLoaded):
        return prefix, "nvml error: driver not loaded" if _has_nvml(top) else NO_NVML
    if isinstance(error, refusals.DriverLibsMissing) and not error.text.startswith("the driver has no"):
        return "initialization error", NO_NVML
    if isinstance(error, refusals.DriverRootWrong):
        if " cannot be opened: " in error.text:
            return prefix, f"change root failed: {error.text.rpartition(': ')[2].lower()}"
        return prefix, error.text if _has_nvml(top) else NO_NVML
    if isinstance(error, refusals.NotCovered) and "GPUs; no more than" in error.text:
        return "detection error", "too many devices"
    return prefix, error.text


def _has_nvml(top: Given) -> bool:
    """Whether the driver root has any libnvidia-ml.so.1 in a usual place."""
    from gpuhook.driver.machine import this_machine
    from gpuhook.driver.tables import library_folders
    from gpuhook.engine_cli.begin import host_of
    from gpuhook.kernel.beneath import Root

    with Root(host_of(top).driver_root) as root:
        for folder in library_folders(this_machine().triplets, "0"):
            try:
                root.stat(f"{folder}/libnvidia-ml.so.1")
            except OSError:
                continue
            return True
    return False
