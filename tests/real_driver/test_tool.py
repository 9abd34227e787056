"""Which packages tools/real_driver takes of those that apt offers; nothing is fetched here."""

from __future__ import annotations

import pytest

from tools.private_apt import CannotFetch, Package
from tools.real_driver import Generation, choose

CURRENT, TESLA = "nvidia-graphics-drivers", "nvidia-graphics-drivers-tesla-470"


def package(name: str, version: str, source: str = CURRENT, architecture: str = "amd64") -> Package:
    return Package(name, source, version, architecture, 1)


OFFERED = [
    package("libcuda1", "535.309.01-0+deb12u1"),
    package("libcuda1", "535.309.01-0+deb12u1", architecture="i386"),
    package("libnvidia-legacy1", "535.261.03-1"),
    package("nvidia-kernel-dkms", "535.309.01-0+deb12u1"),
    package("xserver-xorg-video-nvidia", "535.309.01-0+deb12u1"),
    package("libnvidia-tesla-cuda1", "525.147.05-15~deb12u1", f"{CURRENT}-tesla"),
    package("libnvidia-tesla-535-cuda1", "535.216.03-3~deb12u1", f"{CURRENT}-tesla-535"),
    package("libnvidia-tesla-470-cuda1", "470.256.02-1~deb12u1", TESLA),
    package("nvidia-persistenced", "535.171.04-1", "nvidia-persistenced"),
    package("nvidia-cuda-samples", "11.8-2", "nvidia-cuda-samples"),
]


def names(chosen: list[list[Package]]) -> list[list[str]]:
    return [[f"{each.name}:{each.architecture}" for each in packages] for packages in chosen]


def test_the_newest_and_the_oldest_branch_are_taken() -> None:
    """Of a branch the newest version; no kernel sources, no X server, no CUDA, nothing of an older version."""
    assert names(choose(OFFERED)) == [
        ["libcuda1:amd64", "libcuda1:i386", "nvidia-persistenced:amd64"],
        ["libnvidia-tesla-470-cuda1:amd64", "nvidia-persistenced:amd64"],
    ]


def test_every_branch_can_be_had() -> None:
    """Newest first."""
    versions = [packages[0].upstream for packages in choose(OFFERED, every=True)]
    assert versions == ["535.309.01", "525.147.05", "470.256.02"]


@pytest.mark.parametrize("offered", [OFFERED[:5], []])
def test_fewer_than_two_branches_are_refused(offered: list[Package]) -> None:
    """One generation proves nothing about another."""
    with pytest.raises(CannotFetch, match="two driver generations"):
        choose(offered)


@pytest.mark.parametrize(
    ("series", "slot"), [(CURRENT, "current"), (TESLA, "tesla-470"), (f"{CURRENT}-tesla", "tesla")]
)
def test_a_series_has_its_own_folders(series: str, slot: str) -> None:
    """Named as Debian names them."""
    assert Generation("1.2", series, "/x", ()).slot == slot
