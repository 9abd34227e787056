"""What a report that is pasted into an issue must not tell: names, ids, addresses, secrets."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress

from gpuhook.doctor.node import Node, Unreadable

# Names that tell nobody apart.
KEPT = ("root", "localhost", "docker", "nvidia", "podman", "kubelet", "containerd")
WORD = r"[\w-]*(?:token|secret|passw(?:or)?d|passphrase|auth|credential|api[_-]?key|access[_-]?key)[\w-]*"
VALUE = r"(?:\"[^\"]*\"|'[^']*'|[^\s\"']+)"
SECRETS = (
    (re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}"), r"\1<secret>"),
    (re.compile(rf"(?i)(?<![\w-])({WORD}[\"']?\s*[=:]\s*){VALUE}"), r"\1<secret>"),
    (re.compile(rf"(?i)(?<![\w-])(--{WORD}\s+){VALUE}"), r"\1<secret>"),
    (re.compile(r"\b(?:nvapi-|gh[pousr]_|glpat-|hf_|xox[a-z]-|AKIA|sk-)[\w-]{8,}"), "<secret>"),
    (re.compile(r"://\S+@"), "://<secret>@"),
    (re.compile(r"\b(?!127\.|0\.)\d{1,3}(?:\.\d{1,3}){3}\b"), "<address>"),
    (re.compile(r"(?i)(?<![\w:.])(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}(?![\w:.])"), "<address>"),
    (re.compile(r"(?i)(?<![\w:.])(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6}(?![\w:.])"), "<address>"),
    (re.compile(r"\b((?:https?|tcp|ssh|ftp)://(?:<secret>@)?)(?!%2F|localhost|127\.)[\w.-]+"), r"\1<host>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "<user>@<host>"),
    (re.compile(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), r"\1-<uuid>"),
    (re.compile(r"(/home/|/Users/|/run/user/)[^/\s]+"), r"\1<user>"),
    (re.compile(r"\bcontainer \S+:"), "container <name>:"),
)


def names_of(node: Node) -> dict[str, str]:
    """The names that tell whose machine it is, and what stands for them."""
    hosts, users = [], []
    with suppress(Unreadable):
        hosts.append(node.read("/etc/hostname", "").strip())
        users += [name for name in node.listdir("/home") if name != "lost+found"]
    if node.is_real:
        hosts.append(socket.gethostname())
        users += [os.environ.get("USER", ""), os.environ.get("SUDO_USER", "")]
    hosts += [name.partition(".")[0] for name in hosts]
    found = {**dict.fromkeys(hosts, "<host>"), **dict.fromkeys(users, "<user>")}
    return {name: mask for name, mask in found.items() if len(name) > 2 and name not in KEPT}


def masked(text: str, names: Mapping[str, str]) -> str:
    """A text without names, ids, addresses and secrets."""
    for pattern, mask in SECRETS:
        text = pattern.sub(mask, text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", names[name], text)
    return text
