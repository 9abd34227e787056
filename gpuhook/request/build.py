"""The Request of a container that asks for a GPU: everything else that it and the node say (hook.md 7, 9)."""

from __future__ import annotations

from gpuhook.errors import BadState
from gpuhook.note import note
from gpuhook.refusals import WrongMode
from gpuhook.request.capabilities import choose_capabilities
from gpuhook.request.devices import config_file
from gpuhook.request.imex import choose_channels
from gpuhook.request.mig import CONFIG, MONITOR, choose_mig
from gpuhook.request.model import Request
from gpuhook.request.requirements import choose_requirements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle
    from gpuhook.oci.state import State
    from gpuhook.request.model import DeviceChoice
    from gpuhook.settings.values import Settings

SERVED = ("auto", "legacy", "jit-cdi")  # the modes that mean this hook; the shim puts it in for each of them
CONTROL_NODE = (195, 255)  # /dev/nvidiactl: whoever gives a GPU gives it too


def build_request(
    state: State,
    bundle: Bundle,
    settings: Settings,
    choice: DeviceChoice,
    warnings: tuple[tuple[str, str], ...] = (),
    *,
    platform_is_tegra: bool = False,
) -> Request:
    """What this container is to get. `warnings` are those that came with the choice of devices.

    The Request's warnings are the settings', then the given ones, then this function's. The first fault in the
    order of hook.md 7 is raised: BadState, BadBundle, NotPrivileged, UnknownDevice, UnsupportedCapability,
    BadRequirement, BadImex, WrongMode.
    """
    _require_process(state)
    rootfs = bundle.rootfs()
    _take_notes(bundle)
    mig_config, mig_monitor = choose_mig(bundle, CONFIG), choose_mig(bundle, MONITOR)
    capabilities = choose_capabilities(bundle, settings)
    requirements, about_requirements = choose_requirements(bundle, settings)
    channels, about_channels = choose_channels(bundle, settings)
    _require_mode(settings, platform_is_tegra=platform_is_tegra)
    return Request(
        container=state.id,
        pid=state.pid,
        rootfs=rootfs,
        devices=choice,
        capabilities=capabilities,
        requirements=requirements,
        mig_config=mig_config,
        mig_monitor=mig_monitor,
        imex_channels=channels,
        privileged=bundle.privileged,
        allows_devices=bundle.allows_device(*CONTROL_NODE),
        warnings=(*settings.warnings, *warnings, *about_requirements, *about_channels),
    )


def _require_process(state: State) -> None:
    """A pid of 0 or less would make nvidia-container-cli take the hook's own parent for the container."""
    if state.pid <= 0:
        raise BadState(
            f"the state's pid is {state.pid}; the container's first process is needed",
            where="stdin: pid",
            hint="run the hook at prestart or createRuntime, when the process exists",
        )


def _take_notes(bundle: Bundle) -> None:
    if bundle.ignored:
        note(
            f"{len(bundle.ignored)} entries of process.env are no NAME=value and ignored, first {bundle.ignored[0]!r}"
        )
    note(f"the container is {'' if bundle.privileged else 'not '}privileged (CAP_SYS_ADMIN in the bounding set)")


def _require_mode(settings: Settings, *, platform_is_tegra: bool) -> None:
    """Refuse a mode that is another program's work, and a Tegra, whose driver is described in CSV files."""
    if settings.skip_mode_detection:
        return
    tegra = settings.mode == "auto" and platform_is_tegra
    if settings.mode in SERVED and not tegra:
        return
    file = config_file(settings)
    raise WrongMode(
        "this machine is a Tegra, whose driver comes in the mode csv, and a hook cannot do that"
        if tegra
        else f"nvidia-container-runtime.mode is '{settings.mode}'; a hook serves {', '.join(SERVED)}",
        where=f"{file}: mode",
        hint="start the container with the NVIDIA runtime (--runtime=nvidia) in place of the hook (docker's --gpus), "
        f'or set mode = "legacy" in the table nvidia-container-runtime of {file}',
    )
