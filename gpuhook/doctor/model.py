"""What the doctor finds, as `gpuhook doctor --json` prints it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["ok", "note", "warning", "failure", "skipped"]
# The exit status of a report whose worst finding is of this level: what could not be looked at is not fine.
STATUS: dict[Level, int] = {"ok": 0, "note": 0, "skipped": 1, "warning": 1, "failure": 2}


class Evidence(BaseModel):
    """Where something was seen. where: file and line, or a command; found and wanted: values, "" where it is said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: str
    found: str = ""
    wanted: str = ""


class Finding(BaseModel):
    """One line of the report.

    slug: of the catalogue; level: "ok" (looked, and fine), "note", "warning" (works now or partly), "failure",
    "skipped" (could not look: text says why); advice: what to do here, with names and values filled in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    slug: str
    level: Level
    text: str
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[str, ...] = ()


def tell(
    slug: str, level: Level, text: str, *evidence: tuple[str, ...], advice: tuple[str, ...] | str = ()
) -> Finding:
    """A finding. evidence: (where, found, wanted) each, the last two may be left out."""
    seen = tuple(Evidence(**dict(zip(("where", "found", "wanted"), one, strict=False))) for one in evidence)
    return Finding(
        slug=slug, level=level, text=text, evidence=seen, advice=(advice,) if isinstance(advice, str) else advice
    )


class Report(BaseModel):
    """All findings of one run, and the versions of everything that takes part.

    container: that was looked at too, "" for none; its findings begin with its name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Level
    container: str = ""
    findings: tuple[Finding, ...]
    versions: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0


def worst(findings: tuple[Finding, ...]) -> Level:
    """The level of the whole: that of its worst finding."""
    order: tuple[Level, ...] = ("failure", "warning", "skipped", "note")
    return next((level for level in order if any(finding.level == level for finding in findings)), "ok")
