"""CDI specifications: whether they fit the driver that runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gpuhook.doctor.engines import cdi_files
from gpuhook.doctor.facts import driver_runs, gpu_information, major_of, module_version
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node
from gpuhook.doctor.registry import check

LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)\b")
UUID = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
KEY = re.compile(r"^[\s{\[-]*\"?(path|major)\"?:\s*\"?([\w/.-]+)")
ANEW = "`nvidia-ctk cdi generate --output={0}` makes it anew; or delete it and use the hook"


@check("cdi-stale", family="cdi")
def specifications(node: Node) -> Iterator[Finding]:
    """The files name libraries, device numbers and GPUs of this driver."""
    version = module_version(node)
    if not driver_runs(node):
        return
    known = {info.get("GPU UUID", "") for info in gpu_information(node).values()}
    uvm = major_of(node, "nvidia-uvm")
    for path in cdi_files(node):
        text = node.read(path)
        old = next((found for found in LIBRARY.findall(text) if found != version), "")
        absent = [uuid for uuid in dict.fromkeys(UUID.findall(text)) if known and uuid not in known]
        major = majors(text).get("/dev/nvidia-uvm")
        if old:
            yield _stale(path, f"was made for driver {old}; the loaded driver is {version}", old, version)
        elif major is not None and uvm is not None and major != uvm:
            yield _stale(path, f"has major {major} for /dev/nvidia-uvm; the kernel's is {uvm}", str(major), str(uvm))
        elif absent:
            yield _stale(path, f"names {absent[0]}, which is not in this host", absent[0], ", ".join(sorted(known)))
        else:
            yield tell("cdi-stale", "ok", f"{path} fits the driver {version}")


def _stale(path: str, text: str, found: str, wanted: str) -> Finding:
    return tell("cdi-stale", "warning", f"{path} {text}", (path, found, wanted), advice=ANEW.format(path))


def majors(text: str) -> dict[str, int]:
    """The device numbers in a specification, JSON or YAML, by the path of the node: keys of one block."""
    try:
        return dict(_walk(json.loads(text)))
    except ValueError:
        pass
    found: dict[str, int] = {}
    block: dict[str, str] = {}
    for line in text.splitlines():
        if "{" in line or "}" in line or line.lstrip().startswith("- "):
            block = {}
        if key := KEY.match(line):
            block[key[1]] = key[2]
        if len(block) == 2 and block["major"].isdigit():
            found[block["path"]] = int(block["major"])
    return found


def _walk(value: object) -> Iterator[tuple[str, int]]:
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _walk(item)
    if isinstance(value, dict) and isinstance(value.get("path"), str) and isinstance(value.get("major"), int):
        yield value["path"], value["major"]
