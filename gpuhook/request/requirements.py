"""What an image demands of the driver: NVIDIA_REQUIRE_* and, for old images, CUDA_VERSION (hook.md 7.1 and 7.2).

Whether a demand is met is decided in conditions.py, or by nvidia-container-cli.
"""

from __future__ import annotations

from gpuhook.jsontext import is_plain
from gpuhook.oci.bundle import semantic_version
from gpuhook.refusals import BadRequirement, Unsatisfied
from gpuhook.request.devices import is_legacy, short
from gpuhook.request.model import Requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.oci.bundle import Bundle
    from gpuhook.settings.values import Settings

    Warnings = tuple[tuple[str, str], ...]

PREFIX = "NVIDIA_REQUIRE_"
SWITCH = "NVIDIA_DISABLE_REQUIRE"
ON = ("1", "t", "true", "y", "yes", "on")
OFF = ("", "0", "f", "false", "n", "no", "off")
LONGEST = (1 << 17) - len("--require=") - 1  # bytes that fit into one argument of a program on Linux


def choose_requirements(bundle: Bundle, settings: Settings) -> tuple[tuple[Requirement, ...], Warnings]:
    """The requirements of a GPU container in the order of their variables' names, that of an old image last.

    Empty ones are dropped. Also (slug, text) warnings. Raises BadRequirement.
    """
    off, warnings = _switched_off(bundle.env.get(SWITCH, ""))
    if off or settings.disable_require:
        return (), warnings
    names = sorted(name for name in bundle.env if name.startswith(PREFIX) and bundle.env[name])
    stated = [_stated(name, bundle.env[name]) for name in names if not name.startswith(f"{PREFIX}JETPACK")]
    if is_legacy(bundle.env):
        stated.append(_of_old_image(bundle.env["CUDA_VERSION"]))
    return tuple(stated), warnings


def _switched_off(value: str) -> tuple[bool, Warnings]:
    """Whether the container wants no checks: the usual words, in any case; anything else is told, and means no."""
    word = value.strip(" ").lower()
    if word in ON or word in OFF:
        return word in ON, ()
    return False, ((Unsatisfied.reference, f"{SWITCH} is {short(value)}, neither true nor false: requirements count"),)


def _stated(name: str, expression: str) -> Requirement:
    if not is_plain(expression):
        raise BadRequirement(f"{name} holds a control character", where=f"{name}={expression}")
    if len(expression.encode()) > LONGEST:
        raise BadRequirement(f"{name} is longer than {LONGEST} bytes, the most that Linux hands over", where=name)
    return Requirement(source=name, expression=expression)


def _of_old_image(text: str) -> Requirement:
    version = cuda_version(text)
    if version is None:
        raise BadRequirement(
            f"CUDA_VERSION is {short(text)}, no version such as 12.4.1",
            where=f"CUDA_VERSION={text}",
            hint=f"correct CUDA_VERSION, state NVIDIA_REQUIRE_CUDA, or set {SWITCH}=true",
        )
    return Requirement(source="CUDA_VERSION", expression=f"cuda>={version[0]}.{version[1]}")


def cuda_version(text: str) -> tuple[int, int] | None:
    """Major and minor of a CUDA_VERSION, None where it is no version or they are of more than 32 bits."""
    version = semantic_version(text)
    return version[:2] if version and max(version[:2]) < 1 << 32 else None
