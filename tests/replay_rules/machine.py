"""Whether this machine is what a case needs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.replay_rules.case import PATH

PROGRAMS = {
    "no-system-cli": "nvidia-container-cli",
    "no-system-hook": "nvidia-container-runtime-hook",
    "no-system-ctk": "nvidia-ctk",
}


def why_not(need: str) -> str:
    """Why a case with this need cannot be replayed here; "" if it can."""
    if need in PROGRAMS:
        folders = [*os.environ.get("PATH", "").split(":"), *PATH.split(":")]
        found = any(os.path.exists(f"{folder}/{PROGRAMS[need]}") for folder in folders if folder)
        return f"{PROGRAMS[need]} is installed" if found else ""
    if need == "4k-pages":
        return "" if os.sysconf("SC_PAGE_SIZE") == 1 << 12 else "the longest argument has another length"
    if need == "not-tegra":
        return "this is a Tegra" if os.path.exists("/etc/nv_tegra_release") else ""
    if need == "not-suse":
        return "the default user differs on SUSE" if _is_suse() else ""
    return f"the need {need!r} is unknown"


def _is_suse() -> bool:
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    words = [line.partition("=")[2].strip("\"'").split() for line in lines if line.startswith("ID_LIKE=")]
    return any(word in ("suse", "opensuse") for row in words for word in row)
