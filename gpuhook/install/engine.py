"""What the engines' modules are given and what they give back."""

from __future__ import annotations

from gpuhook.install.change import Change
from gpuhook.install.host import Host
from gpuhook.value import Value

BIN = "/usr/local/bin"


class Wish(Value):
    """What the user asks for.

    host: the machine; runtime: the name that containers use; shim, hook: our programs, as the machine names them;
    default: make the runtime the engine's default; config: the engine's file, "" for where it usually is; via: "hook",
    "runtime" or "" for the engine's usual way; force: replace also what is not ours; names: file names of programs
    that are about to be put into `folder`; containerd: a containerd to ask, "" for the machine's own.
    """

    host: Host = Host()
    runtime: str = "nvidia"
    shim: str = f"{BIN}/gpuhook-runtime"
    hook: str = f"{BIN}/gpuhook"
    default: bool = False
    config: str = ""
    via: str = ""
    force: bool = False
    folder: str = BIN
    names: tuple[str, ...] = ()
    containerd: str = ""


class Plan(Value):
    """What would be done for one engine. notes: for people; restart: the commands that make it count."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    restart: tuple[tuple[str, ...], ...] = ()


class Registered(Value):
    """One registration that was found. where: the file; name: of the runtime or hook; program: that it names."""

    where: str
    name: str
    program: str
    default: bool = False
