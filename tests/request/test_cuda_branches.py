import pytest

from gpuhook.request.cuda_branches import FIRST_BRANCH, first_branch, runs_on_minor


@pytest.mark.parametrize(
    ("cuda", "branch"),
    [((8, 0), 384), ((10, 0), 410), ((12, 4), 550), ((12, 7), 570), ((12, 8), 570), ((13, 0), 580), ((13, 1), 0)],
)
def test_the_first_branch_of_a_version(cuda: tuple[int, int], branch: int) -> None:
    """A version that the table lacks takes the next one's branch; 0 says that the table is too old."""
    assert branch == first_branch(cuda)


def test_newer_versions_have_newer_branches() -> None:
    """The table is in order, which the search relies on."""
    assert sorted(FIRST_BRANCH) == list(FIRST_BRANCH)
    assert sorted(branch for _, branch in FIRST_BRANCH) == [branch for _, branch in FIRST_BRANCH]


@pytest.mark.parametrize(
    ("cuda", "host", "runs"), [((12, 8), (12, 2), True), ((13, 0), (12, 2), False), ((10, 2), (10, 0), False)]
)
def test_minor_versions_are_compatible_since_eleven(cuda: tuple[int, int], host: tuple[int, int], runs: bool) -> None:
    """Within a major version programs mostly run on older drivers."""
    assert runs is runs_on_minor(cuda, host)
