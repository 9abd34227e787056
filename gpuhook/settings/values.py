"""What config.toml decides, with every default applied: plain values that the hot path can afford.

The file's own shape, names and messages are in settings/model.py; a test keeps the defaults of both in step.
"""

from __future__ import annotations

from gpuhook.value import Value

CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
DEFAULT_CONFIG = "/etc/nvidia-container-runtime/config.toml"


class Settings(Value):
    """The node's decisions. Names follow config.toml's; `None` is "not said", where that differs from a default.

    source: the file that was read, "" for none; warnings: (slug, text) pairs about the file that a GPU
    container's start repeats; all else is one key of the file each.
    """

    source: str = ""
    warnings: tuple[tuple[str, str], ...] = ()

    disable_require: bool = False
    swarm_resource: tuple[str, ...] = ()
    accept_envvar_when_unprivileged: bool = True
    accept_volume_mounts: bool = False
    supported_driver_capabilities: tuple[str, ...] = CAPABILITIES

    cli_root: str = ""
    cli_path: str = ""
    cli_environment: tuple[str, ...] = ()
    cli_debug: str = ""
    cli_ldcache: str = ""
    load_kmods: bool = True
    no_pivot: bool = False
    no_cgroups: bool | None = None
    cli_user: str | None = None
    ldconfig: str | None = None

    runtime_debug: str = "/dev/null"
    runtime_log_level: str = "info"
    runtimes: tuple[str, ...] = ("runc", "crun")
    mode: str = "auto"
    csv_mount_spec_path: str = "/etc/nvidia-container-runtime/host-files-for-container.d"
    csv_compat_container_root: str | None = None
    cdi_spec_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    cdi_default_kind: str = "nvidia.com/gpu"
    cdi_annotation_prefixes: tuple[str, ...] = ("cdi.k8s.io/",)
    jit_cdi_nvcdi_feature_flags: tuple[str, ...] = ()
    jit_cdi_nvcdi_disable_hooks: tuple[str, ...] = ()
    cuda_compat_mode: str = "ldconfig"

    hook_path: str = "nvidia-container-runtime-hook"
    skip_mode_detection: bool = False
    ctk_path: str = "nvidia-ctk"

    allow_cuda_compat_libs_from_container: bool = False
    allow_ldconfig_from_container: bool = False
    allow_unknown_oci_spec_fields: bool = False
    disable_cuda_compat_lib_hook: bool = False
    disable_imex_channel_creation: bool = False
    ignore_imex_channel_requests: bool = False
    no_additional_gids_for_device_nodes: bool = False

    backend: str = "auto"
    write_into_volumes: bool = False
    failure_log: str = ""
