"""Writes docs/doctor.md: the checks, and on which fixture hosts they fire: `python -m tools.doctor_matrix`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpuhook.catalogue import entries
from gpuhook.doctor import contained
from gpuhook.doctor.command import slugs
from gpuhook.doctor.fix import MAKERS
from gpuhook.doctor.limits import PARTLY, UNDETECTABLE
from gpuhook.doctor.repairs import ENGINES
from tests.doctor import hosts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "doctor.md"
ABOUT = """\
# gpuhook doctor

`gpuhook doctor` looks at this node and says what is wrong, how that shows, and what to do: the GPUs, the driver, the
container engines, Kubernetes, config.toml, and what will break later. It works with NVIDIA's toolkit, with gpuhook,
or with neither. It only reads; `--fix` offers repairs one by one, shows each and asks.

```
gpuhook doctor                   the verdict, then one finding after the other
gpuhook doctor --container NAME  also what a container of Docker, Podman or containerd adds
gpuhook doctor --only SLUG       one check; --list names them
gpuhook doctor --json            for programs: docs/doctor.schema.json
gpuhook doctor --markdown        to paste into an issue; names, ids and secrets are masked
gpuhook doctor --fix             repairs
```

A finding is `ok` (shown with -v), a note, a warning (works in part, or not for long) or a failure. What could not be
looked at is `skipped`, with the reason, and never ok; most of that is gone when root asks. The exit status is 0, 1
with warnings or where something was skipped, 2 with failures or where a repair failed. `gpuhook why SLUG` tells more
of a cause.
"""
REPAIRS = """\
## What --fix repairs

| reference | what is done |
|---|---|
| ldcache-stale | `ldconfig` |
| systemd-reload-loses-gpu | links in /dev/char; those with a fixed number at every boot (tmpfiles.d) |
| config-toml-broken | misspelt keys of config.toml, where the right one is beyond doubt; the old file is kept beside |
"""
DEV_CHAR = """\
## Links in /dev/char

systemd finds a device that a container may use by /dev/char/MAJOR:MINOR. NVIDIA's driver does not make these links.
NVIDIA's own nodes have the major number 195 at every boot, so that a file in /etc/tmpfiles.d makes their links:

```
L+ /dev/char/195:255 - - - - ../nvidiactl
L+ /dev/char/195:0 - - - - ../nvidia0
```

nvidia-uvm gets another number at each boot; `gpuhook doctor --fix` links it for this one. The runtime
(`gpuhook-runtime`) needs none of this: it puts the devices into the container's specification.
"""


def fired() -> dict[str, dict[str, str]]:
    """The findings above "ok" of every host."""
    found = {}
    for name in hosts.names():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = hosts.levels(hosts.findings(name, Path(folder)))
    return found


def lines() -> Iterator[str]:
    """The page."""
    yield ABOUT
    yield REPAIRS.rstrip()
    yield f"| {', '.join(ENGINES)} | `gpuhook install ENGINE --replace-nvidia` |"
    yield ""
    yield DEV_CHAR
    yield "## What cannot be seen from a node"
    yield ""
    yield from (f"- **{slug}**: {why}." for slug, why in UNDETECTABLE.items())
    yield ""
    yield "Seen in part:"
    yield ""
    yield from (f"- **{slug}**: {why}." for slug, why in PARTLY.items())
    yield ""
    yield from matrix(fired())


def matrix(found: dict[str, dict[str, str]]) -> Iterator[str]:
    """The checks by the hosts of `fixtures/hosts`: where each fires, and that it is silent everywhere else."""
    healthy = ", ".join(f"`{name}`" for name in hosts.HEALTHY)
    yield "## Checks and hosts"
    yield ""
    yield f"Each check is tried on {len(found)} hosts (`fixtures/hosts`). It fires on those that are named here and"
    yield f"on no other; on the healthy ones there is no finding at all: {healthy}."
    yield "A check of the node looks at the machine, a check of a container needs `--container` or `gpuhook explain`."
    yield ""
    yield "| reference | looks at | fires on |"
    yield "|---|---|---|"
    own = slugs()
    for slug, entry in entries().items():
        if not entry.seen:
            continue
        where = [kind for kind, some in (("node", own), ("container", of_containers())) if slug in some]
        on = ", ".join(f"{name} ({levels[slug]})" for name, levels in found.items() if slug in levels)
        yield f"| {slug} | {', '.join(where) or '–'} | {on or 'cannot be seen'} |"
    yield ""
    yield "| host | what it is |"
    yield "|---|---|"
    yield from (f"| {name} | {hosts.described(name)['title']} |" for name in found)


def of_containers() -> list[str]:
    """The slugs that the checks of a container, or the hook's own words about it, can report."""
    return [*contained.slugs(), *contained.BY_THE_HOOK]


def text() -> str:
    """The page as text."""
    assert MAKERS  # the repairs are registered
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
