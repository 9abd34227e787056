"""The rig of the attack suite: a container or a process is attacked, a hook runs, every oracle is held against it.

All oracles of threats.md 3.0 apply to every run; `Lab.run` and `Lab.hook` raise an AssertionError that names each one
that was broken. What is left for a test to say is the outcome: SAFE (`Run.started`), or FAIL with its slug.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.attack import markers, oracle
from tests.attack.oracle import Record
from tests.attack.outcome import Report, descriptors, is_error, is_log_line, without_notes
from tests.attack.outcome import Run as Run  # the type of what the rig returns
from tests.attack.outcome import read_report as read_report
from tests.rig.container import Container, Hook
from tests.rig.init import Init, run_hook
from tests.rig.needs import unified_host
from tests.rig.probe import probe_program
from tests.rig.process import Result
from tests.rig.rootfs import put
from tests.rig.spec import base_spec
from tests.runtime.node import Node

WATCHED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watched.py")
PROBE = "/attack-probe"  # static, and in the root, where nothing else has to be resolved to find it
RULES = "/sys/fs/cgroup/devices/devices.list"
CONTROL, UVM = {(195, 255)}, {(511, 0), (511, 1)}
ALL = frozenset(CONTROL | UVM | {(195, 0), (195, 1), (195, 2)})
MODESET = frozenset({(195, 254)})  # comes with display
FOREIGN = ((195, 3), (1, 1), (10, 200), (508, 0))  # not to be opened by any of the containers
SECONDS, MEMORY = 10.0, 256 << 10  # of a hook; memory in KiB
_numbers = count(1)


@dataclass(frozen=True)
class Before:
    """The world before a run."""

    host: Record
    canary: Record
    driver: Record
    tree: Record
    rules: Mapping[str, str]
    log: int


@dataclass
class Lab:
    """folder: of this test; canary: the tree C, which nobody may touch; marks: where what must not run leaves marks.

    times: whether link counts and times of C count (not where C's files have names in the image); looks_at_tree:
    whether the container's tree is recorded (not where it is huge); ignore: paths that a runtime makes by itself.
    """

    node: Node
    folder: str
    base_rules: frozenset[str]
    times: bool = True
    looks_at_tree: bool = True
    ignore: Callable[[str], bool] = field(default=lambda path: False)

    @property
    def canary(self) -> str:
        """C."""
        return f"{self.folder}/canary"

    @property
    def marks(self) -> str:
        """Where marks would be."""
        return f"{self.folder}/marks"

    @property
    def log(self) -> str:
        """The debug log of [nvidia-container-cli]."""
        return f"{self.node.folder}/attack.log"

    def config(self, text: str = "", /, **keys: object) -> str:
        """The path of a config.toml for the embedded engine with a debug log; text: put before all, keys: more."""
        return self.node.config(cli={"debug": self.log, **keys}, text=text)

    def hook_of(self, config: str = "", *, private: bool = False) -> tuple[Hook, str]:
        """A watched hook and the path of its report. private: it gets a mount namespace of its own."""
        report = f"{self.folder}/report-{next(_numbers)}"
        watched = (WATCHED, *["--private"] * private, report)
        words = (self.node.launcher, "--config", config or self.config(), "--debug", "prestart")
        return Hook(sys.executable, ("-I", "-S", *watched, *words), timeout=60), report

    @contextmanager
    def container(self, *questions: str, gpus: str | None = "all", **fields: Any) -> Iterator[Container]:
        """A container that asks for these GPUs, with marker programs in it and a probe that asks what oracles need."""
        asked = (f"NVIDIA_VISIBLE_DEVICES={gpus}",) if gpus is not None else ()
        fields["env"] = (*asked, *fields.pop("env", ()))
        oracles = (
            "fds",
            "devices",
            "mounts",
            f"read:{RULES}",
            *(f"rule:{a}:{b}" for a, b in sorted({*ALL, *MODESET, *FOREIGN})),
        )
        with Container(args=(PROBE, *oracles, *questions), **fields) as container:
            put(container.rootfs, {PROBE: probe_program(static=True)}, 0o755)
            markers.plant(container.rootfs, self.marks)
            yield container

    def start(self, *questions: str, prepare: Callable[[str], object] | None = None, **fields: Any) -> Run:
        """Makes a container, lets `prepare` work on its rootfs, and runs it. Fields of `container` and of `run`."""
        mine = {name: fields.pop(name) for name in ("granted", "config") if name in fields}
        with self.container(*questions, **fields) as container:
            if prepare is not None:
                prepare(container.rootfs)
            return self.run(container, **mine)

    def run(self, container: Container, *, granted: frozenset[tuple[int, int]] = ALL, config: str = "") -> Run:
        """Runs it and holds every oracle against it. granted: the devices that it may have, if it starts."""
        hook, path = self.hook_of(config)
        container.hooks = {"prestart": [hook]}
        container.write_spec()
        before = self.before(container.rootfs)
        result = container.run()
        report = read_report(path, result)
        broken = self.broken(before, container.rootfs, report)
        broken += ["O-MNT: the runtime's mount table changed"] if result.mounts_leaked else []
        if report.status == 0:
            broken += [*descriptors(result), *self.rules_of(container, result, granted)] if not result.status else []
        elif result.status == 0 or result.stdout:
            broken.append(f"O-ATOM: the entry point ran: {result.stdout[:200]}")
        return self.ended(before, container.rootfs, result, report, broken)

    def hook(self, init: Init, *, config: str = "", light: bool = False, **fields: Any) -> Run:
        """Runs the hook on a process without a runtime. fields: of `bundle`, by which its bundle is written.

        light: the host's folders are not looked at; whoever makes many such runs does it around them all (`guard`).
        """
        hook, path = self.hook_of(config or self.config(**{"no-cgroups": True}), private=True)
        bundle = self.bundle(init.rootfs, **fields)
        before, mounts = self.before(init.rootfs, light=light), init.mounts
        result = run_hook([hook.path, *hook.args], init.state(bundle))
        report = read_report(path, result)
        broken = self.broken(before, init.rootfs, report, light=light)
        if report.status and init.mounts != mounts:
            broken.append(f"O-ATOM: mounts stay in the container: {set(init.mounts) ^ set(mounts)}")
        return self.ended(before, init.rootfs, result, report, broken)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Nothing changes on the host in here; for many light runs. Mounts are looked at where the work is done."""
        before = self.before("")
        yield
        lines = self.outside(before, self.before(""), "")
        assert not lines, "\n".join(lines)

    def bundle(
        self, rootfs: str, *, gpus: str | None = "all", env: Sequence[str] = (),
        edit: Callable[[dict[str, Any]], None] | None = None,
    ) -> str:  # fmt: skip
        """A bundle's folder whose config.json has this root filesystem."""
        folder = f"{self.folder}/bundle-{next(_numbers)}"
        os.mkdir(folder)
        spec = base_spec()
        spec["root"]["path"] = rootfs
        spec["process"]["env"] += [*([f"NVIDIA_VISIBLE_DEVICES={gpus}"] if gpus is not None else []), *env]
        if edit:
            edit(spec)
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(spec, file)
        return folder

    def before(self, rootfs: str, *, light: bool = False) -> Before:
        """The world now; "" for no tree."""
        log = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        tree = oracle.record(rootfs) if rootfs and self.looks_at_tree else {}
        if light:
            return Before({}, {}, {}, tree, {}, log)
        canary = oracle.record(self.canary, content=True, times=self.times)
        driver = oracle.record(self.node.driver.folder, content=True)
        return Before(oracle.host_record(), canary, driver, tree, oracle.device_rules(), log)

    def outside(self, before: Before, now: Before, rootfs: str) -> list[str]:
        """O-FS, O-EXEC and O-DEV for everything but the container: a line for each breach."""
        lines = []
        for one, other in ((before.host, now.host), (before.canary, now.canary), (before.driver, now.driver)):
            lines += [f"O-FS: {line}" for line in oracle.differences(one, other, self.ignore)]
        marked = [*os.listdir(self.marks), *(["MARKED"] if os.path.lexists(f"{rootfs}/MARKED") else [])]
        lines += [f"O-EXEC: {name} was run or loaded" for name in marked]
        both = before.rules.keys() & now.rules.keys()
        return lines + [
            f"O-DEV: the rules of {name} changed" for name in both if before.rules[name] != now.rules[name]
        ]

    def broken(self, before: Before, rootfs: str, report: Report, *, light: bool = False) -> list[str]:
        """The oracles that hold for every run: one line for each that was broken."""
        now = self.before(rootfs, light=light)
        lines = [*(f"O-MNT: {line}" for line in report.mounts), *self.outside(before, now, rootfs)]
        if report.seconds >= SECONDS or report.memory >= MEMORY or report.left:
            lines.append(f"O-TIME: {report.seconds:.1f} s, {report.memory} KiB, {report.left} children left")
        lines += [f"O-LOG: {line!r}" for line in report.said.split("\n")[:-1] if not is_log_line(line)]
        if report.status:
            lines += [f"O-ATOM: {line}" for line in oracle.differences(before.tree, now.tree, self.ignore)]
            if not any(is_error(line) for line in report.said.splitlines()):
                lines.append(f"O-ATOM: it failed without a message: {report.said!r}")
        return lines

    def rules_of(self, container: Container, result: Result, granted: frozenset[tuple[int, int]]) -> list[str]:
        """O-DEV for a container that started: exactly the runtime's own rules and those of the granted nodes."""
        if container.cgroup == "v1" and not unified_host():
            there = set((result.seen.content(RULES) or "").splitlines())
            wanted = self.base_rules | {f"c {major}:{minor} rw" for major, minor in granted}
            return [f"O-DEV: {rule}" for rule in sorted(there ^ wanted)]
        open_to_it = {number for number, allowed in result.seen.rules.items() if allowed}
        return [f"O-DEV: {number}" for number in open_to_it ^ set(granted)] if result.seen.rules else []

    def ended(self, before: Before, rootfs: str, result: Result, report: Report, broken: list[str]) -> Run:
        """The run, unless something was broken."""
        log = b""
        if os.path.exists(self.log):
            with open(self.log, "rb") as file:
                file.seek(before.log)
                log = file.read()
        text = log.decode("utf-8", "replace")
        broken += [f"O-LOG: {line!r} in the log" for line in text.split("\n") if not line.isprintable()]
        assert not broken, "\n".join([*broken, *without_notes(f"{report.said}\n{result.stderr}")])
        paths = oracle.changed(before.tree, oracle.record(rootfs)) if self.looks_at_tree else []
        return Run(result, report, tuple(path[len(rootfs) :] or "/" for path in paths), text)
