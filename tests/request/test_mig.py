import pytest

from gpuhook.errors import UnknownDevice
from gpuhook.refusals import NotPrivileged
from gpuhook.request.mig import CONFIG, MONITOR, choose_mig
from tests.request.make import bundle

BOTH = pytest.mark.parametrize("variable", [CONFIG, MONITOR])


@BOTH
@pytest.mark.parametrize("value", ["all", "0,1", " 0 , 1 ", " ", "none", "bogus", "0,0"])
def test_a_privileged_container_may_ask(variable: str, value: str) -> None:
    """The value is handed over as it is; who does the work judges it."""
    assert value == choose_mig(bundle(**{variable: value}).with_(privileged=True), variable)


@BOTH
@pytest.mark.parametrize("value", ["all", " ", "none", "void", "-x\n"])
def test_another_container_may_not(variable: str, value: str) -> None:
    """Whatever the value, the container does not start (AC-45)."""
    with pytest.raises(NotPrivileged, match=variable) as caught:
        choose_mig(bundle(**{variable: value}), variable)

    assert "CAP_SYS_ADMIN" in caught.value.hint


@BOTH
def test_empty_and_unset_ask_for_nothing(variable: str) -> None:
    """An unprivileged container may set the variable to nothing."""
    assert choose_mig(bundle(**{variable: ""}), variable) == ""
    assert choose_mig(bundle(), variable) == ""


@BOTH
@pytest.mark.parametrize("value", ["-x", "0,-x", "0 -x", "all\n", "\0", "\u202eall"])
def test_what_a_program_could_mistake_is_refused(variable: str, value: str) -> None:
    """No options, no control characters (AC-38, AC-39)."""
    with pytest.raises(UnknownDevice, match=variable):
        choose_mig(bundle(**{variable: value}).with_(privileged=True), variable)
