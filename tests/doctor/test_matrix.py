"""Every cause of the catalogue on every host: it fires where it should, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuhook.catalogue import entries
from gpuhook.doctor import contained
from gpuhook.doctor.command import slugs
from gpuhook.doctor.limits import PARTLY, UNDETECTABLE
from gpuhook.doctor.model import Finding
from tests.doctor import hosts
from tools import doctor_matrix

Found = Callable[[str], tuple[Finding, ...]]
FIELD = [slug for slug, entry in entries().items() if entry.seen]
IMPLEMENTED = [slug for slug in FIELD if slug not in UNDETECTABLE]


@pytest.mark.parametrize("name", hosts.HEALTHY)
def test_a_healthy_host_has_no_finding(name: str, found: Found) -> None:
    """Nothing above "ok", not even something that was skipped."""
    assert [finding for finding in found(name) if finding.level != "ok"] == []


@pytest.mark.parametrize("name", hosts.names())
def test_a_host_has_the_findings_that_it_was_made_for(name: str, found: Found) -> None:
    """With their levels, and no others."""
    assert hosts.levels(found(name)) == hosts.described(name)["expect"]


@pytest.mark.parametrize("slug", IMPLEMENTED)
def test_a_check_fires_where_it_should_and_nowhere_else(slug: str, found: Found) -> None:
    """The row of the matrix: all hosts."""
    fired = {name for name in hosts.names() if slug in hosts.levels(found(name))}
    meant = {name for name in hosts.names() if slug in hosts.described(name)["expect"]}
    assert fired == meant
    assert fired
    assert not fired & set(hosts.HEALTHY)


def test_every_cause_is_implemented_or_said_to_be_out_of_sight() -> None:
    """Nothing is forgotten, and nothing is both."""
    made = {*slugs(), *contained.slugs(), *contained.BY_THE_HOOK}
    assert set(FIELD) - set(UNDETECTABLE) <= made
    assert not made & set(UNDETECTABLE)
    assert made | set(PARTLY) <= set(entries())


@pytest.mark.parametrize("name", hosts.names())
def test_a_finding_can_be_acted_on(name: str, found: Found) -> None:
    """A warning or failure says where it was seen or what to do, in one line of the catalogue's."""
    for finding in found(name):
        assert finding.slug in entries()
        assert "\n" not in finding.text
        if finding.level in ("warning", "failure"):
            assert finding.evidence or finding.advice


def test_the_page_is_what_the_checks_do(found: Found) -> None:
    """docs/doctor.md is made from the hosts (python -m tools.doctor_matrix)."""
    assert doctor_matrix.PAGE.read_text() == doctor_matrix.text()
