"""Asks the hook and explain about recorded cases: `python -m tests.explain.agreement FILE.jsonl [PART PARTS]`.

Both are called in forked children with the same files, folder and environment; the hook really becomes the recorder
that stands for nvidia-container-cli. Prints as JSON how often each decision was taken and where the two disagree.
"unasked" are cases that are no question for explain, which knows of no stage and no state; "elsewhere" those that
need another machine.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gpuhook.errors import GpuhookError
from gpuhook.hook import WORKING, parse
from gpuhook.jsontext import NotJson, first_value
from gpuhook.oci.state import State, parse_state
from tests.replay_rules.case import Case, Places, lay_out, load
from tests.replay_rules.compare import short
from tests.replay_rules.machine import why_not
from tests.replay_rules.run import Fork, Run

ENTRY = "gpuhook.cli:main"
LOADED = ("gpuhook.settings.decide", "gpuhook.backend.cli", "gpuhook.backend.program", "gpuhook.explain.command")
Decision = list[str]  # "inject" and the command, "skip", or "refuse" and the error's reference


@dataclass(frozen=True)
class Question:
    """What the hook is called for: a container's state, the configuration, and whether it is to tell every step."""

    state: State
    config: str
    debug: bool

    def command(self, words: list[str]) -> list[str]:
        """The words of a command without what explain cannot know: the process, and where --debug sends the log."""
        kept = [word for word in words if not (self.debug and word.startswith("--debug="))]
        return ["--pid=PID" if word == f"--pid={self.state.pid}" else word for word in kept]


def question(args: list[str], stdin: bytes) -> Question | None:
    """The question in a call of the hook; None where it is none about a container."""
    try:
        options, words = parse(args)
        state = parse_state(first_value(stdin.decode()))
    except (GpuhookError, NotJson, UnicodeDecodeError):
        return None
    answered = "true" in (options.get("help"), options.get("version"))
    if answered or not words or words[0] not in WORKING or state.pid <= 0:
        return None
    return Question(state, options.get("config", ""), options.get("debug") == "true")


class Witness:
    """Both programs, in the surroundings of a case."""

    def __init__(self, case: Case, places: Places) -> None:
        self.case, self.places = case, places
        self.runner = Fork(ENTRY, LOADED)

    def of_hook(self, asked: Question, stdin: bytes) -> Decision:
        """What the hook does."""
        status, _, stderr = self._run(self.case.args(self.places), stdin)
        argv = Path(self.places.record, "argv")
        if argv.exists():  # the first word is the recorder's interpreter
            words = argv.read_bytes().removesuffix(b"\0").decode("utf-8", "surrogateescape").split("\0")[1:]
            return ["inject", *asked.command(words)]
        return ["skip"] if status == 0 else ["refuse", reference(stderr)]

    def of_explain(self, asked: Question) -> Decision:
        """What explain says that the hook does."""
        config = ["--config", asked.config] if asked.config else []
        _, stdout, stderr = self._run(["explain", "--json", *config, asked.state.bundle], b"")
        if not stdout:  # the bundle itself cannot be read
            return ["refuse", reference(stderr)]
        told = json.loads(stdout)
        if told["verdict"] == "inject":
            return ["inject", *asked.command(told["command"])]
        return [told["verdict"], *([told["error"]["reference"]] if told["verdict"] == "refuse" else [])]

    def _run(self, args: list[str], stdin: bytes) -> tuple[int | None, str, str]:
        """The exit status, stdout and stderr."""
        stdout, stderr = (Path(self.places.record, name) for name in ("stdout", "stderr"))
        for file in (stdout, stderr):
            file.write_bytes(b"")
        env = self.case.environment(self.places)
        status = self.runner(Run(args, stdin, self.case.cwd(self.places), env, self.places.record))
        return status, stdout.read_text(errors="replace"), stderr.read_text(errors="replace")


def reference(stderr: str) -> str:
    """The slug of the error in a program's messages; all of them where there is none."""
    lines = [line.removeprefix("gpuhook: ") for line in stderr.split("\n") if line.startswith("gpuhook: ")]
    slugs = [line.partition(": ")[0] for line in lines]
    return next((slug for slug in slugs if slug not in ("warning", "note")), stderr)


def ask(case: Case, base: str) -> tuple[str, str]:
    """What a case is counted as, and what the disagreement is, "" for none."""
    if any(map(why_not, case.members.get("needs", ()))):
        return "elsewhere", ""
    places = Places(base)
    try:
        stdin = lay_out(case, places)
        asked = question(case.args(places), stdin)
        if asked is None:
            return "unasked", ""
        witness = Witness(case, places)
        done, told = witness.of_hook(asked, stdin), witness.of_explain(asked)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return done[0], "" if done == told else f"{case.name}: the hook: {short(done)}; explain: {short(told)}"


def main(argv: list[str]) -> None:
    """Ask about each PARTS-th case of a file, from the PART-th on."""
    part, parts = map(int, argv[1:] or ("0", "1"))
    with tempfile.TemporaryDirectory(prefix="agreement-") as top:
        cases = load(Path(argv[0]))[part::parts]
        answers = [ask(case, f"{top}/{number}") for number, case in enumerate(cases)]
    counts = Counter(kind for kind, _ in answers)
    print(json.dumps({"counts": counts, "disagreements": [text for _, text in answers if text]}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
