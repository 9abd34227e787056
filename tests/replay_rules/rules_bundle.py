"""Rules about the state on stdin and the bundle."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.replay_rules import reference, wanted
from tests.replay_rules.document import DEEPEST, Document, member, other_spelling
from tests.replay_rules.outcome import Outcome
from tests.replay_rules.rule import Amendment, Reading, Refusal, Rule
from tests.replay_rules.shapes import SETS, is_readable
from tests.replay_rules.view import View

# Control characters, lone surrogates, line separators and what turns the direction of text.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def asks(view: View) -> bool:
    """Whether there is work to do for a container that asks for a GPU."""
    return view.works and is_readable(view) and wanted.devices(view) is not None


def has_control(text: str) -> bool:
    """Whether a text could steer a terminal, or mean another file or line to somebody else."""
    return CONTROL.search(text) is not None


def _either(view: View, fault: str) -> bool:
    """Whether one of the two documents has a property."""
    return view.works and any(bool(getattr(document, fault)) for document in (view.state, view.spec))


def _deep(document: Document) -> bool:
    return document.depth > DEEPEST


def _state_spelled(view: View) -> bool:
    return view.works and other_spelling(view.state.value, "pid", "bundle", "bundlePath", "id")


def is_spelled_otherwise(view: View) -> bool:
    spec = view.spec.value
    process, mounts = member(spec, "process"), member(spec, "mounts")
    capabilities = member(process, "capabilities")
    return view.works and (
        other_spelling(spec, "ociVersion", "process", "root", "mounts")
        or other_spelling(process, "env", "capabilities")
        or other_spelling(member(spec, "root"), "path")
        or other_spelling(capabilities, *SETS)
        or any(other_spelling(m, "source", "destination") for m in (mounts if isinstance(mounts, list) else ()))
    )


def _pid_is_odd(view: View) -> bool:
    state = view.state.value
    pid = state.get("pid", 0) if isinstance(state, dict) else 0
    return view.works and not (type(pid) is int and -(2**31) <= pid < 2**31)


def _bundle_is_odd(view: View) -> bool:
    readable = isinstance(view.state.value, dict) or view.state.text.strip() == "null"
    return view.works and readable and (not view.bundle.startswith("/") or ".." in view.bundle.split("/"))


def _bundles_differ(view: View) -> bool:
    one, other = (member(view.state.value, name) for name in ("bundle", "bundlePath"))
    return view.works and bool(one and other) and one != other


def _state_is_not_plain(view: View) -> bool:
    found = [member(view.state.value, name) for name in ("id", "bundle", "bundlePath")]
    return view.works and any(not isinstance(text or "", str) or has_control(str(text)) for text in found)


def _root_is_none(view: View) -> bool:
    return asks(view) and (not view.root or rootfs(view) == "/")


def rootfs(view: View) -> str:
    """The root filesystem: relative to the bundle, cleaned."""
    return wanted.clean(f"{view.bundle}/{view.root}" if not view.root.startswith("/") else view.root)


def _relative_to_bundle(view: View, outcome: Outcome) -> Outcome:
    if outcome.argv is None:
        return outcome
    return outcome.with_argv([*outcome.argv[:-1], reference.PLACES.blank(rootfs(view))])


RULES: tuple[Rule, ...] = (
    Reading(
        "an entry of process.env without '=' is ignored",
        "decisions.md 4; AC-47; hook.md §11.8",
        lambda view: view.works and any("=" not in entry for entry in view.entries),
        lambda view: replace(view, entries=tuple(entry for entry in view.entries if "=" in entry)),
    ),
    Amendment(
        "a relative rootfs is relative to the bundle",
        "hook.md §11.5; AC-56",
        lambda view: asks(view) and bool(view.root) and not view.root.startswith("/"),
        _relative_to_bundle,
    ),
    Refusal(
        "JSON that is not UTF-8",
        "AC-51; threats.md §2.4 (state, config.json)",
        lambda view: view.works and not (view.state.is_utf8 and view.spec.is_utf8),
    ),
    Refusal(
        "a key that is given twice",
        "AC-52; threats.md §2.4 (config.json)",
        lambda view: _either(view, "names_a_key_twice"),
    ),
    Refusal(
        "text after config.json's value",
        "AC-52 (two readers, two documents); threats.md §2.4",
        lambda view: view.works and view.spec.value is not None and view.spec.followed,
    ),
    Refusal(
        "JSON that is nested deeper than Python follows",
        "AC-50; threats.md §2.4 (depth limit)",
        lambda view: view.works and (_deep(view.state) or _deep(view.spec)),
    ),
    Refusal(
        "an integer of thousands of digits",
        "AC-53",
        lambda view: _either(view, "has_endless_integer"),
    ),
    Refusal("a key of the state in another spelling", "AC-52", _state_spelled),
    Refusal("a key of config.json in another spelling", "AC-52", is_spelled_otherwise),
    Refusal("a pid that is no integer of 32 bits", "decisions.md 1; AC-53", _pid_is_odd),
    Refusal(
        "a pid of 0 or less",
        "decisions.md 1; AC-53; hook.md §11.5",
        lambda view: asks(view) and view.pid <= 0,
    ),
    Refusal("a bundle that is no absolute path without '..'", "AC-55; threats.md §2.4 (state)", _bundle_is_odd),
    Refusal("bundle and bundlePath that differ", "AC-55; threats.md §2.4 (state)", _bundles_differ),
    Refusal(
        "an id or a bundle that is no plain text", "decisions.md 1; AC-39 (they reach messages)", _state_is_not_plain
    ),
    Refusal("a rootfs that is empty or the host's root", "decisions.md 1; AC-56; hook.md §11.5", _root_is_none),
    Refusal(
        "a control character in the rootfs",
        "decisions.md 1; AC-39; AC-51",
        lambda view: asks(view) and has_control(view.root),
    ),
)
