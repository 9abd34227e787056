"""`gpuhook explain`: why a container gets its GPUs, or does not."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gpuhook.doctor.progress import Progress
from gpuhook.errors import BadBundle, Usage
from gpuhook.explain.decide import explain
from gpuhook.explain.engines import inspected, of_containerd
from gpuhook.explain.inspected import from_inspect
from gpuhook.explain.pod import from_pod
from gpuhook.explain.render import Page, render
from gpuhook.explain.subject import LARGEST, Subject, from_bundle, from_variables

STATUS = {"inject": 0, "skip": 0, "refuse": 1}


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="gpuhook explain",
        description="Tells what the hook would do for a container, and why. Nothing is changed.",
        epilog="exit status: 0 the container starts, 1 it would be refused, 2 usage",
    )
    made.add_argument("bundle", nargs="?", metavar="BUNDLE", help="a bundle's folder")
    made.add_argument("--docker", metavar="NAME", help="a container of Docker, by name or id")
    made.add_argument("--podman", metavar="NAME", help="a container of Podman")
    made.add_argument("--containerd", metavar="ID", help="a running container of containerd")
    made.add_argument("--pod-json", metavar="FILE", help="kubectl get pod (or deployment ...) -o json; - for stdin")
    made.add_argument("--image-json", metavar="FILE", help="docker or podman inspect of anything; - for stdin")
    made.add_argument(
        "--env", metavar="NAME=VALUE", nargs="+", action="extend", help="a container with these variables"
    )
    made.add_argument("--config", metavar="FILE", default="", help="this config.toml instead of the node's")
    made.add_argument("--last-failure", action="store_true", help="the last container that this node's hook refused")
    made.add_argument("-v", "--verbose", action="store_true", help="every operation of the plan")
    made.add_argument("--json", action="store_true", help="for programs; see --schema")
    made.add_argument("--schema", action="store_true", help="print the JSON Schema of --json")
    return made


def main(argv: list[str]) -> int:
    """Run the command. Raises GpuhookError."""
    given = parser().parse_args(argv)
    if given.schema:
        from gpuhook.explain.model import Explanation

        sys.stdout.write(json.dumps(Explanation.model_json_schema(), indent=2, sort_keys=True) + "\n")
        return 0
    if given.last_failure:
        from gpuhook.explain import last

        return last.show(as_json=given.json)
    with Progress() as progress:
        progress.now = "what is known of the container"
        found = subjects(given)
    told = [explain(subject, given.config) for subject in found]
    if given.json:
        many = [one.model_dump() for one in told]
        sys.stdout.write(json.dumps(many if len(many) > 1 else many[0], indent=2) + "\n")
    else:
        page = Page.here()
        blocks = ["\n".join(render(one, page, verbose=given.verbose)) for one in told]
        sys.stdout.write("\n\n".join(blocks) + "\n")
    return max(STATUS[one.verdict] for one in told)


def subjects(given: argparse.Namespace) -> list[Subject]:
    """The containers that the options name. Raises Usage and BadBundle."""
    ways = ("bundle", "docker", "podman", "containerd", "pod_json", "image_json", "env")
    named = [way for way in ways if getattr(given, way)]
    if len(named) != 1:
        raise Usage("name one container: a bundle's folder, or one of the options", hint="gpuhook explain --help")
    way, value = named[0], getattr(given, named[0])
    if way in ("docker", "podman"):
        return inspected(way, value)
    if way == "containerd":
        return [of_containerd(value)]
    if way == "env":
        return [from_variables(value)]
    if way == "bundle":
        return [from_bundle(value)]
    return (from_pod if way == "pod_json" else from_inspect)(read(value), "stdin" if value == "-" else value)


def read(name: str) -> str:
    """The text of a file, or of stdin for "-". Raises BadBundle."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST + 1) if sys.stdin else b""
        else:
            with Path(name).open("rb") as file:
                data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise BadBundle(f"it is larger than {LARGEST >> 20} MiB", where=name)
        return data.decode()
    except OSError as error:
        raise BadBundle(f"cannot read it: {error.strerror}", where=name) from error
    except UnicodeDecodeError as fault:
        raise BadBundle(f"byte {fault.start} is not UTF-8", where=name) from fault
