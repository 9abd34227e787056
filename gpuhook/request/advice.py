"""The words for a requirement that is not met: what is needed, what this host has, what to do about it."""

from __future__ import annotations

from gpuhook.refusals import Unsatisfied
from gpuhook.request.cuda_branches import first_branch, runs_on_minor
from gpuhook.request.devices import short
from gpuhook.request.requirements import SWITCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.request.conditions import Facts, Failure
    from gpuhook.request.model import Requirement

ORDER = ("cuda", "driver", "arch", "brand")  # what an update of the driver cures comes first


def unsatisfied(requirement: Requirement, failures: tuple[Failure, ...], facts: Facts) -> Unsatisfied:
    """The error for a requirement none of whose alternatives holds (at least one failure)."""
    failure = min(failures, key=lambda f: ORDER.index(f.key))
    return Unsatisfied(
        f"{requirement.source} needs {_needed(failure)}, but {_have(failure, facts)}",
        where=_where(requirement),
        hint=f"{_way_out(failure, facts)}, or set {SWITCH}=true to try anyway",
    )


def _where(requirement: Requirement) -> str:
    if requirement.source == "CUDA_VERSION":
        return f"CUDA_VERSION, which means {requirement.expression} where NVIDIA_REQUIRE_CUDA is not set"
    return f"{requirement.source}={requirement.expression}"


def _needed(failure: Failure) -> str:
    names = {"cuda": "CUDA", "driver": "a driver", "arch": "a GPU of compute capability", "brand": "a GPU of brand"}
    return f"{names[failure.key]} {failure.operator} {_bounded(failure.wanted)}"


def _bounded(version: str) -> str:
    return version if len(version) <= 40 else short(version)


def _have(failure: Failure, facts: Facts) -> str:
    if failure.key in ("arch", "brand"):
        return f"GPU {failure.gpu} has {failure.found or 'an unknown one'}"
    driver, cuda = facts.driver or "of unknown version", facts.cuda or "of unknown version"
    return f"this host has driver {driver}, which provides CUDA {cuda}"


def _way_out(failure: Failure, facts: Facts) -> str:
    if failure.key in ("arch", "brand"):
        return "use another GPU or another image"
    if failure.operator not in (">", ">="):
        return "use a driver of the version that the image names, or another image"
    if failure.key == "driver":
        return f"update the driver to {_bounded(failure.wanted)} or newer, or use an image for an older one"
    wanted, host = _pair(failure.wanted), _pair(facts.cuda)
    branch = first_branch(wanted if failure.operator == ">=" else (wanted[0], wanted[1] + 1))
    update = f"update the driver to branch {branch} or newer" if branch else "update the driver"
    image = f", use an image for CUDA {facts.cuda} or older" if facts.cuda else ""
    mostly = f" (programs for CUDA {wanted[0]} mostly run on this driver)" if runs_on_minor(wanted, host) else ""
    return f"{update}{image}{mostly}"


def _pair(version: str) -> tuple[int, int]:
    """Major and minor as far as they are small numbers, which is all that the table knows."""
    numbers = [int(part) if part.isdigit() and len(part) < 6 else 99999 for part in version.split(".") if part]
    major, minor = (*numbers, 0, 0)[:2]
    return major, minor
