"""The options of gpuhook-cli as data: nvidia-container-cli's (reference/engine.md 1.1 to 1.5), then our own."""

from __future__ import annotations

from gpuhook.engine_cli.parser import Option
from gpuhook.value import Value

JSON = Option(name="json", help="Print JSON (an addition of gpuhook's)")
LEFT_OUT = (
    Option(name="no-persistenced", help="Leave out the socket of nvidia-persistenced"),
    Option(name="no-fabricmanager", help="Leave out the socket of nv-fabricmanager"),
    Option(name="no-gsp-firmware", help="Leave out the GSP firmware"),
)
MIG = (
    Option(name="mig-config", value="ID", help="What is needed to configure MIG (only `all`)"),
    Option(name="mig-monitor", value="ID", help="What is needed to monitor MIG (only `all`)"),
    Option(name="imex-channel", value="CHANNEL", help="IMEX channels, separated by commas"),
)
MODES = ("mount", "ldconfig", "disabled")
COMPAT_MODE = Option(
    name="cuda-compat-mode", value="MODE", help="CUDA forward compatibility: mount, ldconfig or disabled"
)


class Command(Value):
    """A command: its name, the forms of its usage, what it does, its options."""

    name: str
    forms: tuple[str, ...]
    about: str
    options: tuple[Option, ...]


TOP = Command(
    name="",
    forms=("[OPTION...] info [ARG...]", "[OPTION...] list [ARG...]", "[OPTION...] configure ROOTFS [ARG...]"),
    about="Tell what the NVIDIA driver of this machine offers, and give it to a container.",
    options=(
        Option(name="debug", letter="d", value="FILE", help="Append a debug log to FILE"),
        Option(name="load-kmods", letter="k", help="Load kernel modules and make device nodes first"),
        Option(name="no-pivot", letter="n", help="Do without pivot_root"),
        Option(name="user", letter="u", value="UID[:GID]", optional=True, help="Who asks the driver's libraries"),
        Option(name="root", letter="r", value="PATH", help="Where the driver is installed"),
        Option(name="ldcache", letter="l", value="FILE", help="The loader's cache, inside of the driver's root"),
        Option(name="no-create-imex-channels", help="With --load-kmods: make no IMEX channels"),
    ),
)
INFO = Command(
    name="info",
    forms=("[OPTION...]",),
    about="Print the driver's version and the GPUs.",
    options=(Option(name="csv", help="Separate values with commas"), JSON),
)
LIST = Command(
    name="list",
    forms=("[OPTION...]",),
    about="Print the driver's files; without options all of them.",
    options=(
        Option(name="device", letter="d", value="ID", help="Device nodes of these GPUs"),
        Option(name="libraries", letter="l", help="Libraries"),
        Option(name="binaries", letter="b", help="Programs"),
        Option(name="ipcs", letter="i", help="Sockets and folders of pipes"),
        Option(name="firmwares", letter="f", help="GSP firmware"),
        Option(name="compat32", help="With -l: 32-bit libraries too"),
        COMPAT_MODE,
        *MIG,
        *LEFT_OUT,
        JSON,
    ),
)
CONFIGURE = Command(
    name="configure",
    forms=("[OPTION...] ROOTFS",),
    about="Give a container the driver's files and GPUs.",
    options=(
        Option(name="pid", letter="p", value="PID", help="A process of the container (default: our parent)"),
        Option(name="device", letter="d", value="ID", help="GPUs to give: indices, UUIDs, PCI addresses, all"),
        Option(name="require", letter="r", value="EXPR", help="A condition on driver and GPUs"),
        Option(name="ldconfig", letter="l", value="PATH", help="The ldconfig to run; @ for the host's"),
        Option(name="compute", letter="c", help="Capability compute"),
        Option(name="utility", letter="u", help="Capability utility"),
        Option(name="video", letter="v", help="Capability video"),
        Option(name="graphics", letter="g", help="Capability graphics"),
        Option(name="display", letter="D", help="Capability display"),
        Option(name="ngx", letter="n", help="Capability ngx"),
        Option(name="compat32", help="Capability compat32"),
        COMPAT_MODE,
        *MIG,
        Option(name="no-cgroups", help="Leave the container's device rules alone"),
        Option(name="no-devbind", help="Do not bind device nodes"),
        *LEFT_OUT,
        Option(name="dry-run", help="Print what would be done and do nothing (an addition of gpuhook's)"),
        JSON,
    ),
)
COMMANDS = {command.name: command for command in (INFO, LIST, CONFIGURE)}
CAPABILITIES = ("compute", "utility", "video", "graphics", "display", "ngx", "compat32")
