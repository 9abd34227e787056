"""The device nodes that a request brings, for the specification: what stands there survives an update.

`systemctl daemon-reload` and `update` of a runtime apply the specification's device rules again; what a hook has
added behind them is gone then, and the container's GPUs with it (decisions.md 25).
"""

from __future__ import annotations

from gpuhook.backend.survey import survey
from gpuhook.driver.model import Host
from gpuhook.kernel.beneath import Root
from gpuhook.oci.spec import Device
from gpuhook.oci.state import State
from gpuhook.plan.build import build_plan
from gpuhook.plan.ops import Bind, Image
from gpuhook.request.build import build_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle
    from gpuhook.request.model import DeviceChoice
    from gpuhook.settings.values import Settings


def find_devices(bundle: Bundle, settings: Settings, choice: DeviceChoice, path: str) -> list[Device]:
    """The devices that the hook will give this container, in its own order. path: our PATH.

    Raises GpuhookError where the hook may do more than we can tell, or will refuse the container.
    """
    host = Host(driver_root=settings.cli_root or "/", ldcache=settings.cli_ldcache or Host.ldcache)
    nobody = State(id="", pid=1, bundle=bundle.path)  # the process is made later, and no device depends on it
    request = build_request(nobody, bundle, settings, choice)
    inventory, chosen, _ = survey(request, settings, host, path)
    plan = build_plan(request, inventory, chosen, Image())
    with Root(host.driver_root) as root:
        return [_device(root, op) for op in plan.ops if isinstance(op, Bind) and op.kind == "device"]


def _device(root: Root, op: Bind) -> Device:
    """The node as the host has it; op.device is the number that it was found to have."""
    status = root.stat(op.target)
    assert op.device is not None  # noqa: S101  # for the type checker: the plan's devices have their numbers
    return Device(
        path=op.target,
        major=op.device[0],
        minor=op.device[1],
        mode=status.st_mode & 0o777,
        uid=status.st_uid,
        gid=status.st_gid,
    )
