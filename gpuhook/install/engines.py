"""The engines by name, and who can take ours out of a file that was edited since."""

from __future__ import annotations

from types import ModuleType

from gpuhook.errors import Usage
from gpuhook.install import conf, containerd, cri, crio, distributions, docker, podman
from gpuhook.install.apply import Editor

ENGINES: dict[str, ModuleType] = {"docker": docker, "containerd": containerd, "podman": podman, "crio": crio}
EDITORS: dict[str, Editor] = {
    docker.KIND: docker.without_runtime,
    containerd.IN_PLACE: cri.without_entry,
    containerd.IMPORT: cri.without_import,
    containerd.DROP_IN: containerd.without_drop_in,
    distributions.TEMPLATE: distributions.without_block,
    distributions.K0S_PART: distributions.without_part,
    distributions.DEFAULT: distributions.without_default,
    podman.KIND: conf.without_keys,
    crio.KIND: conf.without_keys,
}


def chosen(names: list[str]) -> list[str]:
    """These names without doubles. Raises Usage for one that is no engine."""
    for name in names:
        if name not in ENGINES:
            raise Usage(f"unknown engine {name!r}", hint=f"known: {', '.join(ENGINES)}")
    return list(dict.fromkeys(names))
