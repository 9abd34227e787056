"""How the engine makes a container: its rights, devices, mounts and runtime."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.doctor.contained.case import Case, look
from gpuhook.doctor.model import Finding, tell

SOCKET = "/run/nvidia-persistenced/socket"
ANNOTATION = "run.oci.hooks.stderr"
OPEN_FILES = 10_000_000


@look("privileged-sees-all")
def privileged(case: Case) -> Iterator[Finding]:
    """The engine does not give it more GPUs than it asks for."""
    traits = case.subject.traits
    every = traits.all_devices or "/dev" in traits.destinations
    if not case.request or not every or case.names == ("all",):
        return
    why = "it is privileged" if traits.all_devices else "the host's /dev is mounted in it"
    yield tell(
        "privileged-sees-all",
        "warning",
        f"{why}: it sees all GPUs, whatever it asks for ({', '.join(case.names) or 'none'})",
        advice=(
            "drop --privileged and add the capabilities that it needs",
            "or CUDA_VISIBLE_DEVICES, which programs heed and nothing enforces",
        ),
    )


@look("rootfs-readonly")
def readonly(case: Case) -> Iterator[Finding]:
    """The driver's files can be put into its root filesystem."""
    if not case.request:
        return
    covered = [
        path for path, only in case.subject.traits.destinations.items() if only and path in ("/usr", "/usr/lib")
    ]
    if case.subject.traits.readonly or covered:
        what = "its root filesystem" if case.subject.traits.readonly else f"the mount at {covered[0]}"
        yield tell(
            "rootfs-readonly",
            "note",
            f"{what} is read-only: what cannot be put there is left out, and named by the hook",
            advice="mount an empty writable folder where something needed is refused",
        )


@look("socket-mount-conflict")
def run_is_mounted(case: Case) -> Iterator[Finding]:
    """No volume covers the place of the driver's sockets."""
    covered = [path for path in ("/run", "/var/run") if path in case.subject.traits.destinations]
    if case.request and covered and case.node.exists(SOCKET):
        yield tell(
            "socket-mount-conflict",
            "note",
            f"{covered[0]} is a mount: the socket of nvidia-persistenced is not put there",
            (case.subject.place(covered[0]), covered[0]),
            advice="nothing has to be done; nvidia-container-cli may fail here, gpuhook's engine does not",
        )


@look("dri-missing")
def render_nodes(case: Case) -> Iterator[Finding]:
    """Graphics programs get the DRM nodes."""
    traits = case.subject.traits
    given = (*traits.devices, *traits.destinations)
    nodes = case.node.glob("/dev/dri", "renderD*")
    if not {"graphics", "display"} & set(case.capabilities) or traits.all_devices or not nodes:
        return
    if not any(path.startswith("/dev/dri") for path in given):
        yield tell(
            "dri-missing",
            "note",
            "graphics was requested without DRM nodes: EGL, GBM and Wayland may find no device",
            *((path,) for path in nodes[:3]),
            advice=f"--device {nodes[0]}",
        )


@look("old-oci-spec")
def old_format(case: Case) -> Iterator[Finding]:
    """Its config.json is of a form of now."""
    for odd in case.subject.traits.odd:
        version = case.subject.traits.version
        yield tell(
            "old-oci-spec",
            "note",
            f"config.json is unusual: {odd}{f' (OCI {version})' if version else ''}",
            (case.subject.source,),
            advice="it is read all the same; upgrade the engine if you can",
        )


@look("hook-error-hidden")
def hidden_error(case: Case) -> Iterator[Finding]:
    """What the hook says is seen."""
    traits = case.subject.traits
    if case.request and traits.runtime == "crun" and ANNOTATION not in traits.annotations:
        yield tell(
            "hook-error-hidden",
            "note",
            "its runtime is crun, which keeps what a hook says to itself",
            advice=f"--annotation {ANNOTATION}=/dev/stderr shows it",
        )


@look("nofile-huge")
def open_files(case: Case) -> Iterator[Finding]:
    """Its limit of open files is one over which programs can loop."""
    if case.request and case.subject.traits.nofile > OPEN_FILES:
        yield tell(
            "nofile-huge",
            "warning",
            f"it may open {case.subject.traits.nofile} files, and programs that close all of them take long",
            advice="--ulimit nofile=1048576",
        )
