"""The catalogue: an entry for every reference, and the pages made of it."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from gpuhook import errors, refusals
from gpuhook.catalogue import entries
from gpuhook.errors import GpuhookError
from gpuhook.hook import main
from gpuhook.install import errors as install_errors
from tools.diagnoses import text

REFERENCES = sorted(
    {
        kind.reference
        for module in (errors, refusals, install_errors)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, GpuhookError)
    }
)


@pytest.mark.parametrize("reference", REFERENCES)
def test_every_error_has_an_entry(reference: str) -> None:
    """A line in a daemon's log leads to what it means and what to do."""
    entry = entries()[reference]
    assert entry.symptom
    assert entry.check
    assert entry.fix


def test_why_prints_an_entry(capsys: pytest.CaptureFixture[str]) -> None:
    """Title first, then symptom, checks and fix; a colon copied from the message does no harm."""
    assert main(["why", "driver-lib-mismatch:"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("driver-lib-mismatch  Kernel module and user-space libraries")
    assert "what to do" in out
    assert max(map(len, out.splitlines())) <= 100


def test_why_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a slug: one line each."""
    assert main(["why"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(entries()) >= 75


def test_a_misspelt_slug_gets_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    """And status 2."""
    assert main(["why", "driver-lib-missmatch"]) == 2
    assert "did you mean driver-lib-mismatch?" in capfd.readouterr().err


def test_the_page_is_made_from_the_catalogue() -> None:
    """docs/diagnoses.md is what `python -m tools.diagnoses` writes."""
    assert text() == (Path(__file__).resolve().parents[2] / "docs" / "diagnoses.md").read_text(encoding="utf-8")
