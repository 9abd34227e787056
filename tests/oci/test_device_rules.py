import pytest

from gpuhook.oci.bundle import Bundle, parse_bundle

DENY = {"allow": False, "access": "rwm"}


def bundle(linux: object) -> Bundle:
    return parse_bundle("/b", {"ociVersion": "1.0.2", "process": {}, "root": {"path": "r"}, "linux": linux})


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        ([DENY], False),
        ([DENY, {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}], True),
        ([DENY, {"allow": True, "type": "c", "major": 195, "minor": 0}], True),
        ([DENY, {"allow": True, "type": "c", "major": 195, "minor": -1, "access": "rwm"}], True),
        ([{"allow": True}], True),
        ([{"allow": True, "type": "a", "major": None}], True),
        ([DENY, {"allow": True, "type": "c", "major": 195, "minor": 1, "access": "rw"}], False),
        ([DENY, {"allow": True, "type": "b", "major": 195, "minor": 0, "access": "rw"}], False),
        ([DENY, {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "r"}], False),
        ([{"allow": True}, {"allow": False, "type": "c", "major": 195, "minor": 0, "access": "w"}], False),
        ([{"allow": True}, {"allow": False, "type": "c", "major": 195, "minor": 0, "access": "m"}], True),
        ([{"allow": "yes"}], False),
        ([{"allow": True}, None, "x", 5], True),
    ],
)
def test_the_last_rule_that_matches_decides(rules: list[object], allowed: bool) -> None:
    """A device may be used when it can be read and written; without a rule it may not."""
    assert allowed is bundle({"resources": {"devices": rules}}).allows_device(195, 0)


@pytest.mark.parametrize("linux", [None, [], {"resources": None}, {"resources": {"devices": {}}}])
def test_a_file_without_rules_allows_nothing(linux: object) -> None:
    """What is no list of rules is the runtime's to refuse."""
    assert not bundle(linux).allows_device(195, 0)
