"""Which packages tools/glibc takes of those that apt offers; nothing is fetched here."""

from __future__ import annotations

import pytest

from tools.glibc import Glibc, choose
from tools.private_apt import CannotFetch, Package


def package(name: str, version: str) -> Package:
    return Package(name, "glibc", version, "amd64", 1)


def test_one_debian_version_of_each_upstream_version_is_taken() -> None:
    """The first that is named, which is the newest; one without ldconfig is left out."""
    offered = [
        package("libc6", "2.41-12"),
        package("libc6", "2.36-9+deb12u14"),
        package("libc6", "2.36-9+deb12u7"),
        package("libc6", "2.31-13"),
        package("libc-bin", "2.41-12"),
        package("libc-bin", "2.36-9+deb12u14"),
        package("libc-bin", "2.36-9+deb12u7"),
        package("libc6-i386", "2.36-9+deb12u14"),
        package("libc6-dev", "2.41-12"),
    ]
    assert [[(each.name, each.version) for each in packages] for packages in choose(offered)] == [
        [("libc6", "2.41-12"), ("libc-bin", "2.41-12")],
        [("libc6", "2.36-9+deb12u14"), ("libc-bin", "2.36-9+deb12u14"), ("libc6-i386", "2.36-9+deb12u14")],
    ]


@pytest.mark.parametrize("offered", [[package("libc6", "2.41-12"), package("libc-bin", "2.41-12")], []])
def test_fewer_than_two_are_refused(offered: list[Package]) -> None:
    """One version proves nothing about another."""
    with pytest.raises(CannotFetch, match="two versions of glibc"):
        choose(offered)


def test_versions_have_the_order_of_numbers() -> None:
    """2.4 is older than 2.31."""
    assert Glibc("2.4", "/x").number < Glibc("2.31", "/x").number
