"""What `gpuhook explain --json` prints: an interface to programs; its schema is docs/explain.schema.json."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """The base: nothing beyond the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Fact(Model):
    """Something that was said, and where: a variable, a mount, a key of config.toml."""

    what: str
    value: str
    where: str
    effect: str = ""


class Device(Model):
    """A GPU, or a MIG device of it, that the container gets."""

    index: str
    uuid: str
    model: str
    bus_id: str


class Capability(Model):
    """A driver capability: whether the container has it, what it brings, and why it is or is not there."""

    name: str
    granted: bool
    brings: str
    why: str


class Condition(Model):
    """A requirement and its verdict on this node."""

    source: str
    expression: str
    verdict: Literal["holds", "fails", "invalid", "left to nvidia-container-cli", "not checked"]
    why: str = ""


class Problem(Model):
    """An error or a warning of the hook, with its reference."""

    reference: str
    text: str
    where: str = ""
    hint: str = ""


class Explanation(Model):
    """The whole decision for one container.

    verdict: what the hook does: "inject" (the container gets something), "skip" (it is left alone), "refuse" (it would
    not start); uncalled: why no hook is called for this container at all, "" where one is or where that is not known.
    """

    container: str
    source: str
    verdict: Literal["inject", "skip", "refuse"]
    summary: str
    uncalled: str = ""
    asked: list[Fact] = Field(default_factory=list)
    node: list[Fact] = Field(default_factory=list)
    devices: list[Device] = Field(default_factory=list)
    capabilities: list[Capability] = Field(default_factory=list)
    requirements: list[Condition] = Field(default_factory=list)
    backend: str = ""
    command: list[str] = Field(default_factory=list)
    plan: list[str] = Field(default_factory=list)
    absent: list[str] = Field(default_factory=list)
    warnings: list[Problem] = Field(default_factory=list)
    notes: list[Problem] = Field(default_factory=list)
    error: Problem | None = None
