"""What can keep an engine from being configured, each with its reference (see gpuhook/errors.py)."""

from __future__ import annotations

from gpuhook.errors import GpuhookError


class EngineMissing(GpuhookError):
    """The container engine that is to be configured is not on this machine."""

    reference = "engine-missing"


class SnapDocker(GpuhookError):
    """The only Docker here is the snap's, which sees neither /etc/docker nor the host's programs."""

    reference = "snap-docker"


class DaemonJsonInvalid(GpuhookError):
    """Docker's daemon.json cannot be read or changed, or repeats what dockerd gets as options."""

    reference = "daemon-json-invalid"


class ContainerdConfig(GpuhookError):
    """containerd's configuration cannot be read or changed."""

    reference = "containerd-config"


class DistroConfig(GpuhookError):
    """A Kubernetes distribution's containerd cannot be configured in this way."""

    reference = "k8s-distro-config"


class CrioConfig(GpuhookError):
    """CRI-O's configuration cannot be read or changed."""

    reference = "crio-config"


class HooksDir(GpuhookError):
    """A hooks folder, or a hook file in it, is not what Podman or CRI-O can use."""

    reference = "podman-hooks-dir"


class FileProtected(GpuhookError):
    """A file that would be changed is read-only, or belongs to somebody whom we do not obey."""

    reference = "file-protected"


class ForeignFile(GpuhookError):
    """A file that is not ours stands where ours should go."""

    reference = "foreign-file"


class FileBusy(GpuhookError):
    """Somebody else changes the same files at the same time."""

    reference = "changed-meanwhile"


class JournalBroken(GpuhookError):
    """The record of what was installed cannot be used."""

    reference = "install-journal"


class RestartFailed(GpuhookError):
    """A daemon was to be restarted and was not."""

    reference = "restart-failed"
