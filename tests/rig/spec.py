"""A container's config.json as the rig writes it, near to what `runc spec` gives."""

from __future__ import annotations

from typing import Any

OCI_VERSION = "1.0.2"
CAPABILITIES = ("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_SETUID")
MOUNTS: tuple[dict[str, Any], ...] = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
    },
    {
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
    },
    {
        "destination": "/dev/shm",
        "type": "tmpfs",
        "source": "shm",
        "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
    },
    {
        "destination": "/sys",
        "type": "sysfs",
        "source": "sysfs",
        "options": ["nosuid", "noexec", "nodev", "ro"],
    },
    {
        "destination": "/sys/fs/cgroup",
        "type": "cgroup",
        "source": "cgroup",
        "options": ["nosuid", "noexec", "nodev", "relatime", "ro"],
    },
)
MASKED = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware", "/proc/scsi")
READONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
USER_NAMESPACE_SIZE = 65536


def base_spec() -> dict[str, Any]:
    """A specification without arguments, environment and hooks, whose rootfs is `rootfs`."""
    sets = ("bounding", "effective", "permitted")
    return {
        "ociVersion": OCI_VERSION,
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": [],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": {name: list(CAPABILITIES) for name in sets},
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": False},
        "hostname": "rig",
        "mounts": [dict(mount) for mount in MOUNTS],
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")],
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READONLY),
        },
    }


def in_user_namespace(spec: dict[str, Any], first: int) -> None:
    """Maps the container's ids to those of the host from `first` on."""
    mapping = {"containerID": 0, "hostID": first, "size": USER_NAMESPACE_SIZE}
    spec["linux"]["uidMappings"] = [dict(mapping)]
    spec["linux"]["gidMappings"] = [dict(mapping)]
    spec["linux"]["namespaces"].append({"type": "user"})
