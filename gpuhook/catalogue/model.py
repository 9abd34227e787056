"""The form of a catalogue entry."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Entry(BaseModel):
    """One cause of trouble.

    severity: "blocker" (the container does not start), "degraded" (it starts, the GPU is missing or partly usable),
    "latent" (it works now and will break), "security"; seen: in how many public reports, 0 for gpuhook's own;
    symptom: what a person sees; check: how to find out by hand; fix: what to do, words in {braces} stand for what is
    found.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    slug: str
    title: str
    severity: Literal["blocker", "degraded", "latent", "security"]
    seen: int
    symptom: str
    check: tuple[str, ...]
    fix: tuple[str, ...]
