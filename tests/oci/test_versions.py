import pytest

from gpuhook.oci.bundle import has_capability_list, semantic_version


@pytest.mark.parametrize(
    "version",
    [
        "1.0.0-rc1",
        "v1.0.0-rc4",
        "1.0.0-rc10",
        "1.0.0-rc2-dev",
        "1.0.0-rc4.1",
        "1.0.0-rc2+build",
        "1.0-rc3",
        "1-rc3",
        "01.0.0-rc3",
    ],
)
def test_versions_with_a_list(version: str) -> None:
    """Identifiers of a pre-release compare as text."""
    assert has_capability_list(version)


@pytest.mark.parametrize(
    "version",
    [
        *(
            "1.0.0-rc5",
            "1.0.0-rc5-dev",
            "1.0.0-rc0",
            "1.0.0-rc",
            "1.0.0-rc.1",
            "1.0.0-RC1",
            "1.0.0",
            "1.0.2-dev",
            "0.9.0-rc3",
        ),
        *("", "x", "1.0.0-rc3 ", "1.0.0-rc3+", "1.0.0-rc3.01", "1.0.0.0-rc3", "-rc3", "1.0.0-rc3_1", "1.0.0-rc3+é"),
    ],
)
def test_versions_with_an_object(version: str) -> None:
    """Any other version, and what is none, has sets of capabilities."""
    assert not has_capability_list(version)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("12", (12, 0, 0, "")),
        ("v012.04.1-a.b-c+x.01", (12, 4, 1, "a.b-c")),
        (f"1.2.{2**64 - 1}", (1, 2, 2**64 - 1, "")),
        (f"1.2.{2**64}", None),
        (f"1.0.0-{'a' * 250}", (1, 0, 0, "a" * 250)),
        (f"1.0.0-{'a' * 251}", None),
        ("9" * 5000, None),
        ("١.2", None),
        ("1..2", None),
        ("V1", None),
        ("1.2-", None),
    ],
)
def test_semantic_version_is_read_as_runtimes_do(text: str, version: object) -> None:
    """Kind about zeros and missing numbers, strict about everything else."""
    assert version == semantic_version(text)
