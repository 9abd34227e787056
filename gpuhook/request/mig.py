"""Configuring and monitoring MIG: for privileged containers only (hook.md 7.3, AC-45)."""

from __future__ import annotations

from gpuhook.errors import UnknownDevice
from gpuhook.jsontext import is_plain
from gpuhook.refusals import NotPrivileged
from gpuhook.request.devices import could_be_option, short, split_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle

CONFIG = "NVIDIA_MIG_CONFIG_DEVICES"
MONITOR = "NVIDIA_MIG_MONITOR_DEVICES"


def choose_mig(bundle: Bundle, variable: str) -> str:
    """The value of one of the two variables, as written; "" for none.

    Raises NotPrivileged where the container may not ask, UnknownDevice for what a program could mistake.
    """
    value = bundle.env.get(variable, "")
    if not value:
        return ""
    if not bundle.privileged:
        raise NotPrivileged(
            f"{variable} is set to {short(value)}, but the container is not privileged",
            where=variable,
            hint=f"only a container with CAP_SYS_ADMIN in its bounding set may do this; leave {variable} unset",
        )
    if not is_plain(value) or any(map(could_be_option, split_words(value))):
        raise UnknownDevice(f"{variable} is {short(value)}, which names no device", where=variable, hint="use all")
    return value
