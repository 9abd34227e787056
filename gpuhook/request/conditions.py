"""The requirements language: what nvidia-container-cli accepts and means by `--require` (engine.md 4).

A requirement is alternatives separated by spaces, an alternative is conditions separated by commas, a condition
is key, operator, value. What evaluation does not reach is not checked. There is no backtracking: the time taken
grows with the length of the text.
"""

from __future__ import annotations

from itertools import zip_longest

from gpuhook.refusals import BadRequirement
from gpuhook.request.devices import short
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.request.model import Requirement

    Ask = Callable[[int], tuple[str, str]]

MOST = 32  # requirements of one container
LONGEST = 1 << 18  # characters of all of them; those of real images have 2 000
TOLD = 16  # failures that a verdict keeps
SIGNS = ("<", ">", "=", "!")
HOLDS_FOR = {"=": (0,), "!=": (-1, 1), "!": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
NAME_OPERATORS = ("=", "!=", "!")
DEVICE_KEYS = ("arch", "brand")
HINT = "write alternatives with spaces between, conditions with commas: cuda>=12.2 brand=tesla,driver>=470,driver<471"


class Facts(Value):
    """What requirements are compared with; an empty version means that it is not known.

    cuda: the driver's CUDA version ("12.4"); driver: its own ("550.54.14"); gpus: how messages name each selected
    GPU, the parents of MIG devices included; ask: compute capability ("8.6") and brand ("GeForce") of the GPU at
    that place in `gpus`. Asking is slow, so it is done only when a condition needs it, and once for each GPU.
    """

    cuda: str
    driver: str
    gpus: tuple[str, ...]
    ask: Ask


class Failure(Value):
    """A condition that does not hold: as written, its parts, and what this host has.

    gpu: the one that it failed on, "" where it is about none in particular.
    """

    condition: str
    key: str
    operator: str
    wanted: str
    found: str
    gpu: str


class Verdict(Value):
    """Whether a requirement holds. failures: the first false condition of each alternative, in their order.

    They are those of the first GPU for which no alternative holds; of very many only some are kept.
    """

    holds: bool
    failures: tuple[Failure, ...] = ()


def check(requirements: tuple[Requirement, ...], facts: Facts) -> None:
    """Raises BadRequirement for an expression that is none, Unsatisfied for one that does not hold here."""
    if len(requirements) > MOST:
        raise BadRequirement(
            f"{len(requirements)} requirements are stated, more than {MOST}",
            where=f"{requirements[MOST].source} is the first beyond",
            hint="put several conditions into one variable, with commas between",
        )
    length = sum(len(requirement.expression) for requirement in requirements)
    if length > LONGEST:
        raise BadRequirement(
            f"the requirements have {length} characters, more than {LONGEST}",
            where=", ".join(requirement.source for requirement in requirements),
        )
    facts = facts.with_(ask=_remembered(facts.ask))
    for requirement in requirements:
        verdict = evaluate(requirement, facts)
        if not verdict.holds:
            from gpuhook.request.advice import unsatisfied  # only a start that fails needs the words for it

            raise unsatisfied(requirement, verdict.failures, facts)


def evaluate(requirement: Requirement, facts: Facts) -> Verdict:
    """Whether the requirement holds for every selected GPU; without one, conditions on the GPU count as true.

    Raises BadRequirement at the first condition reached that is none.
    """
    trial = _Trial(requirement, facts.with_(ask=_remembered(facts.ask)))
    if not facts.gpus:
        return trial.judge(-1)
    seen: set[tuple[str, str]] = set()
    for place in range(len(facts.gpus)):
        if place and trial.facts.ask(place) in seen:
            continue
        verdict = trial.judge(place)
        if not verdict.holds or not trial.asked:
            return verdict
        seen.add(trial.facts.ask(place))
    return Verdict(holds=True)


class _Trial:
    """One requirement against one host. asked: whether a condition on the GPU itself was reached so far."""

    def __init__(self, requirement: Requirement, facts: Facts) -> None:
        self.requirement, self.facts, self.asked = requirement, facts, False

    def judge(self, place: int) -> Verdict:
        """The verdict for the GPU at this place; -1: for no GPU."""
        failures: list[Failure] = []
        for alternative in self.requirement.expression.split(" "):
            conditions = [condition for condition in alternative.split(",") if condition]
            if alternative and not conditions:
                break  # nothing but commas ends the evaluation with the verdict so far
            failure = next((f for condition in conditions if (f := self.failure(condition, place))), None)
            if conditions and failure is None:
                return Verdict(holds=True)
            if failure and (len(failures) < TOLD or not any(known.key == failure.key for known in failures)):
                failures.append(failure)
        return Verdict(holds=not failures, failures=tuple(failures))

    def failure(self, condition: str, place: int) -> Failure | None:
        """None where the condition holds for the GPU at this place. Raises BadRequirement."""
        key, operator, wanted = self.parts(condition)
        if key in DEVICE_KEYS and place < 0:
            return None
        self.require_fitting(condition, key, operator, wanted)
        found = self.found(key, place)
        if found and self.compare(condition, key, found, wanted) in HOLDS_FOR[operator]:
            return None
        written = condition[: len(condition) - len(operator) - len(wanted)]
        if len(f"{written} {operator} {wanted}".encode()) >= 128:
            raise self.bad(condition, "it is longer than 127 bytes and does not hold")
        gpu = self.facts.gpus[place] if key in DEVICE_KEYS else ""
        return Failure(condition=condition, key=key, operator=operator, wanted=wanted, found=found, gpu=gpu)

    def parts(self, condition: str) -> tuple[str, str, str]:
        """Key in lower case, operator and value."""
        start = min((at for sign in SIGNS if (at := condition.find(sign)) >= 0), default=len(condition))
        value = condition[start:].lstrip("<>=!")
        operator = condition[start : len(condition) - len(value)]
        key = condition[:start].lower()
        if not operator or not value:
            raise self.bad(condition, "it is not of the form key, operator, value")
        if operator not in HOLDS_FOR:
            raise self.bad(condition, f"{short(operator)} is no operator")
        if key not in ("cuda", "driver", *DEVICE_KEYS):
            raise self.bad(condition, f"{short(key)} is no key; there are cuda, driver, arch and brand")
        return key, operator, value

    def require_fitting(self, condition: str, key: str, operator: str, wanted: str) -> None:
        """Refuse what makes no sense for the key, before this host is asked about it."""
        if key == "brand" and operator not in NAME_OPERATORS:
            raise self.bad(condition, f"{short(operator)} does not go with brand, which is a name")
        if key != "brand" and not _is_version(wanted):
            raise self.bad(condition, f"{short(wanted)} is no version")

    def found(self, key: str, place: int) -> str:
        """What this host has for the key."""
        if key in DEVICE_KEYS:
            self.asked = True
            return self.facts.ask(place)[DEVICE_KEYS.index(key)]
        return self.facts.cuda if key == "cuda" else self.facts.driver

    def compare(self, condition: str, key: str, found: str, wanted: str) -> int:
        """-1, 0 or 1 as the host's value is less than, equal to or greater than the wanted one; names: 0 or 1."""
        if key == "brand":
            return int(found.lower() != wanted.lower())
        sign = compare_versions(found, wanted)
        if sign is None:
            raise self.bad(condition, f"{short(wanted)} cannot be compared with the version {found}")
        return sign

    def bad(self, condition: str, problem: str) -> BadRequirement:
        """The error for a condition that is none."""
        source = self.requirement.source
        return BadRequirement(
            f"{source} is no valid requirement: in {short(condition)}, {problem}",
            where=f"{source}={self.requirement.expression}",
            hint=HINT,
        )


def compare_versions(one: str, other: str) -> int | None:
    """-1, 0 or 1 as the first version is less than, equal to or greater than the other; None where one is none.

    Numbers are compared from the left, missing ones count as 0; what stands behind the first difference is not
    looked at.
    """
    if not (_is_version(one) and _is_version(other)):
        return None
    for left, right in zip_longest(_components(one), _components(other), fillvalue="0"):
        first, second = _number(left), _number(right)
        if first is None or second is None:
            return None
        if first != second:
            return -1 if first < second else 1
    return 0


def _is_version(text: str) -> bool:
    return text.isascii() and text.replace(".", "").isdigit() and not text.startswith(".")


def _components(version: str) -> list[str]:
    return [part for part in version.split(".") if part]


def _number(component: str) -> int | None:
    digits = component.lstrip("0") or "0"
    value = int(digits) if len(digits) <= 20 else 1 << 64
    return value if value < (1 << 64) - 1 else None


def _remembered(ask: Ask) -> Ask:
    """The same question, put once for each GPU."""
    answers: dict[int, tuple[str, str]] = {}

    def remembered(place: int) -> tuple[str, str]:
        if place not in answers:
            answers[place] = ask(place)
        return answers[place]

    return remembered
