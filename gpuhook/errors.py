"""Every way in which gpuhook refuses: a class per cause, with a stable reference that a person can look up.

An error is one line that stands on its own, then where the input is, then what to do. The references are
the slugs of the catalogue of diagnoses, so that a line in a daemon's log leads to its entry.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with everything escaped that could forge a line or steer a terminal.

    Image authors choose these strings: control characters, line separators, bidirectional overrides and lone
    surrogates come out as backslash escapes. Long texts are cut to 300 characters.
    """
    if len(text) > 300:
        text = f"{text[:290]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class GpuhookError(Exception):
    """A failure with a cause that the user can act on.

    text: what failed, why, with the value found and the value needed; where: file and line, variable or key;
    hint: what to do. All three may hold strings from an image; they are escaped when rendered.
    """

    reference = "internal"
    exit_status = 1

    def __init__(self, text: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(text)
        self.text, self.where, self.hint = text, where, hint

    def render(self) -> str:
        """The message for stderr: the first line is complete in itself, without a final newline."""
        lines = [f"gpuhook: {self.reference}: {printable(self.text)}"]
        if self.where:
            lines.append(f"  in {printable(self.where)}")
        if self.hint:
            lines.append(f"  hint: {printable(self.hint)}")
        return "\n".join(lines)


class Usage(GpuhookError):
    """The command line is wrong."""

    reference, exit_status = "usage", 2


class BadState(GpuhookError):
    """The container state on stdin cannot be used."""

    reference = "bad-state"


class BadBundle(GpuhookError):
    """The bundle or its config.json cannot be used."""

    reference = "bad-bundle"


class ConfigBroken(GpuhookError):
    """config.toml cannot be read, is no TOML, or holds a value of the wrong kind."""

    reference = "config-toml-broken"


class UnsafeConfig(GpuhookError):
    """A file that decides what root does can be written by somebody else, or asks for something dangerous."""

    reference = "unsafe-config"


class WrongMode(GpuhookError):
    """config.toml asks for a mode that the hook does not serve (only `legacy` is a hook's work)."""

    reference = "hook-not-invoked"


class UnknownDevice(GpuhookError):
    """A GPU was asked for that this node does not have, or in a form that means nothing."""

    reference = "unknown-device"


class DevicesRefused(GpuhookError):
    """The way in which the container asks for devices is not accepted on this node."""

    reference = "strict-mode-mismatch"


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
