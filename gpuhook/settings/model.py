"""The schema of config.toml: every key with its type, its default and what it may hold.

`ConfigFile` is the file as people write it; settings/decide.py turns it into the `Settings` that all other rooms
use, so that nobody else ever sees a key of the file. Sources: hook.md 2.1 and 11.10; the table [gpuhook] is ours.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from gpuhook.jsontext import is_plain
from gpuhook.settings.values import CAPABILITIES


class Refused(ValueError):
    """A value that is of the right type and not allowed; says what is, and which part is at fault."""

    def __init__(self, needed: str, found: str = "", words: tuple[str, ...] = ()) -> None:
        super().__init__(needed)
        self.needed, self.found, self.words = needed, found, words


def _plain(text: str) -> str:
    if not is_plain(text):
        raise Refused("a text without control characters")
    return text


def _variable(text: str) -> str:
    if text.find("=") < 1 or "\0" in text:
        raise Refused("NAME=value, with a name and without the character NUL")
    return text


def _program(text: str) -> str:
    if text and not text.startswith("/"):
        raise Refused("an absolute path, or empty for a search in PATH")
    return text


def _place(text: str) -> str:
    if text and (not text.startswith("/") or text.endswith("/")):
        raise Refused("the absolute path of a file, or empty for none")
    return text


def words(text: str) -> tuple[str, ...]:
    """The elements of a text with commas between them, without blanks around them, the empty ones left out."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _capabilities(text: str) -> str:
    unknown = [word for word in words(text) if word not in CAPABILITIES]
    if unknown and text != "all":
        allowed = f"all alone, or some of {', '.join(CAPABILITIES)} with commas between them"
        raise Refused(allowed, found=unknown[0], words=CAPABILITIES)
    return text


def _lowered(text: object) -> object:
    return text.lower() if isinstance(text, str) else text


Plain = Annotated[str, AfterValidator(_plain)]
Program = Annotated[Plain, AfterValidator(_program)]
Place = Annotated[Plain, AfterValidator(_place)]
Variable = Annotated[str, AfterValidator(_variable)]
Plains = list[Plain]
Capabilities = Annotated[str, AfterValidator(_capabilities)]
Mode = Literal["auto", "legacy", "csv", "cdi", "jit-cdi"]
CompatMode = Literal["ldconfig", "mount", "disabled", "hook"]
# logrus takes its levels in any case.
LogLevel = Annotated[
    Literal["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"], BeforeValidator(_lowered)
]
Backend = Literal["auto", "nvidia-container-cli", "embedded"]


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


class Table(BaseModel):
    """A table of the file: nothing is converted, what is not known is left out."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", alias_generator=_hyphens)


class Cli(Table):
    """[nvidia-container-cli]: how the driver's files get into the container, whichever backend does it."""

    root: Plain = Field(default="", description="the driver's root folder on the host; empty: /")
    path: Program = Field(default="", description="nvidia-container-cli; empty: search for it in PATH")
    environment: list[Variable] = Field(default=[], description="NAME=value, added to its environment")
    debug: Plain = Field(default="", description="its log file")
    ldcache: Plain = Field(default="", description="the host's loader cache")
    load_kmods: bool = Field(default=True, description="whether to load the kernel modules")
    no_pivot: bool = Field(default=False, description="whether to do without pivot_root")
    no_cgroups: bool | None = Field(
        default=None,
        description="whether to leave the device rules alone; unset: only within a user namespace",
    )
    user: Plain | None = Field(default=None, description="user:group of the unprivileged child")
    ldconfig: Plain | None = Field(default=None, description="the host's ldconfig, with @ in front")


class Csv(Table):
    """[nvidia-container-runtime.modes.csv]."""

    mount_spec_path: Plain = "/etc/nvidia-container-runtime/host-files-for-container.d"
    compat_container_root: Plain | None = None


class Cdi(Table):
    """[nvidia-container-runtime.modes.cdi]."""

    spec_dirs: Plains = Field(default=["/etc/cdi", "/var/run/cdi"], description="folders with CDI specifications")
    default_kind: Plain = Field(default="nvidia.com/gpu", description="vendor/class of unqualified names")
    annotation_prefixes: Plains = Field(default=["cdi.k8s.io/"], description="annotations that name CDI devices")


class JitCdi(Table):
    """[nvidia-container-runtime.modes.jit-cdi]."""

    nvcdi_feature_flags: Plains = []
    nvcdi_disable_hooks: Plains = []


class Legacy(Table):
    """[nvidia-container-runtime.modes.legacy]."""

    cuda_compat_mode: CompatMode = Field(default="ldconfig", description="how the image's newer libcuda is offered")


class Modes(Table):
    """[nvidia-container-runtime.modes]."""

    csv: Csv = Csv()
    cdi: Cdi = Cdi()
    jit_cdi: JitCdi = JitCdi()
    legacy: Legacy = Legacy()


class Runtime(Table):
    """[nvidia-container-runtime]: the shim around the low-level runtime."""

    debug: Plain = Field(default="/dev/null", description="its log file")
    log_level: LogLevel = "info"
    runtimes: Plains = Field(default=["runc", "crun"], description="low-level runtimes; the first that exists is used")
    mode: Mode = Field(default="auto", description="the hook serves auto and legacy")
    modes: Modes = Modes()


class Hook(Table):
    """[nvidia-container-runtime-hook]."""

    path: Plain = Field(default="nvidia-container-runtime-hook", description="the hook that the shim adds")
    skip_mode_detection: bool = Field(default=False, description="whether the hook works in every mode")


class Ctk(Table):
    """[nvidia-ctk]."""

    path: Plain = "nvidia-ctk"


class Features(Table):
    """[features]: all off unless they are said to be on."""

    allow_cuda_compat_libs_from_container: bool = False
    allow_ldconfig_from_container: bool = False
    allow_unknown_oci_spec_fields: bool = False
    disable_cuda_compat_lib_hook: bool = False
    disable_imex_channel_creation: bool = False
    ignore_imex_channel_requests: bool = False
    no_additional_gids_for_device_nodes: bool = False


class Gpuhook(Table):
    """[gpuhook]: keys of our own."""

    backend: Backend = Field(default="auto", description="who does the work; auto: nvidia-container-cli where it is")
    write_into_volumes: bool = Field(
        default=False,
        description="whether driver files may be mounted into folders that a volume of the user covers",
    )
    failure_log: Place = Field(default="", description="a file that gets a line for each failure of the hook")


class ConfigFile(Table):
    """config.toml."""

    disable_require: bool = Field(default=False, description="whether NVIDIA_REQUIRE_* is ignored")
    swarm_resource: str = Field(default="", description="variables that name GPUs, with commas between them")
    accept_nvidia_visible_devices_envvar_when_unprivileged: bool = True
    accept_nvidia_visible_devices_as_volume_mounts: bool = False
    supported_driver_capabilities: Capabilities = Field(
        default=",".join(CAPABILITIES),
        description="the most that a container can get, with commas between; all: everything",
    )
    nvidia_container_cli: Cli = Cli()
    nvidia_container_runtime: Runtime = Runtime()
    nvidia_container_runtime_hook: Hook = Hook()
    nvidia_ctk: Ctk = Ctk()
    features: Features = Features()
    gpuhook: Gpuhook = Gpuhook()
