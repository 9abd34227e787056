"""What graphics and display bring beyond nvidia-container-cli, and that it stops no container."""

from __future__ import annotations

import pytest

from gpuhook.driver.model import Library
from gpuhook.driver.tables import HOST_FILES
from gpuhook.plan.ops import Bind, Link, MergeCache
from tests.plan.make import INVENTORY, ROOT, WIDE, binds, plan

FILES = tuple(dict.fromkeys(path for paths in HOST_FILES.values() for path in paths))
GBM = Library(
    stem="libnvidia-egl-gbm.so", path="/opt/lib/libnvidia-egl-gbm.so.1.1.1", soname="libnvidia-egl-gbm.so.1", bits=64
)
HOST = INVENTORY.with_(files=tuple((path, f"/real{path}") for path in FILES), helpers=(GBM,))


@pytest.mark.parametrize("capability", ["graphics", "display"])
def test_graphics_bring_files_and_helpers(capability: str) -> None:
    """Each at its place, from where it really is; all of it dispensable."""
    the_plan = plan(capability, inventory=HOST)
    found = binds(the_plan)
    for path in HOST_FILES["graphics"]:
        assert found[path] == Bind(source=f"{ROOT}/real{path}", target=path, dispensable=True)
    target = f"{WIDE}/libnvidia-egl-gbm.so.1.1.1"
    assert found[target] == Bind(source=f"{ROOT}{GBM.path}", target=target, dispensable=True)
    links = {op.target: op for op in the_plan.ops if isinstance(op, Link)}
    assert links[f"{WIDE}/libnvidia-egl-gbm.so.1"].dispensable
    assert links[f"{WIDE}/gbm/nvidia-drm_gbm.so"].to == "../libnvidia-allocator.so.1"
    entries = [entry.soname for op in the_plan.ops if isinstance(op, MergeCache) for entry in op.entries]
    assert "libnvidia-egl-gbm.so.1" in entries
    assert "/etc/OpenCL/vendors/nvidia.icd" not in found


def test_compute_brings_opencls_file_only() -> None:
    """Without it OpenCL programs find no platform."""
    found = binds(plan("compute", inventory=HOST))
    assert [path for path in FILES if path in found] == ["/etc/OpenCL/vendors/nvidia.icd"]
    assert not [path for path in found if "egl" in path]


@pytest.mark.parametrize("capability", ["utility", "video", "ngx", "compat32"])
def test_other_capabilities_bring_none(capability: str) -> None:
    """No file that nobody asked for."""
    ops = plan(capability, inventory=HOST).ops
    assert not [op for op in ops if isinstance(op, (Bind, Link)) and op.dispensable]


@pytest.mark.parametrize(("with_compute", "dispensable"), [(False, True), (True, False)])
def test_what_compute_brings_anyway_is_not_dispensable(with_compute: bool, dispensable: bool) -> None:
    """A container that asks for CUDA does not start without one of its libraries."""
    capabilities = ("graphics", "compute") if with_compute else ("graphics",)
    found = [op for op in plan(*capabilities, inventory=HOST).ops if isinstance(op, Bind) and "gpucomp" in op.source]
    assert [op.dispensable for op in found] == [dispensable]
