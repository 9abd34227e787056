"""The refusals that only a container with a GPU, or a command for people, can meet.

They are apart from errors.py since a class takes 10 µs to make, and a container without a GPU needs none of them.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError


class WrongMode(GpuhookError):
    """config.toml asks for a mode that the hook does not serve (only `legacy` is a hook's work)."""

    reference = "hook-not-invoked"


class UnsupportedCapability(GpuhookError):
    """A driver capability that does not exist or that this node does not allow."""

    reference = "unsupported-capability"


class NotPrivileged(GpuhookError):
    """Something that only a privileged container may ask for (MIG configuration and monitoring)."""

    reference = "not-privileged"


class BadRequirement(GpuhookError):
    """A requirement that is no valid expression."""

    reference = "bad-requirement"


class Unsatisfied(GpuhookError):
    """A requirement that this node's driver or GPU does not meet."""

    reference = "requirement-cuda"


class BadImex(GpuhookError):
    """An IMEX channel that is no number or does not exist here."""

    reference = "imex"


class BackendMissing(GpuhookError):
    """nvidia-container-cli is asked for and cannot be run, or no backend is left."""

    reference = "hook-binary-missing"


class LdconfigMissing(GpuhookError):
    """The configured ldconfig does not exist and the backend needs one."""

    reference = "ldconfig-path"


class DriverNotLoaded(GpuhookError):
    """The kernel module is not loaded, so that there is no GPU to give."""

    reference = "driver-not-loaded"


class NoAdapter(GpuhookError):
    """WSL, to which Windows offers no NVIDIA GPU."""

    reference = "wsl-no-adapter"


class DriverLibsMissing(GpuhookError):
    """The kernel module runs but its user-space libraries are not there."""

    reference = "driver-libs-missing"


class DriverMismatch(GpuhookError):
    """Kernel module and user-space libraries are of different versions."""

    reference = "driver-lib-mismatch"


class DriverRootWrong(GpuhookError):
    """The driver root does not exist or does not hold a driver."""

    reference = "driver-root-wrong"


class DriverFault(GpuhookError):
    """The driver's own libraries hang, crash or answer nonsense."""

    reference = "gpu-lost"


class NodeMissing(GpuhookError):
    """A device node of the driver is missing or is not the device that it should be."""

    reference = "device-node-perms"


class KernelTooOld(GpuhookError):
    """The kernel lacks a call that the embedded engine cannot do without."""

    reference = "kernel-too-old"


class NotCovered(GpuhookError):
    """The embedded engine does not do this; nvidia-container-cli does."""

    reference = "engine-not-covered"


class BadContainer(GpuhookError):
    """The process or the root filesystem is not the container that the bundle describes."""

    reference = "bad-container"


class TargetRefused(GpuhookError):
    """Something in the image or a volume stands where a driver file has to go."""

    reference = "image-has-driver-files"


class VolumeInTheWay(GpuhookError):
    """A volume of the user covers a folder into which driver files have to go."""

    reference = "socket-mount-conflict"


class RootfsReadOnly(GpuhookError):
    """Something must be created in the container and its root filesystem is read-only."""

    reference = "rootfs-readonly"


class CgroupFailed(GpuhookError):
    """The container's device rules cannot be written."""

    reference = "rootless-cgroup"


class ApplyFailed(GpuhookError):
    """A step of the engine failed; the container does not start."""

    reference = "engine-failed"


class TimedOut(GpuhookError):
    """Something that we wait for did not happen within its limit."""

    reference = "timed-out"


class NoLowLevelRuntime(GpuhookError):
    """gpuhook-runtime finds no OCI runtime to hand over to, or only itself."""

    reference = "low-level-runtime"


class NoDocker(GpuhookError):
    """gpuhook-docker finds no docker; the exit status is the one of a shell."""

    reference, exit_status = "nvidia-docker-cmd", 127


class DockerNotExecutable(NoDocker):
    """What gpuhook-docker should run is there and is no program."""

    exit_status = 126
