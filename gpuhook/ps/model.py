"""What `gpuhook ps --json` prints: an interface to programs; its schema is docs/ps.schema.json."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """The base: nothing beyond the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(Model):
    """A GPU of this node. node: its device node, by which everything here names it."""

    node: str
    uuid: str = ""
    model: str = ""
    bus_id: str = ""


class Access(Model):
    """A GPU's node in a container. path: there; node: of the host, from the number.

    allowed: whether the container's device rules let it be read and written, None where they could not be seen.
    """

    node: str
    path: str
    allowed: bool | None = None


class Process(Model):
    """A process that has device files of the driver open. container: its id, "" for none; open: the files' names."""

    pid: int
    user: str
    command: str
    container: str = ""
    open: list[str]
    gpus: list[str] = Field(default_factory=list, description="those of them that are GPUs")


class Container(Model):
    """A container that may use GPUs, uses them, or asked for them.

    engine: docker, podman, containerd, cri-o or unknown; pod: namespace/name, or the pod's uid where nothing else is
    known; pid: of its first process; asked: its NVIDIA_VISIBLE_DEVICES, None where it has none or it was not seen;
    lost: nodes that are there and that the device rules do not allow (`gpuhook why systemd-reload-loses-gpu`).
    """

    engine: str
    id: str
    name: str = ""
    image: str = ""
    pod: str = ""
    pid: int
    asked: str | None = None
    may_use: list[Access] = Field(default_factory=list)
    lost: list[str] = Field(default_factory=list)
    processes: list[int] = Field(default_factory=list, description="those that have device files open")


class Usage(Model):
    """Everything at one moment. unseen: what could not be looked at, and why."""

    gpus: list[Gpu] = Field(default_factory=list)
    containers: list[Container] = Field(default_factory=list)
    processes: list[Process] = Field(default_factory=list)
    unseen: list[str] = Field(default_factory=list)
