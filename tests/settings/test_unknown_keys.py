from __future__ import annotations

import pytest

from gpuhook.settings.decide import decide
from gpuhook.settings.values import Settings

RUNTIME = "nvidia-container-runtime"
LEGACY = f"{RUNTIME}.modes.legacy"
CLI = "nvidia-container-cli"


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("a = 1", 1, "a is unknown and has no effect"),
        ("\n[unknown]\nx = 1", 2, "unknown is unknown"),
        ("[feature]", 1, "did you mean features?"),
        (
            f"[{CLI}]\nload_kmods = false",
            2,
            f"{CLI}.load_kmods is unknown and has no effect; did you mean {CLI}.load-k",
        ),
        (f"[{CLI}]\nNo-Pivot = true", 2, f"did you mean {CLI}.no-pivot?"),
        (f'[{RUNTIME}]\ncuda-compat-mode = "mount"', 2, f"did you mean {LEGACY}.cuda-compat-mode?"),
        ('[[plugin]]\nname = "a"\n[[plugin]]\nname = "b"', 1, "plugin is unknown"),
        ("no-pivot = true\nfeatures = {}", 1, f"did you mean {CLI}.no-pivot?"),
        (f"[{CLI}]\nload-kmods = true\nLOAD-KMODS = false", 3, "LOAD-KMODS is unknown"),
    ],
)
def test_unknown_keys_are_warned_about(text: str, where: int, says: str) -> None:
    """An unknown key changes nothing; the warning has file, line and the nearest known key (hook.md 11.10)."""
    settings = decide(text.encode(), "/etc/c.toml")

    [(slug, warning)] = settings.warnings
    assert Settings(source="/etc/c.toml", warnings=settings.warnings) == settings
    assert "config-toml-broken" == slug
    assert warning.startswith(f"/etc/c.toml:{where}: ")
    assert says in warning


def test_a_file_full_of_unknown_keys_is_not_listed_whole() -> None:
    """A thousand warnings would hide the first."""
    text = "".join(f"k{number} = 1\n" for number in range(1000))

    assert 20 == len(decide(text.encode(), "/c").warnings)


@pytest.mark.parametrize(
    "text",
    ["[nvidia-container-cli]\nLOAD-KMODS = false", "[NVIDIA-CONTAINER-CLI]\nLOAD-KMODS = false"],
)
def test_keys_in_upper_case_count(text: str) -> None:
    """A key written in upper case from end to end is accepted (hook.md 2)."""
    settings = decide(text.encode(), "/c")

    assert (False, ()) == (settings.load_kmods, settings.warnings)
