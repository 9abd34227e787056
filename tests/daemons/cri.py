"""A kubelet's part, as far as pods with GPUs go: it asks containerd's CRI plugin for a sandbox and for containers.

The requests are those of the Kubernetes API runtime.v1; fields are written as plain dictionaries.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any

import grpc  # type: ignore[import-untyped]
from cri_api.v1 import api_pb2

from tests.rig.process import Result

RUNTIME, IMAGES = "runtime.v1.RuntimeService", "runtime.v1.ImageService"
DEVICES = "/var/run/nvidia-container-devices"
HOST_NETWORK = {"network": "NODE", "pid": "CONTAINER"}  # no CNI, and what a kubelet says for an ordinary pod
TIMEOUT = 60  # seconds
_numbers = count(1)


class Refused(Exception):
    """What containerd answered instead of doing it."""


@dataclass
class Pod:
    """A sandbox that runs. config: what it was asked for with."""

    kubelet: Kubelet
    id: str
    config: Mapping[str, Any]

    def start(self, image: str, argv: Sequence[str], **fields: Any) -> str:
        """A container's id, once it runs. fields: of ContainerConfig. Raises Refused."""
        number = next(_numbers)
        config: dict[str, Any] = {
            "metadata": {"name": f"container-{number}"},
            "image": {"image": image},
            "command": argv,
            "log_path": f"{number}.log",
            "linux": {"security_context": {"namespace_options": HOST_NETWORK}},
            **fields,
        }
        call = self.kubelet.call
        made = call("CreateContainer", pod_sandbox_id=self.id, config=config, sandbox_config=self.config)
        container: str = made.container_id
        call("StartContainer", container_id=container)
        return container

    def run(self, image: str, argv: Sequence[str], **fields: Any) -> Result:
        """A container's status, and its log as kubectl shows it. Raises Refused."""
        container = self.start(image, argv, **fields)
        deadline = time.monotonic() + TIMEOUT
        while (status := self.kubelet.status(container)).state != api_pb2.CONTAINER_EXITED:
            assert time.monotonic() < deadline, "the container does not end"
            time.sleep(0.05)
        return Result(status.exit_code, *_log(status.log_path))


class Kubelet:
    """A connection to containerd's socket, seen from outside of its mount namespace."""

    def __init__(self, socket: str, logs: str) -> None:
        self.logs = logs
        self._channel = grpc.insecure_channel(f"unix:{socket}")

    def call(self, name: str, service: str = RUNTIME, **fields: Any) -> Any:
        """The answer to this request of the API. Raises Refused."""
        request, response = (getattr(api_pb2, f"{name}{end}") for end in ("Request", "Response"))
        method = self._channel.unary_unary(
            f"/{service}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
            _registered_method=True,
        )
        try:
            return method(request(**fields), timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise Refused(error.details()) from None

    def wait_for_image(self, reference: str) -> None:
        """Until the plugin has heard of an image that was imported."""
        deadline = time.monotonic() + TIMEOUT
        while not self.call("ImageStatus", IMAGES, image={"image": reference}).HasField("image"):
            assert time.monotonic() < deadline, f"the CRI plugin does not see {reference}"
            time.sleep(0.05)

    def status(self, container: str) -> Any:
        """ContainerStatus."""
        return self.call("ContainerStatus", container_id=container).status

    def exec(self, container: str, *argv: str) -> Result:
        """A command's outcome in a running container, as kubectl exec has it."""
        done = self.call("ExecSync", container_id=container, cmd=argv, timeout=TIMEOUT)
        return Result(done.exit_code, done.stdout.decode(), done.stderr.decode())

    def sandbox_pid(self, pod: Pod) -> int:
        """The process that holds the pod's namespaces."""
        told = self.call("PodSandboxStatus", pod_sandbox_id=pod.id, verbose=True)
        pid: int = json.loads(told.info["info"])["pid"]
        return pid

    @contextmanager
    def pod(self, handler: str) -> Iterator[Pod]:
        """A pod whose RuntimeClass has this handler, "" for none. With it go its containers."""
        number = next(_numbers)
        config = {
            "metadata": {"name": f"pod-{number}", "uid": f"{os.getpid()}-{number}", "namespace": "default"},
            "log_directory": f"{self.logs}/{number}",
            "linux": {"security_context": {"namespace_options": HOST_NETWORK}},
        }
        os.makedirs(f"{self.logs}/{number}")
        sandbox = self.call("RunPodSandbox", config=config, runtime_handler=handler).pod_sandbox_id
        try:
            yield Pod(self, sandbox, config)
        finally:
            self.call("StopPodSandbox", pod_sandbox_id=sandbox)
            self.call("RemovePodSandbox", pod_sandbox_id=sandbox)

    def close(self) -> None:
        """Let go of the socket."""
        self._channel.close()


def variable(value: str) -> dict[str, Any]:
    """What a device plugin answers with the strategy envvar."""
    return {"envs": [{"key": "NVIDIA_VISIBLE_DEVICES", "value": value}]}


def mounts(*names: str) -> dict[str, Any]:
    """What a device plugin answers with the strategy volume-mounts."""
    return {"mounts": [{"host_path": "/dev/null", "container_path": f"{DEVICES}/{name}"} for name in names]}


def image_archive(path: str, reference: str, layer: str, *, argv: Sequence[str], env: Sequence[str] = ()) -> str:
    """An image as `ctr images import` takes it. layer: its root filesystem, a tar file."""
    with open(layer, "rb") as file:
        data = file.read()
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "config": {"Entrypoint": list(argv), "Env": ["PATH=/usr/bin:/bin", *env]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(data).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for name, content in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", data),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def _log(path: str) -> tuple[str, str]:
    """The stdout and stderr of a log in the CRI's format: time, stream, P for a part of a line or F, text."""
    texts = {"stdout": "", "stderr": ""}
    with open(path, encoding="utf-8") as file:
        for line in file:
            _, stream, part, text = line.rstrip("\n").split(" ", 3)
            texts[stream] += text if part == "P" else f"{text}\n"
    return texts["stdout"], texts["stderr"]
