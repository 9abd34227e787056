"""Who uses which GPU, as text for a person: containers first, then processes outside of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from gpuhook.errors import printable
from gpuhook.ps.model import Container, Gpu, Process, Usage
from gpuhook.terminal import Mark, Style, columns, wrapped

REFERENCE = "systemd-reload-loses-gpu"


@dataclass(frozen=True)
class Page:
    """How to print: colours and marks, and how wide."""

    style: Style
    width: int = 100

    @classmethod
    def here(cls) -> Page:
        """For standard output as it is now."""
        return cls(Style.of(sys.stdout), columns(100, 140))

    def line(self, text: str, indent: int) -> str:
        """One line that does not run over."""
        room = self.width - indent
        text = printable(text)
        return " " * indent + (text if len(text) <= room else f"{text[: room - 1]}…")


def render(usage: Usage, page: Page) -> Iterator[str]:
    """The lines of a report."""
    yield from _gpus(usage, page)
    by_id = {(process.container, process.pid): process for process in usage.processes}
    for container in usage.containers:
        yield ""
        yield from _container(container, [by_id[container.id, pid] for pid in container.processes], page)
    shown = {pid for container in usage.containers for pid in container.processes}
    others = [process for process in usage.processes if process.pid not in shown]
    if others:
        yield ""
        yield page.style.bold("outside of containers")
        yield from _processes(others, page)
    if not usage.containers and not others:
        yield "" if usage.gpus else "no GPU of NVIDIA's driver is on this node"
        yield "nothing that we may see uses a GPU"
    if usage.unseen:
        yield ""
        for text in usage.unseen:
            yield from page.style.item("plain", "not seen", f": {text}", page.width)


def _gpus(usage: Usage, page: Page) -> Iterator[str]:
    if not usage.gpus:
        return
    yield page.style.bold("GPUs")
    for gpu in usage.gpus:
        yield page.line(
            f"{short(gpu.node):<9} {gpu.bus_id}  {gpu.uuid[:12]:<12}  {gpu.model}  {_users(gpu, usage)}", 2
        )


def _users(gpu: Gpu, usage: Usage) -> str:
    count = sum(gpu.node in process.gpus for process in usage.processes)
    return f"{count} process{'es' * (count != 1)}" if count else "idle"


def _container(container: Container, using: list[Process], page: Page) -> Iterator[str]:
    style = page.style
    mark: Mark = "bad" if container.lost else "good" if container.may_use else "warn"
    title = f"{container.engine} {container.name or container.id[:12]}"
    more = [container.id[:12] if container.name else "", container.image, container.pod and f"pod {container.pod}"]
    yield from style.item(mark, title, "".join(f"  {part}" for part in more if part), page.width)
    names = ", ".join(
        short(access.node) + ("" if access.node == access.path else f" (as {access.path})")
        for access in container.may_use
        if access.node not in container.lost
    )
    if names:
        yield from wrapped(f"may use {names}", page.width, "  ", "    ")
    if container.asked is not None:
        none = "" if container.may_use else ", and has no GPU's node (gpuhook why hook-not-invoked)"
        yield from wrapped(f"asked for {container.asked or 'nothing'}{none}", page.width, "  ", "    ")
    if container.lost:
        names = ", ".join(short(name) for name in container.lost)
        text = f"lost {names}: the node is there, but the container's device rules do not allow it"
        yield from wrapped(f"{text}; start it again (gpuhook why {REFERENCE})", page.width, "  ", "    ")
    yield from _processes(using, page)


def _processes(processes: list[Process], page: Page) -> Iterator[str]:
    for process in processes:
        names = ",".join(short(name) for name in process.gpus) or ",".join(process.open)
        yield page.line(f"{process.pid:>8} {process.user:<8} {names:<9} {process.command}", 2)


def short(name: str) -> str:
    """A node's name without its folder."""
    return name.removeprefix("/dev/")
