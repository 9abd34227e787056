"""What a container asks for, after the node's rules were applied: a Request. Plain values."""

from __future__ import annotations

from gpuhook.value import Value


class DeviceChoice(Value):
    """Which devices were asked for, and by what.

    names: ("all",), or the list in the order of the request without duplicates, or () for `none` (driver files
    without a GPU); sources: the variables or mount destinations that said so, for messages.
    """

    names: tuple[str, ...]
    sources: tuple[str, ...]


class Requirement(Value):
    """A condition on the driver or the GPUs. source: the variable that states it; expression: its value."""

    source: str
    expression: str


class Request(Value):
    """Everything that a backend needs to know of a container.

    pid: of its first process in the hook's pid namespace; rootfs: absolute path; capabilities: driver
    capabilities in alphabetical order; imex_channels: as asked for, decimal; allows_devices: config.json's own rules
    let it use NVIDIA's devices; warnings: (slug, text) pairs.
    """

    container: str
    pid: int
    rootfs: str
    devices: DeviceChoice
    capabilities: tuple[str, ...]
    requirements: tuple[Requirement, ...] = ()
    mig_config: str = ""
    mig_monitor: str = ""
    imex_channels: tuple[str, ...] = ()
    privileged: bool = False
    allows_devices: bool = False
    warnings: tuple[tuple[str, str], ...] = ()
