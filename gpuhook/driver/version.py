"""The version of the driver's kernel module that runs, from its own line in procfs."""

from __future__ import annotations

from posix import strerror

from gpuhook.driver.model import Host
from gpuhook.errors import GpuhookError
from gpuhook.kernel.beneath import Root
from gpuhook.kernel.files import read_file
from gpuhook.refusals import DriverFault, DriverNotLoaded, DriverRootWrong, NoAdapter, NotCovered

FOLDER = "/proc/driver/nvidia"
VERSION_FILE = f"{FOLDER}/version"
WSL_NODE, TEGRA_SIGN = "/dev/dxg", "/etc/nv_tegra_release"
_LIMIT = 16384


def open_root(host: Host) -> Root:
    """The driver root, held open. Raises DriverRootWrong where it is no folder."""
    try:
        return Root(host.driver_root)
    except OSError as error:
        raise DriverRootWrong(
            f"the driver root {host.driver_root} cannot be opened: {strerror(error.errno or 0)}",
            where="config.toml: nvidia-container-cli.root",
            hint="comment the line out where the driver is installed on the host itself; "
            "a driver container mounts this folder when it runs",
        ) from error


def module_version(root: Root, host: Host) -> str:
    """The running module's version, such as "535.261.03"; the proprietary and the open module alike.

    Raises DriverNotLoaded, DriverRootWrong, NotCovered (Tegra without the module), NoAdapter (WSL without a GPU),
    DriverFault (no version).
    """
    try:
        data, _status = root.read(VERSION_FILE, _LIMIT)
    except FileNotFoundError as error:
        raise _why_absent(root, host) from error
    except OSError as error:
        raise DriverFault(f"{VERSION_FILE} cannot be read: {error.strerror}", where=host.driver_root) from error
    version = parse_version(data.decode("utf-8", "replace"))
    if not version:
        raise DriverFault(
            "the driver's module does not say its version", where=VERSION_FILE, hint="expected a line `NVRM version:`"
        )
    return version


def parse_version(text: str) -> str:
    """The version in the line "NVRM version: NVIDIA UNIX … Kernel Module [for MACHINE]  VERSION  …", or ""."""
    for line in text.split("\n"):
        if line.startswith("NVRM version:"):
            _label, _name, rest = line.partition(" Kernel Module")
            return next((word for word in rest.split()[:4] if is_version(word)), "")
    return ""


def is_version(word: str) -> bool:
    """Whether this is a driver version: two to four decimal numbers with dots between them."""
    parts = word.split(".")
    return 2 <= len(parts) <= 4 and all(p.isascii() and p.isdecimal() and len(p) <= 6 for p in parts)


def _why_absent(root: Root, host: Host) -> GpuhookError:
    """The error for a module that does not show itself."""
    own_root = host.driver_root.strip("/") != ""
    if own_root and _is_empty(root):
        return DriverRootWrong(
            f"the driver root {host.driver_root} is empty",
            where="config.toml: nvidia-container-cli.root",
            hint="start the driver container, or comment the line out where the driver is on the host itself",
        )
    if own_root and _loaded_here(host):
        return DriverRootWrong(
            f"the driver root {host.driver_root} has no {VERSION_FILE}, although the kernel module is loaded",
            where="config.toml: nvidia-container-cli.root",
            hint=f"a driver root needs its own /proc and /dev: mount them below {host.driver_root}",
        )
    if _exists(root, TEGRA_SIGN):
        return NotCovered(
            "this is a Tegra without the desktop driver, which the embedded engine does not serve",
            where=TEGRA_SIGN,
            hint="install nvidia-container-cli; gpuhook uses it where it is there",
        )
    return _not_loaded(host)


def is_wsl(root: Root) -> bool:
    """Whether this is WSL2, where Windows has the driver: its node is there, and no module of Linux's."""
    return _exists(root, WSL_NODE) and not _exists(root, VERSION_FILE)


def _not_loaded(host: Host) -> GpuhookError:
    if _kernel_is_microsofts(host):
        return NoAdapter(
            f"this is WSL, and it has no {WSL_NODE}",
            where=f"{host.proc}/version",
            hint="WSL1 has no GPUs: `wsl --set-version DISTRIBUTION 2`; in WSL2 install NVIDIA's driver in Windows",
        )
    from gpuhook.driver.pci import describe_gpus  # only a failure pays for it

    finding, hint = describe_gpus(host.sys)
    return DriverNotLoaded(
        f"the NVIDIA kernel module is not loaded{finding}",
        where=f"{VERSION_FILE} is absent" + (f" below {host.driver_root}" if host.driver_root != "/" else ""),
        hint=hint,
    )


def _kernel_is_microsofts(host: Host) -> bool:
    try:
        return b"microsoft" in read_file(f"{host.proc}/version", 4096)[0].lower()
    except OSError:
        return False


def _is_empty(root: Root) -> bool:
    try:
        return not root.listdir("/", 1000)
    except OSError:  # too many entries, or not ours to see
        return False


def _exists(root: Root, path: str) -> bool:
    try:
        root.stat(path)
    except OSError:
        return False
    return True


def _loaded_here(host: Host) -> bool:
    try:
        read_file(f"{host.proc}/driver/nvidia/version", _LIMIT)
    except OSError:
        return False
    return True
